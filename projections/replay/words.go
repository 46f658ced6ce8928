package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"tensorturn/domain/run"
)

// Row is one thing that a point says. Note explains the value to somebody who sees it for the first time; it never differs
// between two points that have the same name for it.
type Row struct{ Name, Value, Note string }

// phaseNotes say what a run does in each phase.
var phaseNotes = map[run.Phase]string{
	NotSubmitted:        "this place of the log lies before the run's first record",
	run.PhaseSubmitted:  "waits for its first weights, or its first member",
	run.PhaseTraining:   "machines train",
	run.PhaseEvaluating: "every chunk is counted; the model is measured on rows that nobody trained on",
	run.PhaseVoting:     "the members are in; their vote is counted",
	run.PhaseCompleted:  "it ended with a model",
	run.PhaseCancelled:  "somebody ended it; the last model stays",
	run.PhaseFailed:     "it could not go on",
}

// chunkNotes say where a chunk is on its way, by its status.
var chunkNotes = map[run.ChunkStatus]string{
	run.StatusUnplanned:   "in no round yet",
	run.StatusQueued:      "in this round, with nobody bound to train them; idle slots may steal them",
	run.StatusClaimed:     "a slot trains them now or next",
	run.StatusTrained:     "trained, and lost with their slot until its delta is in",
	run.StatusContributed: "counted; their delta waits for the merge",
	run.StatusMerged:      "in the weights",
}

// Rows says the point in plain words, in a fixed order.
func (p Point) Rows() []Row {
	rows := []Row{{"phase", cmp.Or(string(p.Phase), string(NotSubmitted)), phaseNotes[cmp.Or(p.Phase, NotSubmitted)]}}
	if p.Phase == "" || p.Phase == NotSubmitted {
		return rows
	}
	add := func(name, value, note string) {
		if value != "" {
			rows = append(rows, Row{name, value, note})
		}
	}
	add("paused", p.Paused, "no new work is given out")
	add("reason", p.Reason, "")
	add("samples counted", fmt.Sprintf("%d of %d", p.Counted, p.Expected), "each once, whoever trained it")
	if p.Members == nil {
		p.roundRows(add)
	}
	for _, m := range p.Members {
		add(m.name(), m.String(), "")
	}
	add("vote", p.Vote, "the rule that was in force")
	if p.Accuracy != nil {
		add("accuracy", fmt.Sprintf("%.4f", *p.Accuracy), "on held-out rows, newest measurement")
	}
	if p.Members == nil { // a member's row names its slot
		for _, k := range p.Leases {
			add("slot "+string(k.Slot), k.String(), "")
		}
	}
	return rows
}

func (p Point) roundRows(add func(name, value, note string)) {
	add("rounds merged", strconv.Itoa(p.Merged), "")
	add("weights", p.Base.Short(), "of the newest merge; every slot starts the round from them")
	if p.Open > 0 {
		add("round open", strconv.Itoa(p.Open), "")
		add("deltas in it", strconv.Itoa(p.Deltas), "accepted, to be averaged when the round closes")
	}
	for c := run.StatusUnplanned; c <= run.StatusMerged; c++ {
		if n := p.Chunks[c.String()]; n > 0 {
			add("chunks "+c.String(), strconv.Itoa(n), chunkNotes[c])
		}
	}
}

// String says what the slot does.
func (k PointLease) String() string {
	since := fmt.Sprintf(", since record %d", k.Epoch)
	switch k.Unit {
	case run.UnitTrain:
		return fmt.Sprintf("trains for round %d: %s trained and not counted yet, %d claimed", k.Round, chunks(k.Trained), k.Claimed) + since
	case run.UnitInit:
		return "makes the first weights" + since
	case run.UnitEvaluate:
		return "measures the model" + since
	}
	return fmt.Sprintf("does the %s unit", k.Unit) + since
}

func (m PointMember) name() string {
	if m.Single {
		return "single model"
	}
	return "member " + strconv.Itoa(m.Member)
}

// String says how far the member is.
func (m PointMember) String() string {
	far := fmt.Sprintf("%d of %s", m.Chunks, chunks(m.Of))
	switch m.Status {
	case run.MemberWaiting:
		if m.Chunks > 0 {
			return fmt.Sprintf("waits for a slot, to go on from a checkpoint at %s", far)
		}
		return "waits for a slot"
	case run.MemberTraining:
		if m.Weights != "" {
			return fmt.Sprintf("trained, weights %s; %s makes its answers for the vote", m.Weights.Short(), m.Slot)
		}
		if m.Saved == 0 {
			return fmt.Sprintf("%s trains it; no checkpoint of its %s yet", m.Slot, chunks(m.Of))
		}
		return fmt.Sprintf("%s trains it; the newest checkpoint holds %s", m.Slot, far)
	case run.MemberIn:
		return fmt.Sprintf("in, weights %s", m.Weights.Short())
	case run.MemberGone:
		return "dropped: " + m.Reason
	}
	return string(m.Status)
}

func chunks(n int) string {
	if n == 1 {
		return "1 chunk"
	}
	return strconv.Itoa(n) + " chunks"
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
