package sim

import (
	"bytes"
	"context"

	"tensorturn/broker/gateway"
	"tensorturn/broker/hub"
	"tensorturn/domain/event"
	"tensorturn/domain/freeze"
)

// streamFrozen is the stream of luck for snapshots. It lies far behind those of the machines.
const streamFrozen uint64 = 1 << 40

// What snapshots come to in a world: many more than a real hub makes.
const (
	freezeShare = 0.02 // of the steps that are followed by a snapshot
	frozenStart = 0.6  // of the hub's starts that begin from the newest one
	maxThawed   = 1 << 28
)

// frozen is a snapshot of the hub's fold.
type frozen struct {
	at hub.Position
	b  []byte
}

// freeze takes a snapshot now and then. It outlives the process, as a file would.
func (h *hubBox) freeze() {
	if !h.snaps.chance(freezeShare) {
		return
	}
	at, b, ok, err := h.core.Freeze()
	must(err)
	if !ok {
		return
	}
	if h.w.bias.what == wrongFrozen && h.frozenFold != nil {
		b = h.frozenFold.b // of an earlier record
	}
	h.frozenFold = &frozen{at, b}
	h.w.say("hub", "snapshot at %d, %d bytes", at.Seq, len(b))
}

// beginFrozen says from what the process that starts now begins, and how far its followers have been told.
func (h *hubBox) beginFrozen(cfg *hub.Config) {
	if h.frozenFold == nil || !h.snaps.chance(frozenStart) {
		return
	}
	h.told = h.frozenFold.at.Seq
	cfg.Base = func(context.Context) *hub.Base { // later, of the newest: a rebuild
		b, err := hub.Thaw(h.frozenFold.at, h.frozenFold.b)
		must(err)
		return b
	}
	h.w.say("hub", "begins from the snapshot at %d", h.told)
	h.w.mark(markFrozenStart)
}

// frozenViews holds every view against itself: a snapshot at any place and the tail must give what the whole log gives.
func (w *world) frozenViews() {
	var es []event.Envelope
	for rec, err := range w.log.Read(context.Background(), 1) {
		must(err)
		e, err := event.Decode(w.reg, rec.Seq, rec.Data)
		must(err)
		es = append(es, e)
	}
	whole := freezeViews(viewsOf(es))
	luck := newLuck(w.opt.Seed, streamFrozen+1)
	for range 3 {
		at := luck.number(0, len(es))
		v := gateway.NewViews()
		for i, p := range v.Engine.Parts() {
			set, err := freeze.Thaw(p, freezeViews(viewsOf(es[:at]))[i], maxThawed)
			must(err)
			set()
		}
		v.Engine.Resume(uint64(at))
		must(v.Engine.Apply(es[at:]...))
		for i, b := range freezeViews(v) {
			if !bytes.Equal(b, whole[i]) {
				fail("%s from a snapshot at %d is not that of the whole log", v.Engine.Parts()[i].Name, at)
			}
		}
	}
}

func viewsOf(es []event.Envelope) gateway.Views {
	v := gateway.NewViews()
	must(v.Engine.Apply(es...))
	return v
}

func freezeViews(v gateway.Views) [][]byte {
	var out [][]byte
	for _, p := range v.Engine.Parts() {
		b, err := freeze.Freeze(p)
		must(err)
		out = append(out, b)
	}
	return out
}
