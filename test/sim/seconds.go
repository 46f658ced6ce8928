package sim

import (
	"context"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/projections/goodput"
)

// seconds reads where the time of every fused run went: the kinds sum to the time, and what they are weighed with is what the ledger
// has counted, whatever has happened.
func (w *world) seconds() {
	for _, id := range w.past.order {
		s := w.past.runs[id]
		if s.Ensemble != nil {
			continue
		}
		r := w.goodput(id)
		if err := r.Audit(); err != nil {
			fail("the seconds of run %s: %v", id, err)
		}
		if !r.Ended || r.Total.Samples != s.Ledger().Counted {
			fail("the seconds of run %s are weighed with %d samples, the ledger has %d", id, r.Total.Samples, s.Ledger().Counted)
		}
	}
}

func (w *world) goodput(id domain.RunID) goodput.Report {
	l := goodput.New(id)
	for rec, err := range w.log.Read(context.Background(), 1) {
		must(err)
		e, err := event.Decode(w.reg, rec.Seq, rec.Data)
		must(err)
		l.Apply(e)
	}
	r, err := l.Report()
	must(err)
	return r
}
