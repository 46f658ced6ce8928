package run_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

func processSpec() run.Spec {
	return run.Spec{Trainer: "process", Command: []string{"python", "src/train.py", "--depth", "3"}, Data: run.Data{Samples: 60000, Heldout: 10000}}
}

func processData(s run.Spec) run.Dataset {
	return run.ProcessData(s, domain.Digest(strings.Repeat("a", 64)))
}

func TestProcessSpecResolves(t *testing.T) {
	s := processSpec()
	got, err := run.Resolve(s, processData(s))
	if err != nil {
		t.Fatal(err)
	}
	lr, mu := 1.0, 0.5
	want := s
	want.Name, want.Mode, want.Seed, want.Batch, want.Epochs, want.Chunk = "train", run.ModeFused, 1, 32, 20, 128
	want.Round.Chunks, want.Outer, want.Codec, want.KeepEvery = 469, run.Outer{LR: &lr, Momentum: &mu}, run.CodecE3M0, 10
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	measured := processData(s) // the hub adds the bytes of the code that is stored
	measured.Bytes = 2560
	again, err := run.Resolve(got, measured)
	if err != nil || !reflect.DeepEqual(got, again) {
		t.Errorf("%v\n%s", err, cmp.Diff(got, again))
	}
	facts, err := run.Decide(nil, run.Submit{Spec: got, Data: processData(s)})
	if err != nil {
		t.Fatal(err)
	}
	if state := run.Evolve(nil, event.Envelope{Seq: 1, Data: facts[0]}); len(state.Chunks) != 20*469 {
		t.Errorf("%d chunks", len(state.Chunks))
	}
}

func TestProcessSpecRefusesBadFields(t *testing.T) {
	tests := []struct {
		name string
		edit func(s *run.Spec)
		why  string
		next string
	}{
		{"no command", func(s *run.Spec) { s.Command = nil }, "command is 0 words long", "[python, train.py]"},
		{"too many words", func(s *run.Spec) { s.Command = make([]string, run.MaxCommandWords+1) }, "command is 65 words", "1 to 64"},
		{"no program", func(s *run.Spec) { s.Command[0] = "" }, "command[0] is empty", "a program"},
		{"a long word", func(s *run.Spec) { s.Command[1] = strings.Repeat("x", run.MaxCommandWord+1) }, "command[1] is 1025 bytes", "at most 1024"},
		{"a control character", func(s *run.Spec) { s.Command[1] = "a\x00b" }, "command[1]", "without control"},
		{"no samples", func(s *run.Spec) { s.Data.Samples = 0 }, "data.samples is 0", "2 to"},
		{"held out", func(s *run.Spec) { s.Data.Heldout = -1 }, "data.heldout is -1", "0 to"},
		{"a model", func(s *run.Spec) { s.Model.Kind = "mlp" }, "model is set", "remove model"},
		{"an optimizer", func(s *run.Spec) { s.Optimizer.LR = 1 }, "optimizer is set", "in the program"},
		{"a schedule", func(s *run.Spec) { s.Schedule.Kind = "cosine" }, "schedule is set", "in the program"},
		{"a data file", func(s *run.Spec) { s.Data.Path = "x.csv" }, "data.path is set", "remove data.path"},
		{"a format", func(s *run.Spec) { s.Data.Format = "csv" }, "data.format is set", "remove data.format"},
		{"a task", func(s *run.Spec) { s.Data.Task = "regression" }, "data.task is set", "remove data.task"},
		{"labels", func(s *run.Spec) { s.Data.Labels = "y.idx" }, "data.labels is set", "remove data.labels"},
		{"a shape", func(s *run.Spec) { s.Data.Shape = []int{8, 8} }, "data.shape is set", "remove data.shape"},
		{"missing values", func(s *run.Spec) { s.Data.Missing = "mean" }, "data.missing is set", "remove data.missing"},
		{"categories", func(s *run.Spec) { s.Data.Categories = []string{"a"} }, "data.categories is set", "remove data.categories"},
		{"columns to ignore", func(s *run.Spec) { s.Data.Ignore = []string{"a"} }, "data.ignore is set", "remove data.ignore"},
		{"built-in", func(s *run.Spec) { s.Trainer = "builtin" }, "command is set", "add trainer: process"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := processSpec()
			tt.edit(&s)
			_, err := run.Resolve(s, processData(s))
			if domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), tt.why) || !strings.Contains(domain.NextOf(err), tt.next) {
				t.Errorf("%v\nnext: %s\nwant %q and %q", err, domain.NextOf(err), tt.why, tt.next)
			}
		})
	}
	s := processSpec()
	d := processData(s)
	d.Samples--
	if _, err := run.Resolve(s, d); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("other data than the spec's: %v", err)
	}
}

// A recorded process run reads back as it was, and a built-in one is recorded as before there were process runs.
func TestProcessSpecSurvivesTheLog(t *testing.T) {
	s := processSpec()
	resolved, err := run.Resolve(s, processData(s))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := run.Resolve(run.Spec{}, dataset(100))
	if err != nil {
		t.Fatal(err)
	}
	r := registry()
	for name, d := range map[string]*run.Submitted{"process": {Spec: resolved, Data: processData(s)}, "builtin": {Spec: plain, Data: dataset(100)}} {
		b, err := msgpack.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		back, err := r.New(d.EventName(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := msgpack.Unmarshal(b, back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, back); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if has := bytes.Contains(b, []byte("command")); has != (name == "process") {
			t.Errorf("%s: the command is recorded: %v", name, has)
		}
	}
}

// Who predicts by a command does not speak, so its weights have a name; without one the program shows what it is.
func TestOutputOfAMember(t *testing.T) {
	for _, c := range []struct {
		mode         run.Mode
		predict      []string
		output, want string
		refused      string
	}{
		{run.ModeEnsemble, nil, "", "", ""},
		{run.ModeEnsemble, nil, "w.safetensors", "w.safetensors", ""},
		{run.ModeEnsemble, []string{"p"}, "", run.DefaultOutput, ""},
		{run.ModeEnsemble, []string{"p"}, "w.safetensors", "w.safetensors", ""},
		{run.ModeFused, []string{"p"}, "", "", "predict is set, but the mode is fused"},
	} {
		s := processSpec()
		s.Mode, s.Predict, s.Output = c.mode, c.predict, c.output
		got, err := run.Resolve(s, processData(s))
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%+v: %v", c, err)
			}
		} else if err != nil || got.Output != c.want {
			t.Errorf("%+v: %q, %v", c, got.Output, err)
		}
	}
}
