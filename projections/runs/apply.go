package runs

import (
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// apply folds one event of a known run. Events that change nothing here are left out on purpose.
func (v *View) apply(r *Run, e event.Envelope) {
	switch d := e.Data.(type) {
	case *run.Initialised:
		r.Model, r.Params, r.Phase = d.Base, d.Params, run.PhaseTraining
	case *run.Paused:
		r.Paused = d.Reason
	case *run.Resumed:
		r.Paused = ""
	case *run.Cancelled:
		end(r, e, run.PhaseCancelled, d.Reason)
	case *run.Failed:
		end(r, e, run.PhaseFailed, d.Reason)
	case *run.Completed:
		end(r, e, run.PhaseCompleted, "")
		r.Model, r.Evaluated = d.Model, d.Evaluated
	case *run.LeaseGranted:
		v.slot(r, d.Slot).Lease = d.Unit
		r.leased(d)
	case *run.LeaseReleased:
		free(v.slot(r, d.Slot))
		r.left(d.Slot)
	case *run.LeaseExpired:
		s := v.slot(r, d.Slot)
		free(s)
		s.Expired++
		r.Totals.Expired++
		r.requeued(s, d.Requeued)
		r.left(d.Slot)
	case *run.ChunksCopied:
		v.slot(r, d.From).Copied += len(d.Chunks)
		r.Totals.Copied += len(d.Chunks)
	case *run.DeltaAdopted:
		r.Totals.Adopted += len(d.Chunks)
	case *run.TaskFailed:
		s := v.slot(r, d.Slot)
		free(s)
		r.left(d.Slot)
		r.Totals.TaskFails++
		r.requeued(s, d.Returned)
		failed(r, e, Failure{Slot: d.Slot, Unit: d.Unit, Error: d.Error, Tail: d.Tail})
	default:
		v.applyRound(r, e)
		v.applyContribution(r, e)
		v.applyMember(r, e)
	}
}

func end(r *Run, e event.Envelope, p run.Phase, reason string) {
	r.Phase, r.Reason = p, reason
	at := e.Time
	r.Ended = &at
	r.Rounds.Open = 0
	for _, s := range r.Slots {
		free(s)
	}
}

// bounded keeps a figure of a machine within what its sums can bear. Logs from before 2026-12 may hold any finite one.
func bounded(x, most float64) float64 { return max(-most, min(x, most)) }

// free takes the lease and what it held from the slot's row.
func free(s *Slot) { s.Lease, s.Holding = "", 0 }

// requeued counts chunks that others have to train because the slot's work on them is void. What a lease gives back in good order,
// and what an accepted delta leaves out, is not counted: nothing went wrong with it.
func (r *Run) requeued(s *Slot, chunks []domain.ChunkID) {
	s.Requeued += len(chunks)
	r.Totals.Requeued += len(chunks)
}

func (v *View) applyRound(r *Run, e event.Envelope) {
	switch d := e.Data.(type) {
	case *run.RoundOpened:
		r.Rounds.Open, r.Rounds.Chunks, r.Rounds.Counted = d.Round, len(d.Chunks), 0
		r.Rounds.Eta, r.Rounds.Mu, r.Rounds.Stalled = d.Eta, d.Mu, false
		r.Rounds.Planned = max(r.Rounds.Planned, d.Round)
	case *run.RoundExtended:
		r.Rounds.Stalled = true
	case *run.RoundClosed:
		r.Rounds.Stalled = false
	case *run.RoundMerged:
		r.Model, r.Rounds.Merged, r.Rounds.Open = d.NextBase, d.Round, 0
		if r.Rounds.Merged >= r.Rounds.Planned && r.Ledger.Counted == r.Ledger.Expected {
			r.Phase = run.PhaseEvaluating
		}
	case *run.Evaluated: // its lease ends with a release of its own
		r.Evaluations = append(r.Evaluations, *d)
		if n := len(r.Evaluations); n > MaxEvaluations {
			r.Evaluations = r.Evaluations[n-MaxEvaluations:]
		}
	case *run.EvaluationFailed:
		free(v.slot(r, d.Slot))
		failed(r, e, Failure{Slot: d.Slot, Unit: run.UnitEvaluate, Error: d.Error, Tail: d.Tail})
	}
}

func (v *View) applyContribution(r *Run, e event.Envelope) {
	switch d := e.Data.(type) {
	case *run.ChunksStolen:
		v.slot(r, d.To).Stole += len(d.Chunks)
		v.slot(r, d.From).Lost += len(d.Chunks)
		r.Totals.Steals++
		r.Totals.Stolen += len(d.Chunks)
	case *run.ChunkTrained:
		s := v.slot(r, d.Slot)
		s.Chunks++
		s.Seconds += bounded(d.Seconds, run.MaxChunkSeconds)
		s.Holding++
		loss := bounded(d.Loss, run.MaxLoss)
		if r.Loss == 0 {
			r.Loss = loss
		}
		r.Loss += lossHalf * (loss - r.Loss)
	case *run.ContributionAccepted:
		s := v.slot(r, d.Slot)
		s.Contributions++
		s.Holding = 0
		s.Samples += d.Samples
		r.Totals.Uploaded++
		r.Ledger.Counted += d.Samples
		r.Rounds.Counted += len(d.Chunks)
	case *run.ContributionRefused:
		s := v.slot(r, d.Slot)
		s.Refused++
		if d.Why != run.RefusedFenced {
			s.Holding = 0
		}
		r.Totals.Refused++
		r.requeued(s, d.Returned)
	case *run.ContributionCut:
		s := v.slot(r, d.Slot)
		s.Holding = d.Keep
		r.Totals.Cut++
		r.requeued(s, d.Returned)
	case *run.ContributionRevoked:
		s := v.slot(r, d.Slot)
		s.Samples -= d.Samples
		r.Totals.Revoked++
		r.requeued(s, d.Returned)
		r.Ledger.Counted -= d.Samples
		r.Rounds.Counted -= len(d.Returned)
	}
}
