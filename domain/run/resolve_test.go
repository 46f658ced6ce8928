package run_test

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

func TestResolveFillsEveryDefault(t *testing.T) {
	got, err := run.Resolve(run.Spec{Data: run.Data{Path: "data/digits.csv.gz"}}, dataset(1438))
	if err != nil {
		t.Fatal(err)
	}
	lr, mu := 1.0, 0.5
	want := run.Spec{
		Name: "digits", Mode: run.ModeFused, Seed: 1,
		Data: run.Data{Path: "data/digits.csv.gz", Label: "last", Holdout: 0.2}, Trainer: "builtin",
		Model:     run.Model{Kind: "mlp", Hidden: []int{64}},
		Optimizer: run.Optimizer{Kind: "adamw", LR: 3e-3, Beta1: 0.9, Beta2: 0.999, Clip: 1},
		Schedule:  run.Schedule{Kind: "cosine", Warmup: 0.03, Floor: 0.05},
		Batch:     32, Epochs: 20, Chunk: 128, Round: run.Round{Chunks: 12}, Outer: run.Outer{LR: &lr, Momentum: &mu},
		Codec: run.CodecE3M0, KeepEvery: 10,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if n := run.Planned(got, dataset(1438)); n != 20 {
		t.Errorf("%d rounds are planned", n)
	}
}

// What a spec says is kept, and a resolved spec resolves to itself.
func TestResolveIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batch := rapid.IntRange(0, 64).Draw(t, "batch")
		s := run.Spec{Batch: batch, Epochs: rapid.IntRange(0, 50).Draw(t, "epochs"), Chunk: rapid.IntRange(0, 9).Draw(t, "chunk") * max(batch, 32)}
		s.Round.Chunks = rapid.IntRange(0, 100).Draw(t, "round")
		s.Optimizer.Kind = rapid.SampledFrom([]string{"", "adamw", "sgd"}).Draw(t, "optimizer")
		s.Schedule.Kind = rapid.SampledFrom([]string{"", "cosine", "constant"}).Draw(t, "schedule")
		s.Schedule.Warmup = rapid.SampledFrom([]float64{0, -1, 0.5}).Draw(t, "warmup")
		d := dataset(rapid.IntRange(2, 5000).Draw(t, "samples"))
		if batch > 0 && s.Chunk%batch != 0 {
			s.Chunk = 0
		}
		once, err := run.Resolve(s, d)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := run.Resolve(once, d)
		if err != nil || !reflect.DeepEqual(once, twice) {
			t.Fatalf("%v\n%s", err, cmp.Diff(once, twice))
		}
		if s.Round.Chunks == 0 && run.Planned(once, d) < min(run.DefaultRounds, run.TotalChunks(once, d)) {
			t.Fatalf("%d chunks make only %d rounds", run.TotalChunks(once, d), run.Planned(once, d))
		}
		if _, err := run.Decide(nil, run.Submit{Spec: once, Data: d}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOuterFollowsPlannedRounds(t *testing.T) {
	for planned, want := range map[int][2]float64{39: {1, 0.5}, 40: {0.7, 0.7}, 400: {0.7, 0.7}, 401: {0.7, 0.9}} {
		s, err := run.Resolve(run.Spec{Batch: 1, Chunk: 1, Epochs: 1, Round: run.Round{Chunks: 1}}, dataset(planned))
		if err != nil || *s.Outer.LR != want[0] || *s.Outer.Momentum != want[1] {
			t.Errorf("%d rounds: %v, %v, %v, want %v", planned, *s.Outer.LR, *s.Outer.Momentum, err, want)
		}
	}
}

// Every error names the field and the value, and says what is allowed.
func TestResolveRefusesBadFields(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	tests := []struct {
		name string
		edit func(s *run.Spec)
		why  string
		next string
	}{
		{"name too long", func(s *run.Spec) { s.Name = strings.Repeat("x", 81) }, "name is 81 bytes long", "at most 80 bytes"},
		{"name with a line break", func(s *run.Spec) { s.Name = "a\nb" }, `name is "a\nb"`, "without control"},
		{"name not UTF-8", func(s *run.Spec) { s.Name = "\xff" }, `name is "\xff"`, "UTF-8"},
		{"mode", func(s *run.Spec) { s.Mode = "gossip" }, `mode is "gossip"`, `set mode to "fused"`},
		{"holdout", func(s *run.Spec) { s.Data.Holdout = 0.95 }, "data.holdout is 0.95", "up to 0.9"},
		{"holdout NaN", func(s *run.Spec) { s.Data.Holdout = math.NaN() }, "data.holdout is NaN", "above 0"},
		{"trainer", func(s *run.Spec) { s.Trainer = "torch" }, `trainer is "torch"`, "builtin"},
		{"model", func(s *run.Spec) { s.Model.Kind = "forest" }, `model.kind is "forest"`, "mlp"},
		{"hidden width", func(s *run.Spec) { s.Model.Hidden = []int{8, 0} }, "model.hidden[1] is 0", "1 to 65536"},
		{"too many layers", func(s *run.Spec) { s.Model.Hidden = make([]int, 33) }, "model.hidden is 33 layers long", "at most 32"},
		{"optimizer", func(s *run.Spec) { s.Optimizer.Kind = "adam" }, `optimizer.kind is "adam"`, `"adamw" or "sgd"`},
		{"rate", func(s *run.Spec) { s.Optimizer.LR = -1 }, "optimizer.lr is -1", "above 0"},
		{"decay", func(s *run.Spec) { s.Optimizer.WeightDecay = -0.1 }, "optimizer.weight_decay is -0.1", "0 to 1"},
		{"beta1", func(s *run.Spec) { s.Optimizer.Beta1 = 1 }, "optimizer.beta1 is 1", "below 1"},
		{"beta2", func(s *run.Spec) { s.Optimizer.Beta2 = -0.5 }, "optimizer.beta2 is -0.5", "below 1"},
		{"a label of text", func(s *run.Spec) { s.Data.Format, s.Data.Label = run.FormatText, "style" }, `data.label is "style", but the data is text`, "remove data.label"},
		{"betas with sgd", func(s *run.Spec) { s.Optimizer = run.Optimizer{Kind: "sgd", Beta1: 0.9} }, "optimizer.beta1 is 0.9, and optimizer.kind is sgd", "remove optimizer.beta1"},
		{"clip", func(s *run.Spec) { s.Optimizer.Clip = math.Inf(1) }, "optimizer.clip is +Inf", "negative number for no clipping"},
		{"schedule", func(s *run.Spec) { s.Schedule.Kind = "linear" }, `schedule.kind is "linear"`, `"cosine" or "constant"`},
		{"warm-up", func(s *run.Spec) { s.Schedule.Warmup = 2 }, "schedule.warmup is 2", "-1 for no warm-up"},
		{"floor", func(s *run.Spec) { s.Schedule.Floor = 1.5 }, "schedule.floor is 1.5", "fraction of the peak"},
		{"batch", func(s *run.Spec) { s.Batch = -1 }, "batch is -1", "1 to 1048576"},
		{"epochs", func(s *run.Spec) { s.Epochs = run.MaxEpochs + 1 }, "epochs is 1048577", "1 to 1048576"},
		{"chunk", func(s *run.Spec) { s.Chunk = 33 }, "chunk is 33", "a multiple of batch (32)"},
		{"chunk below batch", func(s *run.Spec) { s.Chunk = -32 }, "chunk is -32", "a multiple of batch (32)"},
		{"round", func(s *run.Spec) { s.Round.Chunks = run.MaxRoundChunks + 1 }, "round.chunks is 32769", "to 32768"},
		{"deadline", func(s *run.Spec) { s.Round.Deadline = -1 }, "round.deadline_seconds is -1", "0 to"},
		{"outer rate", func(s *run.Spec) { s.Outer.LR = f(0) }, "outer.lr is 0", "above 0"},
		{"outer momentum", func(s *run.Spec) { s.Outer.Momentum = f(1) }, "outer.momentum is 1", "below 1"},
		{"codec", func(s *run.Spec) { s.Codec = "zip" }, `codec is "zip"`, `"e3m0" or "int8" or "2bit" or "fp32"`},
		{"codec_down", func(s *run.Spec) { s.CodecDown = "2bit" }, `codec_down is "2bit"`, `"fp32" or "int8" or "e3m0"`},
		{"contribution", func(s *run.Spec) { s.MaxChunksPerContribution = -1 }, "max_chunks_per_contribution is -1", "0 to"},
		{"contributions of a round", func(s *run.Spec) { s.Round.Chunks, s.MaxChunksPerContribution = 1025, 1 }, "max_chunks_per_contribution is 1", "set max_chunks_per_contribution to 2 or more"},
		{"evaluate", func(s *run.Spec) { s.EvaluateEvery = -1 }, "evaluate_every is -1", "0 to"},
		{"keep", func(s *run.Spec) { s.KeepEvery = -1 }, "keep_every is -1", "1 to"},
		{"too many chunks", func(s *run.Spec) { s.Batch, s.Chunk, s.Epochs = 1, 1, 700000 }, "1000 samples × 700000 epochs make 700000000 chunks, at most 1048576", "set chunk to 1000 or more"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s run.Spec
			tt.edit(&s)
			_, err := run.Resolve(s, dataset(1000))
			if domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), tt.why) || !strings.Contains(domain.NextOf(err), tt.next) {
				t.Errorf("%v\nnext: %s\nwant %q and %q", err, domain.NextOf(err), tt.why, tt.next)
			}
		})
	}
}

