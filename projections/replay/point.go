package replay

import (
	"fmt"
	"maps"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Point is a run at one place of the log, as the facts up to there leave it.
type Point struct {
	Seq      uint64         `json:"seq"`
	Run      domain.RunID   `json:"run"`
	Phase    run.Phase      `json:"phase"` // or NotSubmitted
	Paused   string         `json:"paused,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	Merged   int            `json:"rounds_merged"`
	Open     int            `json:"round_open"` // 0: none
	Base     domain.Digest  `json:"base"`
	Counted  int64          `json:"samples_counted"`
	Expected int64          `json:"samples_expected"`
	Chunks   map[string]int `json:"chunks"` // by status
	Deltas   int            `json:"deltas"` // accepted in the open round
	Accuracy *float64       `json:"accuracy,omitempty"`
	Leases   []PointLease   `json:"leases"`
	Members  []PointMember  `json:"members,omitempty"` // of an ensemble
	Vote     string         `json:"vote,omitempty"`    // the rule of its vote, once they have voted
}

// NotSubmitted is the phase of a run at a place of the log before its own first record.
const NotSubmitted run.Phase = "not submitted"

// PointLease is a lease under way.
type PointLease struct {
	Slot    domain.SlotID `json:"slot"`
	Unit    run.Unit      `json:"unit"`
	Epoch   domain.Epoch  `json:"epoch"`
	Round   int           `json:"round,omitempty"`
	Member  int           `json:"member,omitempty"`
	Claimed int           `json:"claimed"` // chunks
	Trained int           `json:"trained"` // chunks, not contributed yet
}

// PointMember is a member of an ensemble.
type PointMember struct {
	Member  int              `json:"member"`
	Single  bool             `json:"single,omitempty"` // compared, without a vote
	Status  run.MemberStatus `json:"status"`
	Slot    domain.SlotID    `json:"slot,omitempty"` // that trains it
	Chunks  int              `json:"chunks"`         // in its newest checkpoint, or all when it is trained
	Of      int              `json:"of"`
	Saved   int              `json:"checkpoints"`
	Weights domain.Digest    `json:"weights,omitempty"`
	Reason  string           `json:"reason,omitempty"` // why it was dropped
}

// ensemble adds members and vote.
func (p *Point) ensemble(s *run.State) {
	if s.Ensemble == nil {
		return
	}
	for i := range s.Ensemble.Members {
		m := &s.Ensemble.Members[i]
		p.Members = append(p.Members, PointMember{Member: m.Number, Single: m.Single, Status: m.Status, Slot: m.Slot, Chunks: m.Chunks,
			Of: run.TotalChunks(s.MemberSpec(m.Number), s.Data), Saved: m.Saved, Weights: m.Weights, Reason: m.Reason})
	}
	if v := s.Ensemble.Vote; v != nil {
		accuracy := v.Result.Vote.Accuracy
		p.Vote, p.Accuracy = string(v.Result.Rule), &accuracy
	}
}

// Mark asks for the run as it stands behind the record at seq. It must be called before that record is added.
func (l *Log) Mark(seq uint64) { l.marks = append(l.marks, seq) }

// Point gives a marked place. Errors: domain.KindNotFound when the log ends before it.
func (l *Log) Point(seq uint64) (Point, error) {
	if p, ok := l.points[seq]; ok {
		return p, nil
	}
	last, _ := l.Head()
	return Point{}, domain.NotFound("replay run "+string(l.id), fmt.Sprintf("the log has no record %d, it ends at %d", seq, last), "see: tensorturn events --run "+string(l.id))
}

// pass takes the picture of a marked place when the log has come there.
func (l *Log) pass(seq uint64) {
	if !slices.Contains(l.marks, seq) {
		return
	}
	if l.points == nil {
		l.points = map[uint64]Point{}
	}
	l.points[seq] = pointOf(l.id, seq, l.state)
}

// pointOf copies what a point needs: the state goes on.
func pointOf(id domain.RunID, seq uint64, s *run.State) Point {
	p := Point{Seq: seq, Run: id, Phase: NotSubmitted, Chunks: map[string]int{}, Leases: []PointLease{}}
	if s == nil {
		return p
	}
	ledger := s.Ledger()
	p.Phase, p.Paused, p.Reason, p.Merged, p.Base = s.Phase, s.Paused, s.Reason, s.Merged, s.Base
	p.Counted, p.Expected = ledger.Counted, ledger.Expected
	for status, n := range s.Counts() {
		if n > 0 {
			p.Chunks[run.ChunkStatus(status).String()] = n
		}
	}
	p.Open, p.Deltas = s.OpenRound()
	if n := len(s.Evaluations); n > 0 {
		a := s.Evaluations[n-1].Accuracy
		p.Accuracy = &a
	}
	for _, slot := range slices.Sorted(maps.Keys(s.Leases)) {
		k := s.Leases[slot]
		p.Leases = append(p.Leases, PointLease{Slot: slot, Unit: k.Unit, Epoch: k.Epoch, Round: k.Round, Member: k.Member, Claimed: len(k.Claimed), Trained: len(k.Trained)})
	}
	p.ensemble(s)
	return p
}
