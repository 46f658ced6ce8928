package sim

import (
	"context"
	"fmt"
	"time"

	"tensorturn/broker/hub"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/event"
)

// gather is how long a hub that has been asked something waits for more before it decides.
const gather = 3 * time.Millisecond

// maxInbox is what may wait for a hub that stands still for one and a half lease times: more means that somebody floods it.
const maxInbox = 4096

// hubBox is the hub's process: it can be off, frozen or alive. The log and the blobs outlive it.
type hubBox struct {
	w      *world
	luck   luck
	snaps  luck
	core   *hub.Core // nil when the process is off
	clock  luck
	skew   time.Duration // of the host's clock, in this life: within a life the hub reads a monotonic one
	life   int           // counts starts and crashes: what was asked for in an earlier life does not happen
	starts int
	frozen time.Duration // until then the process stands still
	inbox  []letter
	due    bool // a step is on its way
	told   uint64
	heard  map[heardSync]bool // syncs answered in this life
	merges map[domain.RunID]bool

	frozenFold *frozen // the newest snapshot, nil before the first
}

// letter is an input and the way back.
type letter struct {
	in    hub.Input
	reply func([]byte)
	done  func(error)
}

type heardSync struct {
	machine domain.MachineID
	inc     domain.Incarnation
	counter uint64
}

func (h *hubBox) up() bool { return h.core != nil }

// start begins a hub process on the log.
func (h *hubBox) start() {
	if h.up() {
		return
	}
	w := h.w
	h.life++
	h.starts++
	h.inbox, h.due, h.told = nil, false, 0
	h.heard, h.merges = map[heardSync]bool{}, map[domain.RunID]bool{}
	cfg := hub.Config{Timing: w.opt.Timing, Process: fmt.Sprintf("p%d", h.starts), Replayed: h.committed}
	if w.plant != nil && w.plant.decide != nil {
		cfg.Decide = w.plant.decide()
	}
	h.beginFrozen(&cfg)
	h.jump()
	core := hub.New(cfg, w.log, w.reg)
	if err := core.Open(context.Background(), h.now()); err != nil {
		w.say("hub", "cannot start: %v", err)
		h.later(100*time.Millisecond, h.start)
		return
	}
	h.core = core
	w.say("hub", "starts for the %d. time", h.starts)
	if h.starts > 1 && w.past.leases() > 0 {
		w.mark(markHeldRestart)
	}
	w.check(true)
	h.later(0, h.tick)
}

// How often the host's clock has jumped while the hub was off, and by how much at most.
const (
	clockJumps = 0.3
	clockJump  = 2 * time.Hour
)

// jump sets the host's clock forward or back between two lives of the hub.
func (h *hubBox) jump() {
	if h.starts < 2 || !h.w.faulty() || !h.clock.chance(clockJumps) {
		return
	}
	h.skew = h.clock.span(0, 2*clockJump) - clockJump
	h.w.say("hub", "its clock is wrong by %v", h.skew)
	h.w.mark(markClockJump)
}

// now is the time on the hub's host.
func (h *hubBox) now() time.Time { return h.w.wall().Add(h.skew) }

// later does something in this life of the process only, and not while it is frozen.
func (h *hubBox) later(d time.Duration, do func()) {
	life := h.life
	var try func()
	try = func() {
		switch {
		case h.life != life:
		case h.frozen > h.w.k.now:
			h.w.k.at(h.frozen, try)
		default:
			do()
		}
	}
	h.w.k.after(d, try)
}

// crash ends the process: what it had in memory is gone.
func (h *hubBox) crash(why string) {
	if !h.up() {
		return
	}
	h.w.say("hub", "crashes: %s", why)
	if len(h.merges) > 0 {
		h.w.mark(markMergeInterrupted)
	}
	h.core = nil
	h.life++
	if h.w.plant != nil && h.w.plant.crash != nil {
		h.w.plant.crash(h.w)
	}
	h.later(h.luck.span(20*time.Millisecond, h.w.opt.Timing.Lease*3/2), h.start)
}

func (h *hubBox) tick() {
	h.put(letter{in: hub.Tick{}})
	h.later(min(h.w.opt.Timing.Sync, time.Second), h.tick)
}

// put takes an input to the next step.
func (h *hubBox) put(l letter) {
	if !h.up() {
		return
	}
	if h.inbox = append(h.inbox, l); len(h.inbox) > maxInbox {
		fail("%d inputs wait for the hub", len(h.inbox))
	}
	if !h.due {
		h.due = true
		h.later(h.luck.span(0, gather), h.step)
	}
}

// receive takes an agent's bytes from the network.
func (h *hubBox) receive(m domain.MachineID, data []byte, reply func([]byte)) {
	if !h.up() {
		return
	}
	r, err := wire.DecodeRequest(data)
	if err != nil {
		fail("the hub cannot read the request of %s: %v", m, err)
	}
	h.w.hears(m, r)
	h.put(letter{in: hub.Sync{Machine: m, Request: *r}, reply: reply})
}