func TestResolveRefusesBadData(t *testing.T) {
	tests := []struct {
		name string
		edit func(d *run.Dataset)
		why  string
	}{
		{"empty", func(d *run.Dataset) { d.Samples = 0 }, "the data set is empty"},
		{"one sample", func(d *run.Dataset) { d.Samples = 1 }, "one training sample"},
		{"negative", func(d *run.Dataset) { d.Heldout = -1 }, "-1 held-out"},
		{"too many", func(d *run.Dataset) { d.Samples = run.MaxSamples + 1 }, "at most"},
		{"one class", func(d *run.Dataset) { d.Classes = 1 }, "nothing to tell apart"},
		{"a measurement as label", func(d *run.Dataset) { d.Classes = run.MaxClasses + 1 }, "65537 classes"},
		{"no features", func(d *run.Dataset) { d.Features = 0 }, "0 feature columns"},
		{"no block", func(d *run.Dataset) { d.Block = 0 }, "blocks of 0"},
		{"no digest", func(d *run.Dataset) { d.Blob = "x" }, "no digest"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := dataset(100)
			tt.edit(&d)
			if _, err := run.Resolve(run.Spec{}, d); domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), tt.why) {
				t.Errorf("%v, want %q", err, tt.why)
			}
		})
	}
}

