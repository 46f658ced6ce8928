package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tensorturn/broker/gateway"
	"tensorturn/projections/fleet"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
	"tensorturn/test/offline"
)

// try damages a copy, starts what reads it, and judges.
func (p *filesPatient) try(t filesTry) (verdict, said string) {
	verdict = "not run"
	err := kit.InBed(os.Stderr, func(b *kit.Bed) {
		pool := kit.NewPool(b, p.w.Bin, lease)
		pool.Env = []string{"TENSORTURN_CONTEXT=" + p.context}
		pool.Under = []string{"sh", "-c", fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, filesMemory)}
		b.Must(offline.CopyTree(filepath.Join(p.dir, "hub"), pool.HubDir()))
		b.Must(offline.CopyTree(filepath.Join(p.dir, "agents", "a"), pool.AgentDir("a")))
		changed, err := t.damage(pool.Dir)
		b.Must(err)
		if !changed {
			verdict = "unchanged"
			return
		}
		c := &filesCase{filesPatient: p, b: b, pool: pool, try: t}
		hub := pool.Spawn("hub", "hub", "start", "--dir", pool.HubDir(), "--log-level", "warn")
		verdict = c.hubAnswers(hub)
		if verdict == "" {
			a := pool.Spawn("a", "agent", "start", "--dir", pool.AgentDir("a"), "--reconnect", "400ms", "--log-level", "warn", "--no-bench")
			if verdict = c.agentWorks(a); verdict == "" {
				verdict = c.goneOn(hub, a)
			}
		}
		for _, n := range []string{"hub", "a"} {
			if text, err := os.ReadFile(filepath.Join(pool.Dir, n+".log")); err == nil {
				said += string(text)
			}
		}
		if strings.Contains(said, "panic:") || strings.Contains(said, "goroutine ") || strings.Contains(said, "out of memory") {
			verdict = "WRONG: it panics"
		}
	})
	if err != nil {
		return "WRONG: " + err.Error(), said
	}
	return verdict, said
}

// filesCase is a try under way.
type filesCase struct {
	*filesPatient
	b    *kit.Bed
	pool *kit.Pool
	try  filesTry
}

// refused judges a process that has ended by itself.
func (c *filesCase) refused(p *kit.Process) string {
	code, said := p.Exit(time.Second), p.Output()
	switch {
	case code <= 0 || code > 9:
		return fmt.Sprintf("WRONG: %s ends with code %d", p.Name, code)
	case !strings.Contains(said, "hint: "):
		return "WRONG: it does not say what to do next"
	case !strings.Contains(said, filepath.Base(c.try.file)) && !strings.Contains(said, filepath.Base(filepath.Dir(c.try.file))):
		return "WRONG: it does not name the file"
	}
	return "refused, with the file and the next step"
}

// ended reports whether the process has.
func ended(p *kit.Process) bool {
	select {
	case <-p.Ended():
		return true
	default:
		return false
	}
}

// hubAnswers waits for the hub; "" when it is up.
func (c *filesCase) hubAnswers(hub *kit.Process) string {
	hc := &http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	for until := time.Now().Add(filesWait); time.Now().Before(until); <-time.After(50 * time.Millisecond) {
		if ended(hub) {
			return c.refused(hub)
		}
		if strings.Contains(hub.Output(), "warning: the hub was "+c.w.URL) { // start.json is gone: its owner is told what to give
			return "starts elsewhere, with a warning and the next step"
		}
		resp, err := hc.Get(c.w.URL + "/healthz")
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return c.sound(hub)
		}
	}
	return "WRONG: the hub neither answers nor ends"
}

// ask runs a command with the owner's own context.
func (c *filesCase) ask(out any, args ...string) string {
	s := c.pool.RunFor(filesWait, append(args, "--json", "--context", c.context)...)
	if s.Code != 0 {
		return fmt.Sprintf("WRONG: %s ends with %d: %s", strings.Join(args, " "), s.Code, strings.TrimSpace(s.Err))
	}
	if err := json.Unmarshal([]byte(s.Out), out); err != nil {
		return "WRONG: " + err.Error()
	}
	return ""
}

