package main

import (
	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/projections/replay"
	"tensorturn/projections/runs"
)

// ended waits for the run's end and demands what every run that ended well must show: every sample counted once, the log
// alone gives the same model with each merge recomputed bit for bit, and nothing that was told to the outside is missing.
func (w *world) ended(id domain.RunID) runs.Run {
	r := w.AwaitEnd(id)
	w.exact(r)
	return r
}

func (w *world) exact(r runs.Run) {
	if r.Phase != run.PhaseCompleted {
		w.Fatalf("the run is %s: %s", r.Phase, r.Reason)
	}
	if r.Ledger.Expected == 0 || r.Ledger.Counted != r.Ledger.Expected {
		w.Fatalf("%d of %d samples counted", r.Ledger.Counted, r.Ledger.Expected)
	}
	var v replay.Report
	w.JSON(&v, "run", "replay", string(r.ID), "--verify")
	if v.Verdict != "bit-exact" || v.Recomputed != v.Rounds || v.Rounds != r.Rounds.Merged || v.Counted != v.Expected || v.Model != r.Model {
		w.Fatalf("replay says %s, %d of %d merges recomputed, model %s", v.Verdict, v.Recomputed, v.Rounds, v.Model.Short())
	}
	w.once(r.ID)
	w.intact()
}

// once adds up the ledger from the accepted contributions: every chunk counts once.
func (w *world) once(id domain.RunID) {
	by := map[domain.ChunkID]domain.SlotID{}
	for _, e := range w.Events() {
		if e.Agg != string(id) {
			continue
		}
		switch d := e.Data.(type) {
		case *run.ContributionAccepted:
			for _, c := range d.Chunks {
				if other, ok := by[c]; ok {
					w.Fatalf("record %d counts chunk %d of %s, which %s has contributed", e.Seq, c, d.Slot, other)
				}
				by[c] = d.Slot
			}
		case *run.ContributionRevoked:
			for _, c := range d.Returned {
				delete(by, c)
			}
		}
	}
}

// intact demands that everything the witness was told is in the log as it was told.
func (w *world) intact() {
	if w.witness == nil {
		return
	}
	heard := w.witness.notes() // before the log is read: it goes on
	if lost := missing(heard, w.Records()); len(lost) > 0 {
		w.Fatalf("%d of %d events that were told to the outside are lost, the first is %s", len(lost), len(heard), lost[0])
	}
}

// unharmed demands that the fault cost nobody a lease.
func (w *world) unharmed(r runs.Run) {
	if r.Totals.Expired == 0 {
		return
	}
	why := ""
	for _, e := range w.Events() {
		if d, ok := e.Data.(*run.LeaseExpired); ok && e.Agg == string(r.ID) {
			why += "; " + d.Line()
		}
	}
	w.Errorf("%d leases expired%s", r.Totals.Expired, why)
}
