package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/projections/runs"
)

// drillMachines are the machines of a trial pool, equal ones.
var drillMachines = []string{"one", "two", "three"}

// How long failures last, in lease times: shorter and longer than a lease in turn.
const (
	drillShort = 0.4
	drillLong  = 1.5
	halfSpeed  = 50 * time.Millisecond // a throttled machine stands still for this long, then runs as long
)

// drillPool is a hub and its machines with a relay before each.
type drillPool struct {
	app   *app
	procs *demoProcesses
	cl    *client
	links map[string]*relay
	speed float64

	mu      sync.Mutex // guards what follows, and procs once the schedule runs
	agents  map[string]*process
	busy    map[string]bool // a failure of this machine is under way
	faults  []drillFault
	began   time.Time
	missing time.Duration // slot time in which machines were not there
}

func (a *app) startDrillPool(ctx context.Context, dir string, o drillOptions) (*drillPool, error) {
	p := &drillPool{app: a, procs: &demoProcesses{app: a, dir: dir}, links: map[string]*relay{}, speed: o.throttle, agents: map[string]*process{}, busy: map[string]bool{}}
	var err error
	if p.cl, err = p.procs.startHub(ctx); err != nil {
		return p, err
	}
	var token gateway.CreatedToken
	if err := p.cl.call(ctx, http.MethodPost, "/api/v1/tokens", gateway.CreateToken{Uses: len(drillMachines)}, &token); err != nil {
		return p, err
	}
	for _, name := range drillMachines {
		if p.links[name], err = newRelay(p.cl.ctx.URL); err != nil {
			return p, err
		}
		if _, err := a.join(ctx, joinRequest{dir: filepath.Join(dir, name), hub: p.links[name].url(), token: token.Token, name: name, slots: 1}); err != nil {
			return p, err
		}
		if err := p.spawn(name); err != nil {
			return p, err
		}
	}
	return p, p.procs.await(ctx, "the machines", func() (bool, error) { return p.procs.online(ctx, p.cl) })
}

func (p *drillPool) spawn(name string) (err error) {
	p.agents[name], err = p.procs.spawn(name, "agent", "start", "--dir", filepath.Join(p.procs.dir, name), "--throttle", fmt.Sprint(p.speed), "--reconnect", "1s", "--log-level", "warn", "--no-bench")
	return err
}

// stop ends everything.
func (p *drillPool) stop() {
	for _, l := range p.links {
		if l != nil {
			l.stop()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.procs.stop()
}

// begin starts the clock of presence; end gives it, with the failures that were made.
func (p *drillPool) begin() { p.began = time.Now() }

func (p *drillPool) end() (time.Duration, []drillFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.began)*time.Duration(len(drillMachines)) - p.missing, p.faults
}

// await waits for the run's end.
func (p *drillPool) await(ctx context.Context, id domain.RunID) (runs.Run, error) {
	after := uint64(0)
	for {
		r, lines, err := p.cl.poll(ctx, id, after)
		if err != nil {
			return r, err
		}
		if after = lines.Last; r.Phase.Ended() {
			return r, nil
		}
	}
}

// schedule makes failures until the function it gives is called, which mends what is under way and waits.
func (p *drillPool) schedule(ctx context.Context, o drillOptions) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	rng := rand.New(rand.NewPCG(o.seed, 9))
	work.Go(func() {
		for n := 0; pause(ctx, o.every) == nil; n++ {
			name, kind := drillMachines[rng.IntN(len(drillMachines))], o.faults[rng.IntN(len(o.faults))]
			length := drillShort
			if n%2 == 1 {
				length = drillLong
			}
			d := time.Duration(length * float64(demoLease))
			if !p.take(name) {
				continue
			}
			work.Go(func() {
				p.app.say("%s: %s for %s", name, kind, short(d))
				at := time.Now()
				share := p.fail(ctx, kind, name, d)
				p.give(name, kind, at, share)
			})
		}
	})
	return func() { cancel(); work.Wait() }
}

// take marks a machine as failing; false when it already does, or when no other is well.
func (p *drillPool) take(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy[name] || len(p.busy) >= len(drillMachines)-1 {
		return false
	}
	p.busy[name] = true
	return true
}

func (p *drillPool) give(name, kind string, at time.Time, share float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.busy, name)
	d := time.Since(at)
	p.missing += time.Duration(share * float64(d))
	p.faults = append(p.faults, drillFault{At: at.Sub(p.began).Seconds(), Kind: kind, Machine: name, Lasted: d.Seconds()})
}

// fail makes one failure and ends it; it gives the share of the machine's time that was taken away.
func (p *drillPool) fail(ctx context.Context, kind, name string, d time.Duration) float64 {
	p.mu.Lock()
	pr := p.agents[name]
	p.mu.Unlock()
	switch kind {
	case "kill":
		p.mu.Lock()
		p.procs.kill(pr)
		p.mu.Unlock()
		pause(ctx, d)
		p.mu.Lock()
		defer p.mu.Unlock()
		if err := p.spawn(name); err != nil {
			p.app.say("%s cannot be started again: %v", name, err)
		}
	case "freeze":
		pr.cmd.Process.Signal(syscall.SIGSTOP)
		pause(ctx, d)
		pr.cmd.Process.Signal(syscall.SIGCONT)
	case "throttle":
		for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
			pr.cmd.Process.Signal(syscall.SIGSTOP)
			pause(ctx, halfSpeed)
			pr.cmd.Process.Signal(syscall.SIGCONT)
			pause(ctx, halfSpeed)
		}
		return 0.5
	case "partition":
		p.links[name].part()
		pause(ctx, d)
		p.links[name].mend()
		return 0 // it is there and computes on: what that is worth is what the drill shows
	}
	return 1
}
