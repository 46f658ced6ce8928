// Package runs is the view of runs: how far each is, who did what, what the ledger says. Its JSON is the API's and the
// command line's contract.
package runs

import (
	"slices"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/freeze"
	"tensorturn/domain/run"
)

// Run is one run as people see it.
type Run struct {
	ID        domain.RunID  `json:"id"`
	Name      string        `json:"name"`
	Phase     run.Phase     `json:"phase"`
	Paused    string        `json:"paused,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	Submitted time.Time     `json:"submitted"`
	Ended     *time.Time    `json:"ended,omitempty"`
	FirstSeq  uint64        `json:"first_seq"`
	LastSeq   uint64        `json:"last_seq"`
	Spec      run.Spec      `json:"spec"`
	Data      run.Dataset   `json:"data"`
	Params    int64         `json:"params"`
	Model     domain.Digest `json:"model,omitempty"` // newest merged weights
	Ledger    Ledger        `json:"ledger"`
	Rounds    Rounds        `json:"rounds"`
	Slots     []*Slot       `json:"slots"` // by id
	Totals    Totals        `json:"totals"`
	Loss      float64       `json:"loss"` // training loss of the newest chunks, moving average
	// Evaluations are results on held-out data, oldest first; at most MaxEvaluations newest.
	Evaluations []run.Evaluated `json:"evaluations"`
	Evaluated   bool            `json:"evaluated"`

	Members []*Member `json:"members,omitempty"` // of an ensemble, by number
	Vote    *Vote     `json:"vote,omitempty"`    // of an ensemble
	// Failures are what trainers failed of, oldest first; at most MaxFailures newest.
	Failures []Failure `json:"failures,omitempty"`
}

// Ledger counts samples by accepted contributions.
type Ledger struct {
	Expected int64 `json:"samples_expected"`
	Counted  int64 `json:"samples_counted"`
}

// Rounds tells the rounds' progress.
type Rounds struct {
	Planned int     `json:"planned"`
	Merged  int     `json:"merged"`
	Open    int     `json:"open"`    // number of the open round, 0 when none
	Chunks  int     `json:"chunks"`  // of the open round
	Counted int     `json:"counted"` // of the open round
	Stalled bool    `json:"stalled"`
	Eta     float64 `json:"eta"`
	Mu      float64 `json:"mu"`
}

// Slot is what one slot did for the run.
type Slot struct {
	Slot          domain.SlotID `json:"slot"`
	Lease         run.Unit      `json:"lease,omitempty"` // unit it holds now
	Holding       int           `json:"chunks_holding"`  // trained, not yet contributed
	Chunks        int           `json:"chunks_trained"`
	Samples       int64         `json:"samples_counted"`
	Seconds       float64       `json:"seconds"` // training time of its chunks
	Contributions int           `json:"contributions"`
	Refused       int           `json:"refused"`
	Stole         int           `json:"chunks_stolen"` // chunks it took from others
	Lost          int           `json:"chunks_lost"`   // chunks others took from it
	Copied        int           `json:"chunks_copied"` // of its chunks, those given to a second slot too
	Requeued      int           `json:"requeued_chunks"`
	Expired       int           `json:"leases_expired"`
}

// Totals are sums over the run.
type Totals struct {
	Steals    int `json:"steals"`          // steal decisions
	Stolen    int `json:"stolen_chunks"`   // chunks moved by them
	Requeued  int `json:"requeued_chunks"` // chunks given back: of a lost holder, a failed trainer, a delta refused, cut or revoked
	Copied    int `json:"copied_chunks"`   // chunks of silent or slow holders that were given to a second slot too; one of both counts
	Adopted   int `json:"adopted_chunks"`  // chunks counted although the lease under which they were trained had ended
	Expired   int `json:"leases_expired"`
	Refused   int `json:"refused_contributions"`
	Revoked   int `json:"revoked_contributions"`
	Cut       int `json:"cut_contributions"`
	Uploaded  int `json:"contributions"`
	TaskFails int `json:"task_failures"`
}

// MaxEvaluations bounds the list kept for each run.
const MaxEvaluations = 64

// lossHalf is the weight of the newest chunk in the moving average of the loss.
const lossHalf = 0.1

// View holds all runs.
type View struct {
	byID  map[domain.RunID]*Run
	order []domain.RunID
	slots map[domain.RunID]map[domain.SlotID]*Slot
}

// New returns an empty view.
func New() *View {
	return &View{byID: map[domain.RunID]*Run{}, slots: map[domain.RunID]map[domain.SlotID]*Slot{}}
}

// Name names the view.
func (v *View) Name() string { return "runs" }

// Part names what the view holds, for snapshots. The rows by slot are the same rows as in the runs.
func (v *View) Part() freeze.Part {
	return freeze.Part{Name: v.Name(), Values: []any{&v.byID, &v.order}, Restored: v.index}
}

func (v *View) index() {
	v.slots = make(map[domain.RunID]map[domain.SlotID]*Slot, len(v.byID))
	for id, r := range v.byID {
		v.slots[id] = make(map[domain.SlotID]*Slot, len(r.Slots))
		for _, s := range r.Slots {
			v.slots[id][s.Slot] = s
		}
	}
}

// List returns copies of all runs, oldest first.
func (v *View) List() []Run {
	out := make([]Run, 0, len(v.order))
	for _, id := range v.order {
		r, _ := v.Get(id)
		out = append(out, r)
	}
	return out
}

// Get returns a copy of one run.
func (v *View) Get(id domain.RunID) (Run, bool) {
	r, ok := v.byID[id]
	if !ok {
		return Run{}, false
	}
	c := *r
	c.Slots = make([]*Slot, len(r.Slots))
	for i, s := range r.Slots {
		copied := *s
		c.Slots[i] = &copied
	}
	c.Evaluations = slices.Clone(r.Evaluations)
	c.Members = copyMembers(r.Members)
	c.Failures = slices.Clone(r.Failures)
	return c, true
}

// Apply folds one event.
func (v *View) Apply(e event.Envelope) {
	if e.Kind != event.KindRun {
		return
	}
	id := domain.RunID(e.Agg)
	if d, ok := e.Data.(*run.Submitted); ok {
		v.submitted(id, e, d)
		return
	}
	r, ok := v.byID[id]
	if !ok {
		return
	}
	r.LastSeq = e.Seq
	v.apply(r, e)
}

func (v *View) submitted(id domain.RunID, e event.Envelope, d *run.Submitted) {
	v.byID[id] = &Run{
		ID: id, Name: d.Spec.Name, Phase: run.PhaseSubmitted, Submitted: e.Time, FirstSeq: e.Seq, LastSeq: e.Seq,
		Spec: d.Spec, Data: d.Data, Slots: []*Slot{}, Evaluations: []run.Evaluated{},
		Ledger: Ledger{Expected: int64(d.Spec.Epochs) * int64(d.Data.Samples)},
		Rounds: Rounds{Planned: run.Planned(d.Spec, d.Data)},
	}
	if d.Spec.IsEnsemble() {
		v.byID[id].beginMembers()
	}
	v.order = append(v.order, id)
	v.slots[id] = map[domain.SlotID]*Slot{}
}

// slot finds or makes the slot's row, keeping rows in order of id.
func (v *View) slot(r *Run, id domain.SlotID) *Slot {
	if s, ok := v.slots[r.ID][id]; ok {
		return s
	}
	s := &Slot{Slot: id}
	v.slots[r.ID][id] = s
	at, _ := slices.BinarySearchFunc(r.Slots, id, func(s *Slot, id domain.SlotID) int {
		switch {
		case s.Slot < id:
			return -1
		case s.Slot > id:
			return 1
		}
		return 0
	})
	r.Slots = slices.Insert(r.Slots, at, s)
	return s
}
