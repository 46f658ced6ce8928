package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"tensorturn/projections/replay"
)

// Every delta of a model is named, and a round can be had without one machine's part, weights and all.
func TestLineageOfAModel(t *testing.T) {
	t.Parallel()
	p, _ := pool(t, "a", "b")
	id := p.Submit(epochs(t, 3))
	r := p.AwaitEnd(id)
	var all []replay.Ancestor
	p.JSON(&all, "model", "lineage", string(id))
	if len(all) != r.Rounds.Merged || all[len(all)-1].Model != r.Model {
		t.Fatalf("%d merges, want %d", len(all), r.Rounds.Merged)
	}
	machine := all[len(all)-1].Shares[0].Machine
	file := filepath.Join(p.Dir, "without.safetensors")
	var w replay.Without
	p.JSON(&w, "model", "lineage", string(id), "--without", string(machine), "--out", file)
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if w.Actual != r.Model || w.Model == w.Actual || w.Dropped == 0 || len(raw) == 0 {
		t.Errorf("%+v, %d bytes", w, len(raw))
	}
	if s := p.Run("model", "lineage", string(id), "--without", "nobody"); s.Code != 3 {
		t.Errorf("without nobody: exit code %d, %s", s.Code, s.Err)
	}
}