// sound judges memory, identity, and that the owner's key opens what was there before.
func (c *filesCase) sound(hub *kit.Process) string {
	var r runs.Run
	if bad := c.ask(&r, "run", "show", string(c.first)); bad != "" {
		return bad
	}
	if r.Ledger.Counted != r.Ledger.Expected || r.Ledger.Counted == 0 {
		return "WRONG: the run that had ended is told otherwise"
	}
	var v gateway.Verified
	if bad := c.ask(&v, "log", "verify"); bad != "" {
		return bad
	}
	if v.Key != c.key {
		return "WRONG: it has another key than before"
	}
	return c.lean(hub)
}

// lean judges how much memory a process has used at most.
func (c *filesCase) lean(p *kit.Process) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/status")
	if err != nil {
		return "" // it has ended
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			if kib, _ := strconv.Atoi(f[1]); kib > filesPeak {
				return fmt.Sprintf("WRONG: %s has used %d MiB", p.Name, kib>>10)
			}
		}
	}
	return ""
}

// agentWorks waits until the machine is there.
func (c *filesCase) agentWorks(a *kit.Process) string {
	own := strings.HasPrefix(c.try.file, "hub/keys/machines/a-") // without it that machine stays out, and the hub says so
	wait := map[bool]time.Duration{false: filesWait, true: lease}[own]
	for until := time.Now().Add(wait); time.Now().Before(until); <-time.After(100 * time.Millisecond) {
		if ended(a) {
			return c.refused(a)
		}
		var all []fleet.Machine
		if bad := c.ask(&all, "machine", "list"); bad != "" {
			return bad
		}
		for _, m := range all {
			if m.Name == "a" && m.Standing == "online" {
				return ""
			}
		}
	}
	hub, err := os.ReadFile(filepath.Join(c.pool.Dir, "hub.log"))
	if own && err == nil && strings.Contains(string(hub), filepath.Base(c.try.file)) && strings.Contains(string(hub), "machine revoke") {
		return "one machine stays out, with the file and the next step"
	}
	return "WRONG: the machine does not come back"
}

// goneOn waits for the end of the run that was under way, and verifies it.
func (c *filesCase) goneOn(hub, a *kit.Process) string {
	for until := time.Now().Add(2 * filesWait); ; <-time.After(200 * time.Millisecond) {
		if ended(a) {
			return c.refused(a)
		}
		var r runs.Run
		if bad := c.ask(&r, "run", "show", string(c.run)); bad != "" {
			return bad
		}
		if r.Phase.Ended() {
			if r.Ledger.Counted != r.Ledger.Expected {
				return fmt.Sprintf("WRONG: %d of %d samples are counted", r.Ledger.Counted, r.Ledger.Expected)
			}
			break
		}
		if time.Now().After(until) {
			return fmt.Sprintf("WRONG: the run does not go on: %d of %d samples", r.Ledger.Counted, r.Ledger.Expected)
		}
	}
	var told map[string]any
	if bad := c.ask(&told, "run", "replay", string(c.run), "--verify"); bad != "" {
		return bad
	}
	for _, p := range []*kit.Process{a, hub} {
		if bad := c.lean(p); bad != "" {
			return bad
		}
	}
	if a.Stop(filesWait) != 0 || hub.Stop(filesWait) != 0 {
		return "WRONG: it does not stop in good order"
	}
	return "works as before" + c.spoke()
}

// spoke tells whether anything was said beyond what a start says.
func (c *filesCase) spoke() string {
	for _, n := range []string{"hub", "a"} {
		b, _ := os.ReadFile(filepath.Join(c.pool.Dir, n+".log"))
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, filepath.Base(c.try.file)) || strings.Contains(line, "warning") || strings.Contains(line, "WRN") || strings.Contains(line, `"warn"`) || strings.Contains(line, `"level":"error"`) || strings.Contains(line, "ERR") {
				return ", and says so"
			}
		}
	}
	return ""
}
