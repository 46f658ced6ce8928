package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tensorturn/domain/machine"
	"tensorturn/projections/runs"
)

func agentRows() []row {
	return []row{
		{part: "agent", fault: "SIGKILL with trained chunks in hand", expect: "its next process goes on from what it had trained, the rest goes to others; nothing twice in the model",
			mutation: "it never comes back and the others are stopped for good", quick: true, run: agentKilled},
		{part: "agent", fault: "SIGSTOP past its lease, then on", expect: "its lease is gone, what it held is fenced, it works under a new lease",
			mutation: "it is revoked while it stands still", run: agentFrozen},
		{part: "agent", fault: "all die, and come back", expect: "the run waits, names its machines lost, and goes on by itself",
			mutation: "only their folders come back, without keys", run: allDead},
		{part: "agent", fault: "its folder is copied and started twice", expect: "one of the two works; no lease is held twice, no chunk counts twice",
			mutation: "both copies are stopped", run: cloned},
		{part: "agent", fault: "a machine 10 times slower", expect: "rounds do not wait for it: steals carry its chunks over",
			mutation: "it cannot be stolen from: it claims its whole share (a chunk is a round)", alone: true, run: slowMachine},
		{part: "agent", fault: "churn: one machine killed and one started every 15 s of a lease of 120 s", expect: "the run ends, exact; lost leases are trained again",
			mutation: "nobody is started again", run: churn},
	}
}

func agentKilled(w *world) {
	w.up("a", "b")
	id := w.submit(16)
	w.holding(id, "a")
	w.agents["a"].Kill()
	if w.mutant {
		w.agents["b"].Kill()
		w.never(id)
		return
	}
	w.again("a")
	r := w.ended(id)
	a := w.of(r, "a")
	if a.Expired != 1 || a.Requeued < 2 || a.Samples == 0 {
		w.Errorf("its row is %+v: want one lost lease, its chunks returned, and work after its return", a)
	}
	w.see("%d chunks requeued, %d samples counted after its return", a.Requeued, a.Samples)
}

func agentFrozen(w *world) {
	w.up("a", "b")
	id := w.submit(60)
	w.holding(id, "a")
	if w.mutant {
		w.Say("machine", "revoke", "a", "--yes")
	}
	w.agents["a"].Signal(syscall.SIGSTOP)
	w.after(lease + half)
	before := w.of(w.show(id), "a") // while it is frozen: it is back within milliseconds
	w.agents["a"].Signal(syscall.SIGCONT)
	w.AwaitMachine("a", machine.Online)
	r := w.ended(id)
	after := w.of(r, "a")
	// What it held goes back when its lease runs out, or is done before that: the other one trains copies and the round closes.
	if before.Lease != "" || before.Holding != 0 || before.Requeued+after.Copied < 2 || after.Samples <= before.Samples {
		w.Errorf("before its return %+v, after %+v, %d copies: want its lease gone, its chunks requeued or copied, and work after its return", before, after, after.Copied)
	}
	w.see("%d chunks requeued, %d given to the other as copies, %d samples counted after its return", before.Requeued, after.Copied, after.Samples-before.Samples)
}

func allDead(w *world) {
	w.up("a", "b")
	id := w.submit(20)
	w.holding(id, "a")
	for _, p := range w.agents {
		p.Kill()
	}
	w.AwaitMachine("a", machine.Lost)
	w.AwaitMachine("b", machine.Lost)
	said := w.Say("run", "show", string(id))
	if r := w.show(id); r.Phase.Ended() || !strings.Contains(said, "no machine is online (the pool has 2)") {
		w.Errorf("with all machines dead the run is %s", r.Phase)
	}
	for _, n := range []string{"a", "b"} {
		if w.mutant {
			w.Must(os.Remove(filepath.Join(w.AgentDir(n), "agent.json")))
		}
		w.again(n)
	}
	if w.mutant {
		w.never(id)
		return
	}
	began := time.Now()
	r := w.ended(id)
	w.see("%d leases lost, ended %.0f s after their return", r.Totals.Expired, time.Since(began).Seconds())
}

func cloned(w *world) {
	w.up("a", "b")
	id := w.submit(24)
	w.holding(id, "a")
	copied := w.AgentDir("copy")
	w.CopyTree(w.AgentDir("a"), copied)
	_ = os.RemoveAll(filepath.Join(copied, "cache"))
	w.again("copy")
	if w.mutant {
		for _, p := range w.agents {
			p.Kill()
		}
		w.never(id)
		return
	}
	r := w.ended(id)
	if len(r.Slots) != 2 {
		w.Errorf("%d slots worked, want those of two machines", len(r.Slots))
	}
	m := w.machine("a")
	w.see("two processes of one machine: %d restarts seen, %d leases lost, every chunk once", m.Restarts, r.Totals.Expired)
}

// slowMachine compares the time of the run with what the two machines could do together.
func slowMachine(w *world) {
	w.up("fast")
	w.StartAgent("slow", "--throttle", "0.0012")
	more := []string{}
	if w.mutant {
		more = append(more, "round: {chunks: 2}\nchunk: 704")
	}
	id := w.submit(30, more...)
	r := w.ended(id)
	fast, late := w.of(r, "fast"), w.of(r, "slow")
	took := r.Ended.Sub(r.Submitted).Seconds()
	ideal := float64(r.Ledger.Counted) / (rate(r, fast) + rate(r, late))
	if late.Samples == 0 {
		w.Errorf("the slow machine counts nothing")
	}
	if ratio := took / ideal; ratio > 1.45 {
		w.Errorf("the run took %.1f s, %.2f of what both together could do", took, ratio)
	}
	w.see("%.1f s, %.2f of the ideal; %d chunks stolen from it", took, took/ideal, late.Lost)
}

// rate is the slot's own speed in samples per second.
func rate(r runs.Run, s runs.Slot) float64 {
	if s.Seconds == 0 {
		return 0
	}
	return float64(s.Chunks*r.Spec.Chunk) / s.Seconds
}

// churn kills and starts machines in turn, every eighth of a lease, as 15 s are to 120 s.
func churn(w *world) {
	names := []string{"a", "b", "c"}
	w.up(names...)
	id := w.submit(60)
	w.holding(id, "a")
	killed := 0
	tick := time.NewTicker(lease / 8)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < 25*time.Second; <-tick.C {
		if r, ok := w.Show(id); ok && r.Phase.Ended() {
			break
		}
		n := names[killed%len(names)]
		w.agents[n].Kill()
		killed++
		if !w.mutant {
			w.again(n)
		}
		if w.mutant && killed == len(names) {
			w.never(id)
			return
		}
	}
	r := w.ended(id)
	w.see("%d kills, %d leases lost, %d chunks trained again", killed, r.Totals.Expired, r.Totals.Requeued)
}
