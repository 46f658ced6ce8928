package replay

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Point is a run at one place of the log, as the facts up to there leave it.
type Point struct {
	Seq      uint64         `json:"seq"`
	Run      domain.RunID   `json:"run"`
	Phase    run.Phase      `json:"phase"` // empty: the run has not been submitted yet
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
}

// PointLease is a lease under way.
type PointLease struct {
	Slot    domain.SlotID `json:"slot"`
	Unit    run.Unit      `json:"unit"`
	Epoch   domain.Epoch  `json:"epoch"`
	Claimed int           `json:"claimed"` // chunks
	Trained int           `json:"trained"` // chunks, not contributed yet
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
	p := Point{Seq: seq, Run: id, Chunks: map[string]int{}, Leases: []PointLease{}}
	if s == nil {
		return p
	}
	ledger := s.Ledger()
	p.Phase, p.Paused, p.Reason, p.Merged, p.Base = s.Phase, s.Paused, s.Reason, s.Merged, s.Base
	p.Counted, p.Expected = ledger.Counted, ledger.Expected
	for _, c := range s.Chunks {
		p.Chunks[c.Status.String()]++
	}
	if s.Open != nil {
		p.Open, p.Deltas = s.Open.Number, len(s.Open.Contributions)
	}
	if n := len(s.Evaluations); n > 0 {
		a := s.Evaluations[n-1].Accuracy
		p.Accuracy = &a
	}
	for _, slot := range slices.Sorted(maps.Keys(s.Leases)) {
		k := s.Leases[slot]
		p.Leases = append(p.Leases, PointLease{Slot: slot, Unit: k.Unit, Epoch: k.Epoch, Claimed: len(k.Claimed), Trained: len(k.Trained)})
	}
	return p
}

// Row is one thing that a point says.
type Row struct{ Name, Value string }

// Rows says the point in plain words, in a fixed order.
func (p Point) Rows() []Row {
	if p.Phase == "" {
		return []Row{{"phase", "not submitted yet"}}
	}
	rows := []Row{{"phase", string(p.Phase)}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, Row{name, value})
		}
	}
	add("paused", p.Paused)
	add("reason", p.Reason)
	add("rounds merged", strconv.Itoa(p.Merged))
	if p.Open > 0 {
		add("round open", strconv.Itoa(p.Open))
		add("deltas in it", strconv.Itoa(p.Deltas))
	}
	add("base", p.Base.Short())
	add("samples counted", fmt.Sprintf("%d of %d", p.Counted, p.Expected))
	for c := run.StatusUnplanned; c <= run.StatusMerged; c++ {
		if n := p.Chunks[c.String()]; n > 0 {
			add("chunks "+c.String(), strconv.Itoa(n))
		}
	}
	if p.Accuracy != nil {
		add("accuracy", fmt.Sprintf("%.4f", *p.Accuracy))
	}
	for _, k := range p.Leases {
		add("lease of "+string(k.Slot), fmt.Sprintf("%s, epoch %d, %d chunks claimed, %d trained", k.Unit, k.Epoch, k.Claimed, k.Trained))
	}
	return rows
}

// Change is a difference between two points; "-" stands for what one of them does not say.
type Change struct {
	Name string `json:"name"`
	From string `json:"from"`
	To   string `json:"to"`
}

// Difference lists what b says otherwise than a, in the order of a, then what b alone says.
func Difference(a, b Point) []Change {
	was, is := a.Rows(), b.Rows()
	out := []Change{}
	for _, r := range was {
		if v := valueOf(is, r.Name); v != r.Value {
			out = append(out, Change{r.Name, r.Value, v})
		}
	}
	for _, r := range is {
		if valueOf(was, r.Name) == "-" {
			out = append(out, Change{r.Name, "-", r.Value})
		}
	}
	return out
}

func valueOf(rows []Row, name string) string {
	i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == name })
	if i < 0 {
		return "-"
	}
	return rows[i].Value
}
