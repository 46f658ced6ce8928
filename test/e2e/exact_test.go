package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nlpodyssey/safetensors"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/builtin"
	"tensorturn/agent/trainer/trainertest"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

// One machine with eta 1, mu 0 and exact deltas gives, after 50 rounds through hub and agent, the bits of the plain
// trainer.
func TestOneMachineEqualsPlainTraining(t *testing.T) {
	t.Parallel()
	p := kit.NewPool(t, binary, 2*lease)
	p.StartHub()
	p.StartAgent("a")
	id := p.Submit(spec(t, "model: {kind: mlp, hidden: [32]}\nbatch: 32\nepochs: 50\nchunk: 128\nround: {chunks: 12}\nouter: {lr: 1, momentum: 0}\ncodec: fp32\n"))
	r := p.AwaitEnd(id)
	checkRun(t, p, r)
	if r.Rounds.Merged != 50 || r.Rounds.Eta != 1 || r.Rounds.Mu != 0 {
		t.Fatalf("rounds are %+v, want 50 with eta 1 and mu 0", r.Rounds)
	}
	var want bytes.Buffer
	if _, err := trainertest.Plain(context.Background(), builtin.Open, plainJob(t, r), &want); err != nil {
		t.Fatal(err)
	}
	got := p.Blob(r.Model)
	differ, zeros := 0, 0
	compareWeights(t, got, want.Bytes(), func(a, b float32) {
		switch {
		case math.Float32bits(a) == math.Float32bits(b):
		case a == 0 && b == 0: // signed zeros count as equal
			zeros++
		default:
			differ++
		}
	})
	if differ > 0 {
		t.Errorf("%d weights differ from plain training", differ)
	}
	t.Logf("equal bits; %d zeros differ in sign", zeros)
}

// plainJob packs the run's data here, from the file, and gives the job that the agent had.
func plainJob(t *testing.T, r runs.Run) trainer.Job {
	t.Helper()
	f, err := os.Open(r.Spec.Data.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := dataset.ParseCSV(f, dataset.CSVOptions{Label: r.Spec.Data.Label})
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	if _, err := dataset.Pack(table, r.Spec.Data.Holdout, r.Spec.Seed, &packed); err != nil {
		t.Fatal(err)
	}
	return trainer.Job{Run: r.ID, Spec: r.Spec, Dataset: r.Data, Data: bytes.NewReader(packed.Bytes())}
}

// Four contributions of one batch each are one step of one machine on four times the batch.
func TestFourContributionsEqualFourTimesTheBatch(t *testing.T) {
	t.Parallel()
	p := kit.NewPool(t, binary, 2*lease)
	p.StartHub()
	p.StartAgent("a")
	p.StartAgent("b")
	data := evenDigits(t)
	const common = "\nmodel: {kind: mlp, hidden: [32]}\nepochs: 4\noptimizer: {kind: sgd, lr: 0.1, clip: -1}\nschedule: {kind: constant, warmup: -1}\n" +
		"outer: {lr: 1, momentum: 0}\ncodec: fp32\nkeep_every: 1\n"
	four := p.AwaitEnd(p.Submit("name: four\ndata: {path: " + data + "}" + common + "batch: 32\nchunk: 32\nround: {chunks: 4}\nmax_chunks_per_contribution: 1\n"))
	checkRun(t, p, four)
	one := p.AwaitEnd(p.Submit("name: one\ndata: {path: " + data + "}" + common + "batch: 128\nchunk: 128\nround: {chunks: 1}\n"))
	checkRun(t, p, one)
	if four.Data.Samples%128 != 0 || four.Rounds.Merged != one.Rounds.Merged || one.Rounds.Merged < 8 {
		t.Fatalf("%d samples in %d and %d rounds: the two runs cannot be compared", four.Data.Samples, four.Rounds.Merged, one.Rounds.Merged)
	}
	for _, e := range p.Events() {
		if d, ok := e.Data.(*run.ContributionAccepted); ok && len(d.Chunks) != 1 {
			t.Fatalf("record %d contributes %d chunks", e.Seq, len(d.Chunks))
		}
	}
	worst, moved := 0.0, 0.0
	compareWeights(t, p.Blob(four.Model), p.Blob(one.Model), func(a, b float32) {
		worst = max(worst, math.Abs(float64(a)-float64(b)))
		moved = max(moved, math.Abs(float64(a)))
	})
	if worst > 1e-5 || moved < 0.01 {
		t.Errorf("weights differ by up to %g, want 1e-5 at most (largest weight %g)", worst, moved)
	}
	t.Logf("weights differ by up to %g", worst)
}

// evenDigits writes 160 rows of each of two digits: 256 to train on, so that every batch is full, and 64 held out.
func evenDigits(t *testing.T) string {
	t.Helper()
	f, err := os.Open("../../cmd/tensorturn/demo/digits.csv.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	have := map[string]int{}
	for lines := bufio.NewScanner(z); lines.Scan(); {
		row := lines.Text()
		label := row[strings.LastIndex(row, ",")+1:]
		if have[label]++; (label == "0" || label == "1") && have[label] <= 160 {
			rows = append(rows, row)
		}
	}
	if len(rows) != 320 {
		t.Fatalf("%d rows of two digits", len(rows))
	}
	file := filepath.Join(t.TempDir(), "even.csv")
	write(t, file, strings.Join(rows, "\n")+"\n")
	return file
}

// compareWeights hands the values of two safetensors files to each, pair by pair, read by a reader that is not ours.
func compareWeights(t *testing.T, a, b []byte, each func(a, b float32)) {
	t.Helper()
	sa, err := safetensors.Deserialize(a)
	if err != nil {
		t.Fatal(err)
	}
	sb, err := safetensors.Deserialize(b)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range sa.Names() {
		va, _ := sa.Tensor(name)
		vb, ok := sb.Tensor(name)
		if !ok || len(va.Data()) != len(vb.Data()) || va.DType() != vb.DType() {
			t.Fatalf("tensor %s is not the same in both files", name)
		}
		for i := 0; i+4 <= len(va.Data()); i += 4 {
			each(float(va.Data()[i:]), float(vb.Data()[i:]))
			n++
		}
	}
	if n == 0 || len(sa.Names()) != len(sb.Names()) {
		t.Fatalf("tensors %v and %v", sa.Names(), sb.Names())
	}
}

func float(b []byte) float32 {
	return math.Float32frombits(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)
}
