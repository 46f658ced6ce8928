package run_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// TestScenarios plays the stories in testdata/scenarios. testdata/scenarios/README.md has the language.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		if strings.HasSuffix(path, ".md") {
			return
		}
		p := &player{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return p.play(t, d)
		})
		if p.world != nil {
			if diff := difference(p.state, p.fold()); diff != "" {
				t.Errorf("the fold of the log is not the live state:\n%s", diff)
			}
		}
	})
}

// player plays one file.
type player struct{ *world }

func (p *player) play(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "run":
		return p.run(t, d)
	case "do":
		p.t = t
		var b strings.Builder
		for line := range strings.Lines(d.Input) {
			if line = strings.TrimSpace(line); line != "" {
				fmt.Fprintf(&b, "> %s\n%s", line, p.line(line))
			}
		}
		return b.String()
	}
	t.Fatalf("%s: no directive %q", d.Pos, d.Cmd)
	return ""
}

// run begins a run; train=(a,b) takes it to its first round with train leases for these slots.
func (p *player) run(t *testing.T, d *datadriven.TestData) string {
	spec := run.Spec{Name: "story", Batch: 10, Chunk: 10, Epochs: 1}
	samples, heldout, slots := 100, -1, []string{}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "train":
			slots = a.Vals
			continue
		case "members", "min", "loss", "single", "bootstrap":
			ensemble(t, &spec, a.Key, a.Vals)
			continue
		case "deadline":
			spec.Round.Deadline = float64(number(t, a.Vals[0]))
			continue
		}
		into := map[string]*int{"samples": &samples, "chunk": &spec.Chunk, "batch": &spec.Batch, "epochs": &spec.Epochs, "round": &spec.Round.Chunks,
			"max": &spec.MaxChunksPerContribution, "evaluate": &spec.EvaluateEvery, "heldout": &heldout}[a.Key]
		if into == nil {
			t.Fatalf("%s: no argument %q", d.Pos, a.Key)
		}
		*into = number(t, a.Vals[0])
	}
	data := dataset(samples)
	if heldout >= 0 {
		data.Heldout = heldout
	}
	p.world = newWorld(t, spec, data)
	if len(slots) > 0 {
		ids := make([]domain.SlotID, len(slots))
		for i, s := range slots {
			ids[i] = slot(s)
		}
		p.begin(ids...)
	}
	var b strings.Builder
	for _, e := range p.log {
		b.WriteString(fact(e))
	}
	return b.String()
}

func fact(e event.Envelope) string {
	return fmt.Sprintf("  %d %s: %s\n", e.Seq, e.Data.EventName(), e.Data.Line())
}

// line plays one line and tells what came of it.
func (p *player) line(line string) string {
	a := parse(p.t, line)
	switch a.word {
	case "show":
		return show(p.state)
	case "ledger":
		l := p.state.Ledger()
		return fmt.Sprintf("  %d of %d samples counted\n", l.Counted, l.Expected)
	case "restart":
		folded := p.fold()
		if diff := difference(p.state, folded); diff != "" {
			p.t.Fatalf("the fold of the log is not the live state:\n%s", diff)
		}
		p.state = folded
		return "  the state is folded anew from the log\n"
	}
	var b strings.Builder
	for _, c := range p.commands(a) {
		facts, err := p.decide(c)
		for _, f := range facts {
			b.WriteString(fact(f))
		}
		switch {
		case err != nil:
			fmt.Fprintf(&b, "  refused (%s): %v\n", domain.KindOf(err), err)
		case len(facts) == 0:
			b.WriteString("  nothing\n")
		}
	}
	return b.String()
}

// args is a line in pieces: word, values, and key=value pairs.
type args struct {
	t    tester
	word string
	vals []string
	keys map[string]string
}

func parse(t tester, line string) args {
	f := strings.Fields(line)
	a := args{t: t, word: f[0], keys: map[string]string{}}
	for _, v := range f[1:] {
		if k, v, ok := strings.Cut(v, "="); ok {
			a.keys[k] = v
			continue
		}
		a.vals = append(a.vals, v)
	}
	return a
}

func (a args) slot(i int) domain.SlotID {
	if i >= len(a.vals) {
		a.t.Fatalf("%s: a slot is missing", a.word)
	}
	return slot(a.vals[i])
}

// rest is the text behind the first n values.
func (a args) rest(n int) string { return strings.Join(a.vals[min(n, len(a.vals)):], " ") }

func (a args) int(key string, otherwise int) int {
	if v, ok := a.keys[key]; ok {
		return number(a.t, v)
	}
	return otherwise
}

func (a args) float(key string, otherwise float64) float64 {
	v, ok := a.keys[key]
	if !ok {
		return otherwise
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil {
		a.t.Fatalf("%s: %v", a.word, err)
	}
	return f
}

// slot reads "a" as "a/0".
func slot(s string) domain.SlotID {
	if !strings.Contains(s, "/") {
		s += "/0"
	}
	return domain.SlotID(s)
}

func number(t tester, s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// chunks reads "0-3,7".
func chunks(t tester, s string) []domain.ChunkID {
	var cs []domain.ChunkID
	for part := range strings.SplitSeq(s, ",") {
		from, to, ok := strings.Cut(part, "-")
		if !ok {
			to = from
		}
		for c := number(t, from); c <= number(t, to); c++ {
			cs = append(cs, domain.ChunkID(c))
		}
	}
	return cs
}
