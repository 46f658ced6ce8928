package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"tensorturn/broker/memory"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// fault is a kind of thing that goes wrong.
type fault int

// The faults.
const (
	faultCutUp   fault = iota // the hub does not hear a machine
	faultCutDown              // a machine does not hear the hub
	faultCut                  // both
	faultHub                  // the hub's process dies
	faultFreeze               // the hub's process stands still
	faultAgent                // an agent's process dies
	faultSleep                // a machine sleeps longer than its lease
	faultSlow                 // a machine is slow
	faultHang                 // a trainer hangs
	faultTask                 // a trainer fails
	faultStop                 // an agent is told to end
	faultDrain                // the operator drains a machine
	faultRevoke               // the operator revokes a machine
	faultJoin                 // a new machine joins
	faultDamage               // a stored delta is lost before its merge
	faultWipe                 // a machine loses its disk
	faultLog                  // appends fail, before or after they happened
	faultBlobs                // the blob store fails
	faultPoison               // a machine sends poisoned deltas
	faultLie                  // a machine offers a chunk that it has not trained
	faultPause                // the operator pauses a run
	faultCancel               // the operator cancels a run
	faultReslot               // an agent starts again with another number of slots
	faultNorm                 // a machine sends a delta that is far too large
	faultCount

	firstFaults = faultReslot // those that drawFaults draws first
)

// String names the fault.
func (f fault) String() string {
	return [faultCount]string{"cut up", "cut down", "cut", "hub", "freeze", "agent", "sleep", "slow", "hang", "task error", "stop", "drain",
		"revoke", "join", "damage", "wipe", "log", "blobs", "poison", "lie", "pause", "cancel", "reslot", "norm"}[f]
}

// Limits of what a world must survive: beyond them a run may rightly fail, or nobody is left to end it.
const (
	maxTaskErrors = 4
	maxRevoked    = 2
	maxJoined     = 3
)

// nemesis breaks something now and then while faults are on.
type nemesis struct {
	w    *world
	luck luck
}

func (n *nemesis) start() {
	if len(n.w.opt.Faults) > 0 {
		n.w.k.after(n.luck.wait(n.w.opt.Pace), n.strike)
	}
}

func (n *nemesis) strike() {
	if !n.w.faulty() {
		return
	}
	f := n.w.opt.Faults[n.luck.pick(len(n.w.opt.Faults))]
	n.w.say("fault", "%v", f)
	n.w.injected[f]++
	if f < faultStop && f != faultHub && f != faultFreeze {
		n.onMachine(f)
	} else {
		n.onPool(f)
	}
	n.w.k.after(n.luck.wait(n.w.opt.Pace), n.strike)
}

// lasts is how long a fault stays: never so short that it cannot be noticed.
func (n *nemesis) lasts(lo, hi float64) time.Duration {
	l := float64(n.w.opt.Timing.Lease)
	return n.luck.span(time.Duration(lo*l), time.Duration(hi*l))
}

func (n *nemesis) machine() *machineBox { return n.w.machines[n.luck.pick(len(n.w.machines))] }

func (n *nemesis) onMachine(f fault) {
	m, now := n.machine(), n.w.k.now
	m.say("%v", f)
	switch f {
	case faultCutUp:
		m.cutUp = now + n.lasts(0.2, 2)
	case faultCutDown:
		m.cutDown = now + n.lasts(0.2, 2)
	case faultCut:
		m.cutUp = now + n.lasts(0.2, 2)
		m.cutDown = m.cutUp
	case faultAgent:
		m.kill("killed")
		away := n.lasts(0.01, 1.5)
		if away < n.w.opt.Timing.Lease/2 { // a supervisor starts it again at once, before the hub has noticed
			away /= 100
		}
		n.w.k.after(away, m.start)
	case faultSleep:
		m.asleep = now + n.lasts(1.1, 2.5)
	case faultSlow:
		m.slow, m.slowUntil = n.luck.between(3, 15), now+n.lasts(1, 3)
	case faultHang:
		m.hang = 1
	case faultTask:
		n.w.injected[faultTask]-- // counted where it happens
		if n.w.injected[faultTask]+m.err < maxTaskErrors {
			m.err = 1
		}
	}
}

