package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tensorturn/domain/run"
	"tensorturn/projections/replay"
)

// 2-bit deltas with feedback up and increments of 4 bits down, on real processes: the run learns, both machines make their
// bases from increments, everything is recomputed bit for bit from the hub and from an archive, and a round without one
// machine's part can be had.
func TestCodedBothWays(t *testing.T) {
	t.Parallel()
	p, agents := pool(t, "a", "b")
	id := p.Submit(epochs(t, 24) + "codec: 2bit\ncodec_down: e3m0\n")
	r := p.AwaitEnd(id)
	checkRun(t, p, r)
	if len(r.Evaluations) == 0 || r.Evaluations[len(r.Evaluations)-1].Accuracy < 0.7 {
		t.Errorf("evaluations %+v", r.Evaluations)
	}
	merges, small := 0, 0
	for _, e := range p.Events() {
		if d, ok := e.Data.(*run.RoundMerged); ok {
			merges++
			if d.Down == run.CodecE3M0 && d.Increment != "" && d.NextResidual != "" && 5*d.IncrementBytes < d.BaseBytes {
				small++
			}
		}
	}
	if merges < 10 || small != merges {
		t.Errorf("%d of %d merges gave a small increment", small, merges)
	}
	for name, a := range agents {
		if strings.Contains(a.Output(), "increment not used") {
			t.Errorf("%s fetched a base whole:\n%s", name, a.Output())
		}
	}

	archive := filepath.Join(p.Dir, "run.archive")
	var out struct{ Key string }
	p.JSON(&out, "log", "export", string(id), "--output", archive)
	p.Must("log", "verify", archive, "--key", out.Key)

	var all []replay.Ancestor
	p.JSON(&all, "model", "lineage", string(id))
	var w replay.Without
	file := filepath.Join(p.Dir, "without.safetensors")
	p.JSON(&w, "model", "lineage", string(id), "--without", string(all[len(all)-1].Shares[0].Machine), "--out", file)
	if raw, err := os.ReadFile(file); err != nil || w.Actual != r.Model || w.Model == w.Actual || len(raw) == 0 {
		t.Errorf("%+v, %d bytes, %v", w, len(raw), err)
	}
}
