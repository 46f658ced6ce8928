package broker

import (
	"fmt"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// maxBatchBytes bounds one append. JetStream stages a batch on disk and in memory before it commits, and its queue for a
// stream refuses more than 128 MiB.
const maxBatchBytes = 32 << 20

// Group is what one command decided. It is stored as a whole or not at all.
type Group struct {
	Command domain.CommandID
	Actor   event.Actor
	Corr    string // ties the events of one larger story together, may be empty
	Events  []event.Event
}

// check refuses a group that could not be stored as one.
func (g Group) check() error {
	op := "commit " + domain.Clip(string(g.Command), 80)
	switch {
	case !domain.ValidID(string(g.Command)):
		return domain.Invalid(op, "the command id is no id", "")
	case len(g.Events) == 0:
		return domain.Invalid(op, "the group has no events", "")
	case len(g.Events) > domain.MaxBatchEvents:
		return domain.Invalid(op, fmt.Sprintf("%d events, more than %d in one batch", len(g.Events), domain.MaxBatchEvents), "")
	}
	return nil
}

// batch is a run of whole groups that one append stores.
type batch struct {
	recs  []Record
	envs  []event.Envelope
	bytes int
}

// fits reports whether what a group encodes to has room in the batch.
func (b *batch) fits(g batch) bool {
	return len(b.recs)+len(g.recs) <= domain.MaxBatchEvents && b.bytes+g.bytes <= maxBatchBytes
}

func (b *batch) add(g batch) {
	b.recs, b.envs, b.bytes = append(b.recs, g.recs...), append(b.envs, g.envs...), b.bytes+g.bytes
}
