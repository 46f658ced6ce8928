package sim

import (
	"context"
	"fmt"
	"time"

	"tensorturn/broker/hub"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
)

// streamJanitor is the stream of luck of what happens beside the hub. It lies far behind those of the machines.
const streamJanitor uint64 = 1 << 41

// streamClock is that of the jumps of the hub's clock.
const streamClock uint64 = 1 << 42

// orphanGrace is how many lease times an object that nobody refers to may stay. A real hub gives an hour.
const orphanGrace = 6

// janitor collects garbage as the hub's service does, and now and then starts a second hub on the same log.
type janitor struct {
	w    *world
	luck luck
	born int // second hubs
}

func (j *janitor) start() {
	if len(j.w.opt.Faults) > 0 {
		j.again()
	}
}

func (j *janitor) again() {
	j.w.k.after(j.luck.span(j.w.opt.Timing.Lease, 6*j.w.opt.Timing.Lease), func() {
		j.collect()
		if j.luck.chance(0.4) {
			j.usurp()
		}
		j.again()
	})
}

// collect removes orphans that are older than the grace. What is still needed must survive it: replay, merges and agents
// will ask for it.
func (j *janitor) collect() {
	h := j.w.hub
	if !h.up() || h.frozen > j.w.k.now || h.core.Stale() != nil || len(h.merges) > 0 {
		return
	}
	if j.w.bias.what == wrongLitter {
		return
	}
	removed, err := hub.Collect(context.Background(), j.w.blobs, j.w.wall().Add(-orphanGrace*j.w.opt.Timing.Lease), h.core)
	j.w.say("hub", "collects %d objects: %v", removed, err)
	if removed > 0 {
		j.w.mark(markCollected)
	}
}

// usurp starts a second hub on the log. By the time it wants to write, the first one has written: it must be refused, and
// never write again.
func (j *janitor) usurp() {
	w := j.w
	w.store.calm++
	defer func() { w.store.calm-- }()
	j.born++
	second := hub.New(hub.Config{Timing: w.opt.Timing, Process: fmt.Sprintf("u%d", j.born)}, w.log, w.reg)
	must(second.Open(context.Background(), w.wall()))
	from, _ := second.Head()
	w.k.after(w.opt.Timing.Lease/2, func() { j.write(second, from) })
}

func (j *janitor) write(second *hub.Core, from uint64) {
	w := j.w
	w.store.calm++
	defer func() { w.store.calm-- }()
	last, err := w.log.Last(context.Background())
	must(err)
	if last == from || len(second.Machines()) == 0 {
		return // nobody has written: it would be the only hub
	}
	id := string(second.Machines()[0])
	outs := second.Step(context.Background(), w.wall().Add(time.Second), []hub.Input{hub.Do{Command: domain.CommandID(fmt.Sprintf("u-%d", j.born)),
		Actor: "usurper", Targets: []hub.Target{{Kind: event.KindMachine, ID: id, Command: machine.Revoke{Reason: "by a second hub"}}}}})
	if now, err := w.log.Last(context.Background()); err != nil || now != last {
		fail("a second hub has written: the log ended at %d and ends at %d, %v", last, now, err)
	}
	refused := false
	for _, o := range outs {
		if a, ok := o.(hub.Answer); ok {
			refused = a.Err != nil
		}
	}
	if !refused && second.ReadOnly() == nil {
		return // there was nothing to decide: the machine was revoked already
	}
	w.say("second", "is refused: %v", second.ReadOnly())
	w.mark(markSecondHub)
}
