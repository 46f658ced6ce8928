package kit

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/projections/fleet"
	"tensorturn/projections/runs"
	"tensorturn/projections/timeline"
)

// get asks the API; ok is false when the hub did not answer, or not with success.
func (p *Pool) get(path string, out any) (ok bool) {
	p.tb.Helper()
	req, err := http.NewRequest(http.MethodGet, p.URL+path, nil)
	if err != nil {
		p.tb.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.key)
	resp, err := p.client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return false
	}
	if err := json.Unmarshal(body, out); err != nil {
		p.tb.Fatalf("GET %s: %v in %s", path, err, body)
	}
	return true
}

// Submit writes the spec, submits it, and gives the run's id.
func (p *Pool) Submit(spec string) domain.RunID {
	p.tb.Helper()
	file := filepath.Join(p.Dir, "spec.yaml")
	if err := os.WriteFile(file, []byte(spec), 0o600); err != nil {
		p.tb.Fatal(err)
	}
	return domain.RunID(p.Must("run", "submit", file))
}

// Show gives the run; ok is false while the hub does not answer.
func (p *Pool) Show(id domain.RunID) (r runs.Run, ok bool) {
	p.tb.Helper()
	ok = p.get("/api/v1/runs/"+string(id), &r)
	return r, ok
}

// AwaitRun follows the run's facts until yes is satisfied with the run, and gives it. A hub that is away is waited for.
func (p *Pool) AwaitRun(id domain.RunID, what string, yes func(runs.Run) bool) runs.Run {
	p.tb.Helper()
	began, after := time.Now(), uint64(0)
	tick := time.NewTicker(50 * time.Millisecond) // between questions to a hub that is away
	defer tick.Stop()
	var last runs.Run
	for time.Since(began) < 2*Patience {
		r, ok := p.Show(id)
		if ok {
			last = r
			if yes(r) {
				return r
			}
			if r.Phase.Ended() {
				p.tb.Fatalf("run %s is %s (%s) before %s", id, r.Phase, r.Reason, what)
			}
			var page gateway.RunEvents
			if ok = p.get(fmt.Sprintf("/api/v1/runs/%s/events?after=%d&wait=2", id, max(after, r.LastSeq)), &page); ok {
				after = page.Last
			}
		}
		if !ok {
			<-tick.C
		}
	}
	p.tb.Fatalf("waited %s for %s; the run is %s, %d of %d samples counted, round %d", 2*Patience, what, last.Phase, last.Ledger.Counted, last.Ledger.Expected, last.Rounds.Open)
	return last
}

// AwaitEnd waits for the run's end.
func (p *Pool) AwaitEnd(id domain.RunID) runs.Run {
	p.tb.Helper()
	return p.AwaitRun(id, "its end", func(r runs.Run) bool { return r.Phase.Ended() })
}

// Facts gives the run's timeline from its first fact.
func (p *Pool) Facts(id domain.RunID) []timeline.Line {
	p.tb.Helper()
	var all []timeline.Line
	p.JSON(&all, "run", "replay", string(id))
	return all
}

// Machine gives the machine with the name; ok is false when the hub does not answer or knows none.
func (p *Pool) Machine(name string) (m fleet.Machine, ok bool) {
	p.tb.Helper()
	ok = p.get("/api/v1/machines/"+name, &m)
	return m, ok
}

// TryMachine is Machine for goroutines beside the test's own: it reports nothing.
func (p *Pool) TryMachine(name string) (m fleet.Machine, ok bool) {
	body, err := p.fetch("/api/v1/machines/" + name)
	if err != nil {
		return m, false
	}
	defer body.Close()
	return m, json.NewDecoder(body).Decode(&m) == nil
}

// AwaitMachine waits until the machine stands as said.
func (p *Pool) AwaitMachine(name string, s machine.Standing) fleet.Machine {
	p.tb.Helper()
	var m fleet.Machine
	p.Await("machine "+name+" to be "+string(s), func() bool {
		var ok bool
		m, ok = p.Machine(name)
		return ok && m.Standing == s
	})
	return m
}

// SlotOf gives the row of the machine's slot 0 in the run, an empty one when it has done nothing.
func SlotOf(r runs.Run, m fleet.Machine) runs.Slot {
	for _, s := range r.Slots {
		if s.Slot.Machine() == m.ID {
			return *s
		}
	}
	return runs.Slot{}
}