func (n *nemesis) onPool(f fault) {
	w := n.w
	switch f {
	case faultHub:
		w.hub.crash("killed")
	case faultFreeze:
		w.hub.frozen = w.k.now + n.lasts(0.1, 1.5)
	case faultStop, faultDrain, faultRevoke:
		n.leave(f)
	case faultJoin:
		if len(w.machines) < len(w.opt.Machines)+maxJoined {
			w.join(machineOptions{ID: domain.MachineID(fmt.Sprintf("j%d", w.injected[faultJoin])), Slots: n.luck.number(1, 2),
				Speed: w.opt.Machines[0].Speed * n.luck.between(0.5, 2), Clock: 1})
		}
	case faultDamage:
		n.damage()
	case faultWipe:
		m := n.machine()
		m.kill("its disk is gone")
		m.wipe()
		w.k.after(n.lasts(0.01, 0.5), m.start)
	case faultLog:
		w.store.logUntil = w.k.now + n.lasts(0.02, 0.4)
	case faultBlobs:
		w.store.blobsUntil = w.k.now + n.lasts(0.05, 0.5)
	case faultPoison:
		m := n.machine()
		for range n.luck.number(1, 4) {
			m.poison = append(m.poison, poisons[n.luck.pick(len(poisons))])
		}
	case faultReslot:
		m := n.machine()
		m.kill("killed, to have other slots")
		m.opt.Slots = 3 - m.opt.Slots
		w.k.after(n.lasts(0.01, 1.5), m.start)
	case faultNorm:
		m := n.machine()
		everybody := n.luck.chance(0.5)
		for _, o := range w.machines {
			if everybody || o == m {
				o.poison = append(o.poison, poisonNorm)
			}
		}
	case faultLie:
		n.machine().lies = 1
	case faultPause:
		id := string(w.opt.Runs[n.luck.pick(len(w.opt.Runs))].ID)
		w.operate(event.KindRun, id, run.Pause{Reason: "by the nemesis"}, nil)
		w.k.after(n.lasts(0.1, 1), func() { w.operate(event.KindRun, id, run.Resume{}, nil) })
	case faultCancel:
		if len(w.opt.Runs) > 1 && w.injected[faultCancel] == 1 {
			w.operate(event.KindRun, string(w.opt.Runs[0].ID), run.Cancel{Reason: "by the nemesis"}, nil)
		}
	}
}

// leave lets a machine go: by its own wish, drained or revoked by the operator.
func (n *nemesis) leave(f fault) {
	w, m := n.w, n.machine()
	id := string(m.opt.ID)
	switch f {
	case faultStop:
		if m.proc == nil {
			return
		}
		m.say("is told to stop")
		m.proc.give(stopRequested)
		n.w.k.after(n.lasts(0.5, 3), m.start)
	case faultDrain:
		w.operate(event.KindMachine, id, machine.Drain{Reason: "by the nemesis"}, nil)
		n.w.k.after(n.lasts(0.5, 3), m.start)
	case faultRevoke:
		if w.injected[faultRevoke] <= maxRevoked && m.enrolled && len(w.machines) > w.injected[faultRevoke] {
			w.operate(event.KindMachine, id, machine.Revoke{Reason: "by the nemesis"}, nil)
		}
	}
}

// damage loses an accepted delta that no merge has read yet. Half of the time its maker loses it too.
func (n *nemesis) damage() {
	w := n.w
	for _, id := range w.past.order {
		b := w.past.books[id]
		if w.hub.merges[id] || len(b.inputs) == 0 || b.merges == b.round {
			continue
		}
		keys := slices.SortedFunc(maps.Keys(b.inputs), compareContributions)
		k := keys[n.luck.pick(len(keys))]
		d := b.inputs[k].blob
		if w.kept[d] {
			continue
		}
		w.say("fault", "delta %s of %s is lost", d.Short(), k.slot)
		w.store.calm++
		if n.luck.chance(0.5) {
			must(w.blobs.Delete(context.Background(), d))
		} else if has, err := w.blobs.Has(context.Background(), []domain.Digest{d}); err == nil && has[0] {
			w.blobs.Corrupt(d, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
		}
		w.store.calm--
		if m := w.byID[k.slot.Machine()]; n.luck.chance(0.7) {
			m.say("has lost its disk")
			m.kill("its disk is gone")
			m.wipe()
			w.k.after(n.lasts(0.01, 0.5), m.start)
		}
		return
	}
}

// storeFaults decides what the log and the blobs do wrong.
type storeFaults struct {
	w          *world
	luck       luck
	calm       int // checkers are at work: nothing goes wrong
	logUntil   time.Duration
	blobsUntil time.Duration
	ambiguous  bool // an append was stored although it failed
}

func (s *storeFaults) log(op memory.Op) memory.Fault {
	if s.calm > 0 || s.logUntil <= s.w.k.now || !s.w.faulty() || s.luck.chance(0.4) {
		return memory.None
	}
	f := memory.FailBefore
	if op == memory.OpAppend {
		f = []memory.Fault{memory.FailBefore, memory.FailAfter, memory.FailConflict, memory.Full, memory.ReadOnly}[s.luck.pick(5)]
		if f == memory.FailAfter || f == memory.FailConflict {
			s.ambiguous = true
		}
	}
	s.w.say("store", "%s of the log fails: %d", op, f)
	return f
}

func (s *storeFaults) blobs(op memory.Op) memory.Fault {
	if s.calm > 0 || s.blobsUntil <= s.w.k.now || !s.w.faulty() || s.luck.chance(0.5) {
		return memory.None
	}
	s.w.say("store", "%s of a blob fails", op)
	return []memory.Fault{memory.FailBefore, memory.FailAfter}[s.luck.pick(2)]
}
