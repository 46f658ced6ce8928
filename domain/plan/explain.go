package plan

import (
	"fmt"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Role is what a slot is to a run.
type Role string

// The roles.
const (
	Works Role = "works" // holds a lease of the run
	Ready Role = "ready" // takes part, and has nothing to do now
	Waits Role = "waits" // takes part once another run has let it go
	Out   Role = "out"   // takes no part as things are
)

// Place says what a slot is to a run, and why.
type Place struct {
	Slot   domain.SlotID `json:"slot"`
	Role   Role          `json:"role" enum:"works,ready,waits,out"`
	Reason string        `json:"reason"`
}

// maxIdleRuns bounds how many runs the reason of an idle slot names.
const maxIdleRuns = 4

// Places says for every slot of the snapshot what it is to a run, by the rules that Next plans by; nil when there is no such run.
func Places(s Snapshot, id domain.RunID) []Place {
	var out []Place
	s.each(true, func(b *board, kept []domain.RunID) {
		if b.r.ID == id {
			out = b.places(&s, kept)
		}
	})
	return out
}

// Idle says for every slot of a machine that holds no lease why it has no work.
func Idle(s Snapshot, m domain.MachineID) []Place {
	held := s.holders()
	reasons := make([]idling, len(s.Slots))
	s.each(true, func(b *board, kept []domain.RunID) {
		for i := range b.workers {
			w := &b.workers[i]
			if w.index < 0 || w.ID.Machine() != m || held[w.ID] != "" {
				continue
			}
			r := &reasons[w.index]
			if r.runs++; r.runs <= maxIdleRuns {
				r.said = append(r.said, fmt.Sprintf("%s: %s", b.r.ID, b.place(w, "", kept[w.index]).Reason))
			}
		}
	})
	var out []Place
	for i := range s.Slots {
		sl := &s.Slots[i]
		if sl.ID.Machine() != m || held[sl.ID] != "" {
			continue
		}
		p := Place{Slot: sl.ID, Role: Out, Reason: sl.unusable()}
		if p.Reason == "" {
			p.Role, p.Reason = Ready, reasons[i].String()
		}
		out = append(out, p)
	}
	return out
}

// idling collects why the live runs have no work for a slot.
type idling struct {
	runs int
	said []string // of the first maxIdleRuns of them
}

// String says it for people.
func (r *idling) String() string {
	if r.runs == 0 {
		return "no run has work: tensorturn run submit"
	}
	said := strings.Join(r.said, "; ")
	switch more := r.runs - len(r.said); more {
	case 0:
		return said
	case 1:
		return said + "; and 1 more run"
	default:
		return fmt.Sprintf("%s; and %d more runs", said, more)
	}
}

// holders gives the run whose lease each slot holds.
func (s *Snapshot) holders() map[domain.SlotID]domain.RunID {
	held := map[domain.SlotID]domain.RunID{}
	for _, r := range s.Runs {
		for slot := range r.Leases { // each slot comes once: a slot holds one lease
			held[slot] = r.ID
		}
	}
	return held
}

func (b *board) places(s *Snapshot, kept []domain.RunID) []Place {
	held := s.holders()
	out := make([]Place, len(s.Slots))
	for i := range b.workers {
		if w := &b.workers[i]; w.index >= 0 {
			out[w.index] = b.place(w, held[w.ID], kept[w.index])
		}
	}
	return out
}

// place judges one slot: what excludes it for good comes before what passes.
func (b *board) place(w *worker, holder, kept domain.RunID) Place {
	p, unfit := Place{Slot: w.ID, Role: Out}, b.unfit(w)
	switch {
	case w.mine:
		p.Role, p.Reason = Works, b.doing(w)
	case unfit != "":
		p.Reason = unfit
	case !w.Usable:
		p.Reason = w.unusable()
	case holder != "":
		p.Role, p.Reason = Waits, "it works for run "+string(holder)
	case kept != "":
		p.Role, p.Reason = Waits, fmt.Sprintf("it is kept for run %s, which is served first", kept)
	case b.benched(w):
		p.Reason = fmt.Sprintf("the run's program failed on it %d times in a row; slots that have failed less come first", b.r.TaskFails[w.ID])
	case !w.free && b.r.Ensemble == nil && len(b.r.Leases) >= run.MaxLeases:
		p.Reason = fmt.Sprintf("the run has %d leases, which is the limit", run.MaxLeases)
	default:
		p.Role, p.Reason = Ready, b.waiting()
	}
	return p
}

// unusable says why a slot gets no work of any run, empty when it may.
func (s *Slot) unusable() string {
	switch {
	case s.Usable:
		return ""
	case s.Quarantined:
		return "its machine is quarantined: tensorturn machine resume"
	case s.Paused != "":
		return "it is paused: " + s.Paused
	case s.Draining:
		return "its machine drains"
	case s.Away != "":
		return s.Away
	case s.Suspect:
		return "its machine is silent"
	}
	return "its machine has not been heard since the hub started"
}

// doing says what a slot does under its lease.
func (b *board) doing(w *worker) string {
	l := b.r.Leases[w.ID]
	switch l.Unit {
	case run.UnitInit:
		return "it makes the first weights, and tries a step"
	case run.UnitEvaluate:
		return fmt.Sprintf("it measures the model of round %d", l.Round)
	case run.UnitMember:
		return fmt.Sprintf("it trains member %d", l.Member)
	}
	if w.asked {
		return fmt.Sprintf("round %d: it contributes %s", l.Round, count(w.trained))
	}
	return fmt.Sprintf("round %d: %d trained, %d claimed, %d queued", l.Round, w.trained, len(w.claimed), len(w.shard))
}

// waiting says why a run has no work for a slot that it could use.
func (b *board) waiting() string {
	r := b.r
	switch {
	case r.Paused != "":
		return "the run is paused: " + r.Paused
	case r.Phase == run.PhaseVoting:
		return "the run waits for its vote"
	case r.Phase == run.PhaseEvaluating:
		return "the run waits for the measurement of its model"
	case r.Ensemble != nil:
		return "no member waits that it would be done with sooner than another slot"
	case r.Phase == run.PhaseSubmitted:
		if l := r.LeaseFor(run.UnitInit); l != nil {
			return fmt.Sprintf("%s makes the run's first weights, and tries a step", l.Slot)
		}
		return "it may make the run's first weights"
	case r.Open == nil:
		return "the next round is about to open"
	case r.Open.Closed:
		return fmt.Sprintf("round %d is being merged", r.Open.Number)
	}
	return fmt.Sprintf("round %d has no chunk left that it would be done with sooner than its holder", r.Open.Number)
}
