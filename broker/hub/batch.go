package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"tensorturn/broker"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

// ownPrefix begins the command ids that the hub makes itself; a Do may not use it.
const ownPrefix = "hub-"

// hubActor causes what nobody asked for: planning and time.
const hubActor event.Actor = "hub"

// batch is one Step under way: what has been decided so far, in order, with the sequences it will have. Each decision
// is applied to the fold at once, so that the next one sees it; if the append fails the fold is rebuilt from the log.
type batch struct {
	c      *Core
	now    time.Time
	stamp  time.Time // now as records carry it: UTC, whole microseconds
	seq    uint64    // of the newest decided event
	groups []broker.Group
	events []event.Envelope // as decided, without prev

	// The group under way.
	base  domain.CommandID // id of its first part
	part  int              // parts begun
	open  bool             // the last element of groups is its present part
	actor event.Actor
	corr  string

	answers []answer
	synced  map[domain.MachineID]bool
	wakes   []domain.MachineID
	beats   []Beat
}

// answer is what one input will be told once the batch is durable.
type answer struct {
	err    error
	sync   *Sync // set when the reply is the desired state
	isSync bool  // the refusal must travel as a reply
	done   bool  // the input needs an answer at all
}

func newBatch(c *Core, now time.Time, inputs int) *batch {
	return &batch{
		c: c, now: now, stamp: now.UTC().Truncate(time.Microsecond), seq: c.head(),
		answers: make([]answer, inputs), synced: map[domain.MachineID]bool{},
	}
}

// begin starts a new group: everything decided from here on has one cause.
func (b *batch) begin(id domain.CommandID, actor event.Actor, corr string) {
	b.base, b.part, b.open, b.actor, b.corr = id, 0, false, actor, corr
}

// beginOwn starts a group whose id is derived from parts that never come again: the hub's process, how often it had to
// rebuild its fold, and the input.
func (b *batch) beginOwn(actor event.Actor, corr string, parts ...string) {
	h := sha256.New()
	for _, p := range append([]string{b.c.cfg.Process, strconv.Itoa(b.c.rebuilt)}, parts...) {
		fmt.Fprintf(h, "%d:%s,", len(p), p)
	}
	b.begin(domain.CommandID(ownPrefix+hex.EncodeToString(h.Sum(nil)[:16])), actor, corr)
}

// emitAll decides the facts of one command. They stay in one group, which is stored whole or not at all; a group that
// has no room for them ends, and its cause goes on in a next part.
func (b *batch) emitAll(kind event.Kind, id string, ds []event.Data) {
	if b.open && len(b.groups[len(b.groups)-1].Events)+len(ds) > domain.MaxBatchEvents {
		b.open = false
	}
	for _, d := range ds {
		b.emit(kind, id, d)
	}
}

// group gives the part of the group that is under way.
func (b *batch) group() *broker.Group {
	if b.open {
		return &b.groups[len(b.groups)-1]
	}
	domain.Assert(b.base != "", "a decision has a cause")
	id := b.base
	if b.part > 0 {
		id = domain.CommandID(string(b.base) + "-" + strconv.Itoa(b.part))
	}
	b.part++
	b.open = true
	b.groups = append(b.groups, broker.Group{Command: id, Actor: b.actor, Corr: b.corr})
	return &b.groups[len(b.groups)-1]
}

// emit decides one event: it gets the next sequence and the fold obeys it.
func (b *batch) emit(kind event.Kind, id string, data event.Data) {
	g := b.group()
	g.Events = append(g.Events, event.Event{Kind: kind, ID: id, Data: data})
	b.seq++
	e := event.Envelope{
		Seq: b.seq, ID: fmt.Sprintf("%s.%d", g.Command, len(g.Events)-1), Kind: kind, Agg: id, Time: b.stamp,
		Actor: g.Actor, Cause: g.Command, Corr: g.Corr, Data: data, Version: 1,
	}
	b.events = append(b.events, e)
	if d, ok := data.(*run.ContributionAccepted); ok {
		for _, o := range b.c.fold.runs[domain.RunID(id)].Others(d.Slot, d.Chunks) {
			b.wake(o.Machine()) // it has lost chunks that it may be training
		}
	}
	b.c.fold.apply(e)
	if m := concerns(e); m != "" {
		b.wake(m)
	}
}

// run decides a command of a run and applies what it yields.
func (b *batch) run(id domain.RunID, cmd run.Command) ([]event.Data, error) {
	ds, err := b.c.cfg.Decide(b.c.fold.runs[id], cmd)
	if err != nil {
		return nil, err
	}
	b.emitAll(event.KindRun, string(id), ds)
	return ds, nil
}

// machine decides a command of a machine and applies what it yields.
func (b *batch) machine(id domain.MachineID, cmd machine.Command) error {
	ds, err := machine.Decide(b.c.fold.machines[id], cmd)
	if err != nil {
		return err
	}
	b.emitMachine(id, ds)
	return nil
}

// emitMachine applies facts of a machine and what follows from them: leases of a machine that may hold none end.
func (b *batch) emitMachine(id domain.MachineID, ds []event.Data) {
	b.emitAll(event.KindMachine, string(id), ds)
	if b.c.fold.machines[id] == nil || len(ds) == 0 {
		return
	}
	b.endLeases(id)
}

func decidePool(s *pool.State, cmd any) ([]event.Data, error) {
	c, ok := cmd.(pool.Command)
	if !ok {
		return nil, domain.Invalid("decide", fmt.Sprintf("%T is not a command of the pool", cmd), "")
	}
	return pool.Decide(s, c)
}

// wake remembers to hint to a machine, once, unless its own sync is answered in this batch.
func (b *batch) wake(m domain.MachineID) {
	if !b.synced[m] && !slices.Contains(b.wakes, m) {
		b.wakes = append(b.wakes, m)
	}
}

// refuse answers an input with an error.
func (b *batch) refuse(i int, err error) { b.answers[i] = answer{err: err, done: true} }

// concerns names the machine whose desired state an event changes, empty when it changes none's.
func concerns(e event.Envelope) domain.MachineID {
	if e.Kind == event.KindMachine {
		return domain.MachineID(e.Agg)
	}
	switch d := e.Data.(type) {
	case *run.LeaseGranted:
		return d.Slot.Machine()
	case *run.LeaseReleased:
		return d.Slot.Machine()
	case *run.LeaseExpired:
		return d.Slot.Machine()
	case *run.TaskFailed:
		return d.Slot.Machine()
	case *run.ChunksClaimed:
		return d.Slot.Machine()
	case *run.ChunksCopied:
		return d.Slot.Machine()
	case *run.DeltaAdopted:
		return d.Slot.Machine()
	case *run.ContributionRequested:
		return d.Slot.Machine()
	case *run.ContributionAccepted:
		return d.Slot.Machine()
	case *run.ContributionRefused:
		return d.Slot.Machine()
	case *run.ContributionCut:
		return d.Slot.Machine()
	}
	return ""
}

// errorReply is what a sync that cannot be served is told.
func errorReply(t domain.Timing, now time.Time, err error) *wire.SyncReply {
	return &wire.SyncReply{
		Interval: t.Sync.Seconds(), Lease: t.Lease.Seconds(), Time: now.UnixMilli(), Error: wire.ErrorOf(err),
	}
}
