package e2e

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nlpodyssey/safetensors"

	"tensorturn/projections/goodput"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

// Two machines join, train one model together, and leave a folder that other tools read.
func TestTwoMachinesTrainOneModel(t *testing.T) {
	t.Parallel()
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	p.StartAgent("a", "--throttle", "0.02")
	p.StartAgent("b", "--throttle", "0.02")
	id := p.Submit(spec(t, "model: {kind: mlp, hidden: [32]}\nbatch: 32\nepochs: 6\nchunk: 64\nround: {chunks: 46}\n"))
	r := p.AwaitEnd(id)
	checkRun(t, p, r)
	if r.Totals.Expired+r.Totals.Requeued+r.Totals.Refused > 0 {
		t.Errorf("on a quiet pool leases expired or contributions were refused: %+v", r.Totals)
	}
	for _, s := range r.Slots {
		if s.Samples == 0 {
			t.Errorf("slot %s contributed nothing", s.Slot)
		}
	}
	if len(r.Slots) != 2 {
		t.Errorf("%d slots worked, want 2", len(r.Slots))
	}
	if n := len(r.Evaluations); n == 0 || r.Evaluations[n-1].Accuracy < 0.9 {
		t.Errorf("evaluations %+v, want an accuracy of 0.9 at the end", r.Evaluations)
	}
	checkExport(t, p, string(id))
	checkGoodput(t, p, r)
}

// checkGoodput reads where the time of a run that has ended went: the table and the JSON name both machines, and the ledger of seconds
// agrees with that of samples.
func checkGoodput(t *testing.T, p *kit.Pool, r runs.Run) {
	t.Helper()
	var g goodput.Report
	p.JSON(&g, "run", "goodput", string(r.ID))
	table := p.Must("run", "goodput", string(r.ID))
	if !g.Ended || len(g.Slots) != 2 || g.Total.Samples != r.Ledger.Counted || g.Total.Goodput <= 0 || g.Total.Goodput > 1 || g.Loss == "" {
		t.Errorf("%+v", g)
	}
	sum := 0.0
	for _, s := range g.Slots {
		if s.Goodput <= 0 || s.Goodput > 1 || s.Speed <= 0 || s.Connected > g.Elapsed+0.001 || !strings.Contains(table, "\n"+s.Name+" ") {
			t.Errorf("%+v in\n%s", s, table)
		}
		for _, k := range goodput.Kinds() {
			sum += s.Seconds[k]
		}
	}
	if math.Abs(sum-g.Total.Connected) > 0.001 {
		t.Errorf("the kinds sum to %v s of %v", sum, g.Total.Connected)
	}
}

// checkExport reads the exported folder with a safetensors reader that is not ours.
func checkExport(t *testing.T, p *kit.Pool, id string) {
	t.Helper()
	dir := filepath.Join(p.Dir, "model")
	p.Must("model", "export", id, dir)
	raw, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := safetensors.Deserialize(raw)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]uint64{"0.weight": {32, 64}, "0.bias": {32}, "2.weight": {10, 32}, "2.bias": {10}}
	if len(st.Names()) != len(want) {
		t.Errorf("tensors %v, want those of %v", st.Names(), want)
	}
	for name, shape := range want {
		v, ok := st.Tensor(name)
		if !ok {
			t.Errorf("no tensor %s in %v", name, st.Names())
			continue
		}
		got := v.Shape()
		if len(got) != len(shape) || got[0] != shape[0] || got[len(got)-1] != shape[len(shape)-1] {
			t.Errorf("tensor %s has shape %v, want %v", name, got, shape)
		}
	}
	var config struct {
		ModelType string   `json:"model_type"`
		Hidden    []int    `json:"hidden"`
		Classes   []string `json:"classes"`
		Mean      []float64
	}
	readJSON(t, filepath.Join(dir, "config.json"), &config)
	if config.ModelType != "tensorturn-mlp" || len(config.Classes) != 10 || len(config.Mean) != 64 {
		t.Errorf("config.json says %+v", config)
	}
	var card struct {
		Run    string
		Rounds int
		SHA256 string
	}
	readJSON(t, filepath.Join(dir, "tensorturn.json"), &card)
	if card.Run != id || card.Rounds == 0 || card.SHA256 != sum(raw) {
		t.Errorf("tensorturn.json says %+v of a file with SHA-256 %s", card, sum(raw))
	}
}

func readJSON(t *testing.T, file string, out any) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
