package goodput

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// TestScenarios tells the stories in testdata/goodput. testdata/goodput/README.md has the language.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/goodput", func(t *testing.T, path string) {
		if strings.HasSuffix(path, ".md") {
			return
		}
		var s *story
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "story" {
				s = newStory(t)
				s.absences(d)
			}
			s.t = t
			for line := range strings.Lines(d.Input) {
				if f := strings.Fields(line); len(f) > 0 {
					s.tell(f)
				}
			}
			r, err := s.ledger.Report()
			if err != nil {
				return err.Error() + "\n"
			}
			if err := r.Audit(); err != nil {
				t.Errorf("%s: %v", d.Pos, err)
			}
			return drawn(r)
		})
	})
}

// drawn is a report as a table: shares and seconds of each slot.
func drawn(r Report) string {
	var b strings.Builder
	row := func(who string, w Row) {
		fmt.Fprintf(&b, "%s: %.4g s connected, %d of %d trained samples counted, %.4g a second: goodput %.2f, efficiency %.2f\n", who, w.Connected, w.Samples, w.Trained, w.Speed, w.Goodput, w.Efficiency)
		for _, k := range Kinds() {
			if w.Seconds[k] != 0 {
				fmt.Fprintf(&b, "  %5.1f s  %s\n", w.Seconds[k], k.Words())
			}
		}
		if w.Elsewhere > 0 {
			fmt.Fprintf(&b, "  %5.1f s  besides, for other runs\n", w.Elsewhere)
		}
	}
	for _, w := range r.Slots {
		row(string(w.Slot), w)
	}
	if len(r.Slots) != 1 {
		row("all", r.Total)
	}
	for _, u := range r.Unused {
		fmt.Fprintf(&b, "%s was there for %.4g s and had no work\n", u.Slot, u.Connected)
	}
	if r.Loss != "" {
		fmt.Fprintf(&b, "most is lost by: %s\n", r.Loss.Words())
	}
	return b.String()
}

// story turns lines into facts of run r-1.
type story struct {
	t      *testing.T
	seq    uint64
	ledger *Ledger
	open   []domain.ChunkID
}

var start = time.Date(2026, 12, 1, 1, 0, 0, 0, time.UTC)

func newStory(t *testing.T) *story { return &story{t: t, ledger: New("r-1")} }

// absences reads away=(a,10,20), and hub=(10,20).
func (s *story) absences(d *datadriven.TestData) {
	var out []Absence
	for _, a := range d.CmdArgs {
		v := a.Vals
		if a.Key == "hub" {
			v = append([]string{""}, v...)
		}
		out = append(out, Absence{Machine: domain.MachineID(v[0]), From: s.time(v[1]), To: s.time(v[2])})
	}
	s.ledger = New("r-1", out...)
}

func (s *story) time(text string) time.Time {
	return start.Add(time.Duration(s.number(text) * float64(time.Second)))
}

func (s *story) number(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		s.t.Fatalf("%q is no number", text)
	}
	return v
}

// words are the pieces of a line: values, and key=value pairs.
type words struct {
	vals []string
	keys map[string]string
}

func (s *story) tell(f []string) {
	s.t.Helper()
	w := words{keys: map[string]string{}}
	for _, x := range f[2:] {
		if k, v, ok := strings.Cut(x, "="); ok {
			w.keys[k] = v
			continue
		}
		w.vals = append(w.vals, x)
	}
	at := s.time(f[0])
	if d := s.machineFact(f[1], w); d != nil {
		s.apply(at, event.KindMachine, w.vals[0], d)
		return
	}
	agg := "r-1"
	if v := w.keys["run"]; v != "" {
		agg = v
	}
	for _, d := range s.runFacts(f[1], w) {
		s.apply(at, event.KindRun, agg, d)
	}
}

func (s *story) apply(at time.Time, kind event.Kind, agg string, d event.Data) {
	s.seq++
	s.ledger.Apply(event.Envelope{Seq: s.seq, Kind: kind, Agg: agg, Time: at, Data: d})
}