// step lets Core decide what has come.
func (h *hubBox) step() {
	h.due = false
	n := min(len(h.inbox), hub.MaxInputs)
	batch := h.inbox[:n:n]
	h.inbox = append([]letter(nil), h.inbox[n:]...)
	in := make([]hub.Input, n)
	for i, l := range batch {
		in[i] = l.in
	}
	h.w.store.ambiguous = false
	outs := h.core.Step(context.Background(), h.now(), in)
	h.w.check(false)
	h.describe(n, outs)
	h.freeze()
	for _, o := range outs {
		if h.w.faulty() && h.luck.chance(h.w.opt.Between/float64(len(outs))) {
			h.crash("between a step and what it gave")
			return
		}
		h.deliver(batch, o)
		if !h.up() {
			return
		}
	}
	if len(h.inbox) > 0 {
		h.due = true
		h.later(0, h.step)
	}
}

// describe traces a step and notes appends that were found stored after all.
func (h *hubBox) describe(inputs int, outs []hub.Output) {
	seq, _ := h.core.Head()
	if err := h.core.ReadOnly(); err != nil {
		fail("the hub is read-only: %v", err)
	}
	if err := h.core.Stale(); err != nil {
		h.w.say("hub", "step of %d failed: %v", inputs, err)
		return
	}
	if h.w.store.ambiguous && seq > h.w.past.known-uint64(h.w.past.fresh) {
		h.w.mark(markAmbiguous)
	}
	h.w.say("hub", "step of %d gives %d, log at %d", inputs, len(outs), seq)
}

// deliver does what Core asks for.
func (h *hubBox) deliver(batch []letter, o hub.Output) {
	w := h.w
	switch o := o.(type) {
	case hub.Answer:
		h.answer(batch[o.Index], o)
	case hub.Committed:
		h.committed(o.Events)
	case hub.Wake:
		w.byID[o.Machine].wake()
	case hub.CutOff:
		w.byID[o.Machine].cutOff()
	case hub.InspectJob:
		h.later(h.luck.span(time.Millisecond, w.opt.Timing.Sync), func() {
			found := hub.Inspect(context.Background(), w.blobs, o)
			w.say("hub", "inspected %s number %d: %q err %v", o.Slot, o.Number, found.Found.Why, found.Err)
			h.later(h.luck.span(0, w.opt.Timing.Sync), func() { h.put(letter{in: found}) })
		})
	case hub.MergeJob:
		h.merge(o)
	case hub.VoteJob:
		h.later(h.luck.span(time.Millisecond, 4*w.opt.Timing.Sync), func() {
			done := hub.Vote(context.Background(), w.blobs, o)
			w.say("hub", "counted the vote of %d members of %s: %d faults, err %v", len(o.Ballot.Voters), o.Run, len(done.Faults), done.Err)
			h.later(h.luck.span(0, w.opt.Timing.Sync), func() { h.put(letter{in: done}) })
		})
	case hub.Beat, hub.Admit:
	default:
		fail("the hub gives %T, which nobody knows", o)
	}
}

// merge performs a merge: it reads and writes at one moment, and its result arrives at a later one.
func (h *hubBox) merge(j hub.MergeJob) {
	w := h.w
	h.later(h.luck.span(time.Millisecond, 4*w.opt.Timing.Sync), func() {
		h.merges[j.Run] = true
		asked := j
		if w.plant != nil && w.plant.merge != nil {
			asked.Inputs = w.plant.merge(j.Inputs)
		}
		done := hub.Merge(context.Background(), w.blobs, asked)
		done.Job = j
		w.say("hub", "merged %s round %d of %d: %s unreadable %d err %v", j.Run, j.Round, len(j.Inputs), done.Base.Short(), len(done.Unreadable), done.Err)
		h.later(h.luck.span(0, 2*w.opt.Timing.Sync), func() {
			delete(h.merges, j.Run)
			h.put(letter{in: done})
		})
	})
}

// committed checks that followers are given every record once and in order.
func (h *hubBox) committed(es []event.Envelope) {
	for _, e := range es {
		if e.Seq != h.told+1 {
			fail("followers of the hub are given record %d after %d", e.Seq, h.told)
		}
		h.told = e.Seq
	}
}

func (h *hubBox) answer(l letter, a hub.Answer) {
	if l.done != nil {
		l.done(a.Err)
	}
	if l.reply == nil {
		return
	}
	s := l.in.(hub.Sync)
	key := heardSync{s.Machine, s.Request.Incarnation, s.Request.Counter}
	if h.heard[key] && a.Reply.Error == nil {
		h.w.mark(markDuplicateSync)
	}
	h.heard[key] = true
	b, err := wire.EncodeReply(a.Reply)
	if err != nil {
		fail("the hub's reply to %s cannot be sent: %v", s.Machine, err)
	}
	l.reply(b)
}