// Fewer samples than a batch, and nothing held out, are allowed.
func TestSmallDataIsAllowed(t *testing.T) {
	d := dataset(2)
	d.Heldout = 0
	w := newWorld(t, run.Spec{Epochs: 1}, d)
	if n := run.ChunkSamples(w.state.Spec, d, 0); n != 2 || len(w.state.Chunks) != 1 {
		t.Errorf("%d samples in the first of %d chunks", n, len(w.state.Chunks))
	}
	w.begin("a/0")
	w.train("a/0", 0)
	w.must(w.accept("a/0"), run.CloseRound{Round: 1}, w.merge())
	if w.state.Phase != run.PhaseCompleted {
		t.Errorf("with nothing held out the run is %s", w.state.Phase)
	}
}

func TestSubmitDemandsAResolvedSpec(t *testing.T) {
	s, err := run.Resolve(run.Spec{}, dataset(100))
	if err != nil {
		t.Fatal(err)
	}
	s.Outer.LR = nil
	if _, err := run.Decide(nil, run.Submit{Spec: s, Data: dataset(100)}); domain.KindOf(err) != domain.KindInvalid {
		t.Error(err)
	}
	w := newWorld(t, run.Spec{}, dataset(100))
	if facts, err := w.decide(run.Submit{Spec: w.state.Spec, Data: dataset(100)}); err != nil || len(facts) > 0 {
		t.Errorf("the same again: %v, %v", facts, err)
	}
	if _, err := w.decide(run.Submit{Spec: w.state.Spec, Data: dataset(90)}); domain.KindOf(err) != domain.KindConflict {
		t.Errorf("other data under the same id: %v", err)
	}
}

// An empty list of layers is a wish that cannot be met, not a wish for the default.
func TestNoHiddenLayersIsRefused(t *testing.T) {
	s := run.Spec{Data: run.Data{Path: "x.csv"}, Model: run.Model{Hidden: []int{}}}
	if _, err := run.Defaults(s); domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), "model.hidden is an empty list") {
		t.Errorf("%v", err)
	}
	s.Model.Hidden = nil
	if got, err := run.Defaults(s); err != nil || len(got.Model.Hidden) != 1 {
		t.Errorf("%v %v", got.Model.Hidden, err)
	}
}