func (s *story) machineFact(word string, w words) event.Data {
	switch word {
	case "online":
		slots := 1
		if v := w.keys["slots"]; v != "" {
			slots = int(s.number(v))
		}
		return &machine.BecameOnline{Slots: slots}
	case "restarted":
		return &machine.BecameOnline{Slots: 1, Restarted: true}
	case "suspect":
		return &machine.BecameSuspect{Silent: s.number(w.keys["silent"])}
	case "lost":
		return &machine.BecameLost{}
	case "draining":
		return &machine.BecameDraining{}
	case "drained":
		return &machine.BecameDrained{}
	case "quarantined":
		return &machine.BecameQuarantined{Reason: "three refusals"}
	case "resumed":
		return &machine.Resumed{}
	case "revoked":
		return &machine.BecameRevoked{}
	case "rests":
		return &machine.SlotsPaused{Slots: []int{0}, Cause: machine.ByHours}
	case "rested":
		return &machine.SlotsResumed{Slots: []int{0}, Cause: machine.ByHours}
	}
	return nil
}

func (s *story) runFacts(word string, w words) []event.Data {
	one := func(d event.Data) []event.Data { return []event.Data{d} }
	switch word {
	case "submit":
		sp := run.Spec{Batch: 100, Chunk: 100, Epochs: 1, Codec: run.CodecE3M0, Round: run.Round{Chunks: 4}}
		if w.keys["mode"] != "" {
			sp.Mode = run.Mode(w.keys["mode"])
		}
		return one(&run.Submitted{Spec: sp, Data: run.Dataset{Samples: int(s.number(w.keys["samples"]))}})
	case "pause-run":
		return one(&run.Paused{})
	case "resume-run":
		return one(&run.Resumed{})
	case "open":
		s.open = s.chunks(w.vals[1])
		return one(&run.RoundOpened{Round: int(s.number(w.vals[0])), Chunks: s.open})
	case "close":
		return one(&run.RoundClosed{Round: int(s.number(w.vals[0]))})
	case "merge":
		return one(&run.RoundMerged{Round: int(s.number(w.vals[0]))})
	case "complete":
		return one(&run.Completed{})
	case "cancel":
		return one(&run.Cancelled{})
	}
	return s.slotFacts(word, w)
}

func (s *story) slotFacts(word string, w words) []event.Data {
	one := func(d event.Data) []event.Data { return []event.Data{d} }
	slot := domain.SlotID(w.vals[0])
	if !strings.Contains(w.vals[0], "/") {
		slot += "/0"
	}
	named := func() []domain.ChunkID { return s.chunks(w.vals[1]) }
	switch word {
	case "grant":
		return one(&run.LeaseGranted{Slot: slot, Unit: run.Unit(w.vals[1])})
	case "trained":
		var out []event.Data
		for _, c := range named() {
			out = append(out, &run.ChunkTrained{Slot: slot, Chunk: c, Seconds: s.number(w.keys["took"])})
		}
		return out
	case "request":
		return one(&run.ContributionRequested{Slot: slot})
	case "accept":
		return one(&run.ContributionAccepted{Slot: slot, Chunks: named(), Samples: 100 * int64(len(named()))})
	case "refuse":
		return one(&run.ContributionRefused{Slot: slot, Why: run.RefusedNorm, Returned: named()})
	case "cut":
		d := &run.ContributionCut{Slot: slot, Keep: int(s.number(w.keys["keep"])), Returned: named()}
		if v := w.keys["others"]; v != "" {
			d.Others = s.chunks(v)
		}
		return one(d)
	case "revoke":
		return one(&run.ContributionRevoked{Slot: slot, Returned: named(), Samples: 100 * int64(len(named()))})
	case "adopt":
		return one(&run.DeltaAdopted{Slot: slot, Chunks: named(), Resume: w.keys["resume"] != ""})
	case "release":
		d := &run.LeaseReleased{Slot: slot}
		if len(w.vals) > 1 {
			d.Returned = named()
		}
		return one(d)
	case "expire":
		return one(&run.LeaseExpired{Slot: slot})
	case "fail":
		return one(&run.TaskFailed{Slot: slot})
	}
	s.t.Fatalf("there is no fact %q", word)
	return nil
}

// chunks reads "0-3,7".
func (s *story) chunks(text string) []domain.ChunkID {
	var cs []domain.ChunkID
	for part := range strings.SplitSeq(text, ",") {
		from, to, ok := strings.Cut(part, "-")
		if !ok {
			to = from
		}
		for c := int(s.number(from)); c <= int(s.number(to)); c++ {
			cs = append(cs, domain.ChunkID(c))
		}
	}
	return cs
}
