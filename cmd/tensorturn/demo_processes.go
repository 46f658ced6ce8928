package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
)

// demoProcesses are the hub and the agents of the demo, each a process of this program. Their output goes to files.
type demoProcesses struct {
	app      *app
	dir      string
	throttle float64 // of a machine of speed 1
	procs    []*process
	join     string
}

type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan error
}

// stopGrace is how long a process may take to end after SIGTERM.
const stopGrace = 5 * time.Second

// spawn starts this program with the arguments.
func (p *demoProcesses) spawn(name string, args ...string) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	pr := &process{name: name, log: filepath.Join(p.dir, name+".log"), done: make(chan error, 1)}
	out, err := os.OpenFile(pr.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	pr.cmd = exec.Command(exe, args...)
	pr.cmd.Stdout, pr.cmd.Stderr = out, out
	if err := pr.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { pr.done <- pr.cmd.Wait() }()
	p.procs = append(p.procs, pr)
	return pr, nil
}

// stop ends every process that was started: agents first, the hub last.
func (p *demoProcesses) stop() {
	for i := len(p.procs) - 1; i >= 0; i-- {
		p.procs[i].cmd.Process.Signal(syscall.SIGKILL) // its folder is about to go; nothing is worth waiting for
		<-p.procs[i].done
	}
	p.procs = nil
}

// kill ends one process as a crash would, and forgets it.
func (p *demoProcesses) kill(pr *process) {
	pr.cmd.Process.Signal(syscall.SIGKILL)
	<-pr.done
	for i := range p.procs {
		if p.procs[i] == pr {
			p.procs = append(p.procs[:i], p.procs[i+1:]...)
			return
		}
	}
}

// explain adds the last lines of the logs to an error.
func (p *demoProcesses) explain(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	for _, pr := range p.procs {
		b, _ := os.ReadFile(pr.log)
		lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
		for _, l := range lines[max(0, len(lines)-5):] {
			p.app.say("%s: %s", pr.name, clean(domain.Clip(string(l), 300)))
		}
	}
	return err
}

// startHub brings up the hub.
func (p *demoProcesses) startHub(ctx context.Context) (*client, error) {
	hubDir := filepath.Join(p.dir, "hub")
	if _, err := p.spawn("hub", "hub", "start", "--dir", hubDir, "--listen", "127.0.0.1:0", "--lease", demoLease.String(), "--min-free", itoa(demoMinFree), "--log-level", "warn"); err != nil {
		return nil, err
	}
	file := filepath.Join(hubDir, "operator.json")
	var cl *client
	err := p.await(ctx, "the hub", func() (bool, error) {
		c, err := loadContext(file)
		if err != nil {
			return false, nil
		}
		cl, err = newClient(c)
		return err == nil, err
	})
	return cl, err
}

// start brings up the hub and the agents and returns when all machines are online.
func (p *demoProcesses) start(ctx context.Context) (*client, error) {
	cl, err := p.startHub(ctx)
	if err != nil {
		return nil, err
	}
	var token gateway.CreatedToken
	if err := cl.call(ctx, http.MethodPost, "/api/v1/tokens", gateway.CreateToken{Uses: len(demoPool)}, &token); err != nil {
		return nil, err
	}
	p.app.say("hub at %s; %d machines join by leafnode over wss", cl.ctx.URL, len(demoPool))
	for _, m := range demoPool {
		dir := filepath.Join(p.dir, m.name)
		if _, err := p.app.join(ctx, joinRequest{dir: dir, hub: cl.ctx.URL, token: token.Token, name: m.name, slots: 1}); err != nil {
			return nil, err
		}
		if _, err := p.agent(m.name, m.speed); err != nil {
			return nil, err
		}
	}
	return cl, p.await(ctx, "the machines", func() (bool, error) { return p.online(ctx, cl) })
}

func (p *demoProcesses) agent(name string, speed float64) (*process, error) {
	return p.spawn(name, "agent", "start", "--dir", filepath.Join(p.dir, name), "--throttle", fmt.Sprint(p.throttle*speed), "--reconnect", "1s", "--log-level", "warn", "--no-bench")
}

func (p *demoProcesses) online(ctx context.Context, cl *client) (bool, error) {
	var ms []struct{ Standing string }
	if err := cl.call(ctx, http.MethodGet, "/api/v1/machines", nil, &ms); err != nil {
		return false, err
	}
	n := 0
	for _, m := range ms {
		if m.Standing == "online" {
			n++
		}
	}
	return n == len(demoPool), nil
}

// await asks until ready says yes, a process has died, or the context ends.
func (p *demoProcesses) await(ctx context.Context, what string, ready func() (bool, error)) error {
	const patience, every = 30 * time.Second, 50 * time.Millisecond
	for began := time.Now(); time.Since(began) < patience; {
		ok, err := ready()
		if ok || err != nil {
			return err
		}
		for _, pr := range p.procs {
			select {
			case err := <-pr.done:
				pr.done <- err
				return domain.Unavailable("demo", pr.name+" ended early", "see the lines above", err)
			default:
			}
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
	return domain.Unavailable("demo", what+" did not come up in time", "see the lines above", nil)
}

// trouble waits until the victim holds trained work in the middle of the run, kills it, lets its lease expire, and
// starts it again.
func (p *demoProcesses) trouble(ctx context.Context, cl *client, id domain.RunID) error {
	victim, index := p.find(demoVictim)
	if victim == nil {
		return nil
	}
	var before *runs.Slot // the victim's row when it was killed
	for {
		r, err := cl.run(ctx, string(id))
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		switch {
		case r.Phase.Ended():
			return nil
		case before == nil && r.Ledger.Counted*4 >= r.Ledger.Expected && r.Phase == run.PhaseTraining:
			for _, s := range r.Slots {
				if before == nil && p.isVictim(ctx, cl, s.Slot.Machine()) && s.Holding > 0 && r.Rounds.Counted == 0 {
					p.app.say("killing %s with SIGKILL: it holds %d trained chunks that nobody has seen", demoVictim, s.Holding)
					p.kill(victim)
					before = s
				}
			}
		case before != nil:
			if said := lost(*before, r); said != "" {
				p.app.say("%s; starting %s again", said, demoVictim)
				_, err := p.agent(demoVictim, demoPool[index].speed)
				return err
			}
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return nil
		}
	}
}

// lost says what has become of the chunks of a slot that was as before when its machine was killed: "" while nothing has. Copies
// from before and of other slots' chunks are no answer to its death.
func lost(before runs.Slot, r runs.Run) string {
	for _, s := range r.Slots {
		switch {
		case s.Slot != before.Slot:
		case s.Expired > before.Expired:
			return fmt.Sprintf("its lease has expired, %s back in the queue", isAre(s.Requeued-before.Requeued, "chunk"))
		case s.Copied > before.Copied:
			return fmt.Sprintf("others were given copies of its last %s", count(s.Copied-before.Copied, "chunk"))
		}
	}
	return ""
}

func (p *demoProcesses) find(name string) (*process, int) {
	for _, pr := range p.procs {
		if pr.name == name {
			for i := range demoPool {
				if demoPool[i].name == name {
					return pr, i
				}
			}
		}
	}
	return nil, -1
}

func (p *demoProcesses) isVictim(ctx context.Context, cl *client, m domain.MachineID) bool {
	var got struct{ Name string }
	err := cl.call(ctx, http.MethodGet, "/api/v1/machines/"+string(m), nil, &got)
	return err == nil && strings.EqualFold(got.Name, demoVictim)
}
