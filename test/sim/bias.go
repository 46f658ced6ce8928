package sim

import (
	"slices"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// wrong is a defect that the simulator builds in on purpose, outside the product, to show that its checkers see it.
type wrong string

const (
	wrongNothing wrong = ""
	wrongStale   wrong = "stale"   // offers of ended leases are re-labelled with the slot's present epoch
	wrongForget  wrong = "forget"  // one event is left out of the fold that the hub is compared with
	wrongDouble  wrong = "double"  // a contribution counts a chunk that another one has counted
	wrongSeed    wrong = "seed"    // one machine trains a chunk on other samples than it says
	wrongRewrite wrong = "rewrite" // a stored record changes
	wrongFrozen  wrong = "frozen"  // a snapshot says that it was made at a later record than it was
	wrongLitter  wrong = "litter"  // garbage is not collected
	wrongStuck   wrong = "stuck"   // the network never heals
	wrongLeak    wrong = "leak"    // a secret is printed in a form that nobody can know
)

// bias is the defect at work.
type bias struct {
	what  wrong
	old   map[domain.SlotID][]wire.SlotReport // reports with an offer
	seen  int
	run   string // of the first accepted contribution
	first domain.ChunkID
}

// sent remembers what an agent offers, whether it arrives or not.
func (b *bias) sent(m domain.MachineID, r *wire.SyncRequest) {
	if b.what != wrongStale {
		return
	}
	if b.old == nil {
		b.old = map[domain.SlotID][]wire.SlotReport{}
	}
	for _, s := range r.Slots {
		if slot := domain.Slot(m, s.Index); s.Offer != nil {
			b.old[slot] = append(b.old[slot], s)
		}
	}
}

// request falsifies what the hub hears: once a slot has claimed again what it offered under an earlier lease, the old
// offer is said to be of the present one.
func (b *bias) request(w *world, m domain.MachineID, r *wire.SyncRequest) {
	for i := range r.Slots {
		s := &r.Slots[i]
		slot := domain.Slot(m, s.Index)
		state := w.past.runs[s.Run]
		if state == nil || state.Leases[slot] == nil || state.Leases[slot].Epoch != s.Epoch {
			continue
		}
		claimed := state.Leases[slot].Claimed
		for _, old := range b.old[slot] {
			if old.Epoch == s.Epoch || old.Run != s.Run || !all(old.Offer.Chunks, claimed) {
				continue
			}
			s.Trained, s.Offer, s.Number = slices.Clone(old.Trained), old.Offer, state.Number(slot)
			w.say("bias", "%s offers what it made under epoch %d under epoch %d", slot, old.Epoch, s.Epoch)
			break
		}
	}
}

// all reports whether every chunk of cs is in list.
func all(cs, list []domain.ChunkID) bool {
	return !slices.ContainsFunc(cs, func(c domain.ChunkID) bool { return !slices.Contains(list, c) })
}

// event falsifies what the checkers read; an event without data is left out.
func (b *bias) event(e event.Envelope) event.Envelope {
	switch d := e.Data.(type) {
	case *run.ChunkTrained:
		if b.what != wrongForget {
			break
		}
		if b.seen++; b.seen == 5 {
			e.Data = nil
		}
	case *run.ContributionAccepted:
		if b.what != wrongDouble || b.run != "" && b.run != e.Agg {
			break
		}
		if b.run == "" {
			b.run, b.first = e.Agg, d.Chunks[0]
			break
		}
		wrong := *d
		wrong.Chunks = append(slices.Clone(d.Chunks), b.first)
		e.Data = &wrong
	}
	return e
}

// seed is what a machine trains chunk c with.
func (b *bias) seed(seed uint64, c domain.ChunkID) uint64 {
	if b.what == wrongSeed && c == 2 {
		return seed + 1
	}
	return seed
}
