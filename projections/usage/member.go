package usage

import (
	"maps"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// bytesPerParam is what a stored weight takes: members are kept as fp32.
const bytesPerParam = 4

// member is what is counted of one member of an ensemble, by who trained it.
type member struct {
	samples int64
	by      map[domain.MachineID]int64 // samples
}

func (w *work) member(number int) *member {
	if w.members[number] == nil {
		w.members[number] = &member{by: map[domain.MachineID]int64{}}
	}
	return w.members[number]
}

// seen gives the samples that a stretch of the member's training adds.
func (m *member) seen(by domain.MachineID, samples int64) int64 {
	more := samples - m.samples
	m.samples = samples
	m.by[by] += more
	return more
}

// applyMember counts facts of an ensemble. Samples are the ledger's; steps are told at the end and shared by samples; what
// travels are the checkpoints and the weights.
func (w *work) applyMember(e event.Envelope, count func(domain.MachineID, Counts)) {
	switch d := e.Data.(type) {
	case *run.MemberCheckpointed:
		count(d.Slot.Machine(), Counts{Samples: w.member(d.Member).seen(d.Slot.Machine(), d.Samples), BytesUp: d.Bytes})
	case *run.MemberTrained:
		m := w.member(d.Member)
		count(d.Slot.Machine(), Counts{Samples: m.seen(d.Slot.Machine(), d.Samples), BytesUp: bytesPerParam * d.Params})
		left := d.Steps
		for _, id := range slices.Sorted(maps.Keys(m.by)) {
			steps := int64(0)
			if m.samples > 0 {
				steps = int64(float64(d.Steps) * (float64(m.by[id]) / float64(m.samples)))
			}
			steps = min(steps, left)
			left -= steps
			count(id, Counts{Steps: steps})
		}
		count(d.Slot.Machine(), Counts{Steps: left}) // what rounding has left
	case *run.MemberDropped:
		m := w.member(d.Member)
		for id, samples := range m.by { // each is counted for itself: order does not matter
			count(id, Counts{Samples: -samples})
		}
		delete(w.members, d.Member)
	}
}
