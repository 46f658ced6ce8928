package doctor

// Kind is what a folder belongs to.
type Kind string

// The kinds.
const (
	Agent Kind = "agent"
	Hub   Kind = "hub"
)

// State is how a check ended.
type State string

// The states. A machine is healthy when no finding is a problem or unknown.
const (
	Fine    State = "ok"
	Problem State = "problem" // hinders what this machine is asked to do
	Note    State = "note"    // hinders nothing that it is asked to do now
	Skipped State = "skipped" // does not concern this machine, or another finding stands before it
	Unknown State = "unknown" // could not be found out
)

// Finding is the outcome of one check. Its JSON is a contract: codes keep their meaning.
type Finding struct {
	Check string `json:"check"`
	State State  `json:"state"`
	Code  Code   `json:"code,omitempty"` // of a problem or a note; of the finding that a skipped check waits for
	Says  string `json:"says"`
	Fix   string `json:"fix,omitempty"`
	Took  int64  `json:"took_ms"`
}

// Report is what was found on one folder.
type Report struct {
	Kind     Kind      `json:"kind"`
	Dir      string    `json:"dir"`
	Hub      string    `json:"hub,omitempty"`
	Healthy  bool      `json:"healthy"`
	Findings []Finding `json:"findings"`
}

func fine(says string) Finding { return Finding{State: Fine, Says: says} }

func skipped(says string) Finding { return Finding{State: Skipped, Says: says} }

func problem(c Code, says, fix string) Finding {
	return Finding{State: Problem, Code: c, Says: says, Fix: fix}
}

// asked makes a problem of what the owner asked for and a note of what nobody did.
func asked(yes bool, c Code, says, fix string) Finding {
	f := problem(c, says, fix)
	if !yes {
		f.State = Note
	}
	return f
}

// settle judges the whole: what waits for a finding that is not there is unknown, since nothing explains it.
func (r *Report) settle() {
	found := map[Code]bool{}
	for _, f := range r.Findings {
		found[f.Code] = found[f.Code] || f.State == Problem
	}
	r.Healthy = true
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.State == Skipped && f.Code != "" && !found[f.Code] {
			f.State, f.Code, f.Fix = Unknown, Unfinished, "look again; if this goes on, the way to the hub comes and goes"
		}
		if f.State == Problem || f.State == Unknown {
			r.Healthy = false
		}
	}
}
