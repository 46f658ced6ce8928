package run

import (
	"fmt"
	"reflect"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

func decideSubmit(s *State, c Submit) ([]event.Data, error) {
	if s != nil {
		if reflect.DeepEqual(s.Spec, c.Spec) && s.Data == c.Data {
			return nil, nil
		}
		return nil, conflict(c, "run %s exists with another spec or other data", s.ID)
	}
	if err := checkResolved(&c.Spec, &c.Data); err != nil {
		return nil, err
	}
	return one(&Submitted{Spec: c.Spec, Data: c.Data})
}

func decidePause(s *State, c Pause) ([]event.Data, error) {
	if err := live(s, c); err != nil {
		return nil, err
	}
	if s.Paused != "" {
		return nil, nil
	}
	return one(&Paused{Reason: reasonOr(c.Reason, "by its owner")})
}

func decideResume(s *State) ([]event.Data, error) {
	if err := live(s, Resume{}); err != nil {
		return nil, err
	}
	if s.Paused == "" {
		return nil, nil
	}
	return one(&Resumed{})
}

func decideCancel(s *State, c Cancel) ([]event.Data, error) {
	if s.Phase == PhaseCancelled {
		return nil, nil
	}
	if err := live(s, c); err != nil {
		return nil, err
	}
	return append(releaseAll(s, "cancelled", ""), &Cancelled{Reason: reasonOr(c.Reason, "by its owner")}), nil
}

// decideInitialise takes the first base from the slot that holds the init unit.
func decideInitialise(s *State, c Initialise) ([]event.Data, error) {
	if s.Base != "" && s.Ended[c.Slot] == c.Epoch {
		return nil, nil
	}
	l, err := leaseUnder(s, c, c.Slot, c.Epoch, UnitInit)
	if err != nil {
		return nil, err
	}
	for _, d := range []domain.Digest{c.Base, c.Layout} {
		if _, err := domain.ParseDigest(string(d)); err != nil {
			return nil, invalid(c, "%q is not a digest", domain.Clip(string(d), 80))
		}
	}
	if c.Params < 1 || c.Params > MaxParams {
		return nil, invalid(c, "%d parameters cannot be trained", c.Params)
	}
	return []event.Data{
		&Initialised{Slot: c.Slot, Epoch: c.Epoch, Base: c.Base, Layout: c.Layout, Params: c.Params, Take: c.Take},
		&LeaseReleased{Slot: c.Slot, Epoch: l.Epoch, Reason: "done"},
	}, nil
}

// decideEvaluation records a measurement. Figures that are no figures count as a failed attempt: a model that cannot be
// measured must not keep the run waiting for ever.
func decideEvaluation(s *State, c RecordEvaluation) ([]event.Data, error) {
	for i := range s.Evaluations {
		if s.Evaluations[i].Slot == c.Slot && s.Evaluations[i].Epoch == c.Epoch {
			return nil, nil
		}
	}
	l, err := leaseUnder(s, c, c.Slot, c.Epoch, UnitEvaluate)
	if err != nil {
		return nil, err
	}
	if why := c.noMeasurement(); why != "" {
		return evaluationFailed(s, l, why, nil), nil
	}
	facts := []event.Data{
		&Evaluated{Round: s.Evaluation.Round, Slot: c.Slot, Epoch: c.Epoch, Model: s.Evaluation.Model,
			Samples: c.Samples, Accuracy: c.Accuracy, Loss: c.Loss, R2: c.R2, MAE: c.MAE},
		&LeaseReleased{Slot: c.Slot, Epoch: c.Epoch, Reason: "done"},
	}
	if s.Evaluation.Final {
		facts = append(facts, &Completed{Model: s.Base, Samples: s.Counted, Evaluated: true})
	}
	return facts, nil
}

// noMeasurement names the figures that cannot have been measured, "" when all can.
func (c RecordEvaluation) noMeasurement() string {
	var out []string
	see := func(fine bool, name string, v float64) {
		if !fine {
			out = append(out, fmt.Sprintf("%s %v", name, v))
		}
	}
	see(c.Accuracy >= 0 && c.Accuracy <= 1, "accuracy", c.Accuracy)
	see(IsLoss(c.Loss), "loss", c.Loss)
	if c.R2 != nil {
		see(IsLoss(*c.R2), "R²", *c.R2)
	}
	if c.MAE != nil {
		see(IsLoss(*c.MAE) && *c.MAE >= 0, "mean absolute error", *c.MAE)
	}
	switch {
	case len(out) > 0:
		return fmt.Sprintf("%s on %d samples: that is no measurement", strings.Join(out, ", "), c.Samples)
	case c.Samples < 1:
		return fmt.Sprintf("%d samples: that is no measurement", c.Samples)
	}
	return ""
}

// decideFailTask counts an error of the trainer. The lease ends with it; the last allowed one ends the run, or the
// wish to evaluate.
func decideFailTask(s *State, c FailTask) ([]event.Data, error) {
	l, err := leaseUnder(s, c, c.Slot, c.Epoch, "")
	if err != nil {
		return nil, err
	}
	reason := reasonOr(c.Error, "the trainer gave no reason")
	count := s.TaskFails[c.Slot] + 1
	switch l.Unit {
	case UnitEvaluate:
		return evaluationFailed(s, l, reason, tailOf(c.Tail)), nil
	case UnitMember:
		return memberFailed(s, l, reason, tailOf(c.Tail)), nil
	case UnitInit:
		count = s.InitFails + 1
	}
	facts := []event.Data{&TaskFailed{Slot: c.Slot, Epoch: l.Epoch, Unit: l.Unit, Error: reason, Count: count, Returned: s.Held(c.Slot), Tail: tailOf(c.Tail)}}
	if count < MaxTaskFailures {
		return facts, nil
	}
	why := fmt.Sprintf("%s failed %d times on %s: %s", l.Unit, count, c.Slot, reason)
	facts = append(facts, releaseAll(s, "failed", c.Slot)...)
	return append(facts, &Failed{Reason: domain.Clip(why, domain.MaxReasonLength)}), nil
}

// tailOf keeps the newest lines of what a program printed, each cut to its limit; nil for none.
func tailOf(lines []string) (tail []string) {
	for _, line := range lines[max(0, len(lines)-MaxTailLines):] {
		tail = append(tail, domain.Clip(line, MaxTailLine))
	}
	return tail
}

// evaluationFailed counts a failed attempt to measure. After the last one the run goes on without the measurement.
func evaluationFailed(s *State, l *Lease, reason string, tail []string) []event.Data {
	e := s.Evaluation
	failed := &EvaluationFailed{Round: e.Round, Slot: l.Slot, Epoch: l.Epoch, Error: domain.Clip(reason, domain.MaxReasonLength), Count: e.Failures + 1, Tail: tail}
	failed.GaveUp = failed.Count >= MaxEvaluationFailures
	if failed.GaveUp && e.Final {
		return []event.Data{failed, &Completed{Model: s.Base, Samples: s.Counted}}
	}
	return []event.Data{failed}
}
