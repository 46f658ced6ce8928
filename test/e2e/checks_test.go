package e2e

import (
	"strconv"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/run"
	"tensorturn/projections/replay"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

// checkRun demands what every run that ended well must show: it completed, every sample counted once, and the log alone
// gives the same model, each merge recomputed bit for bit.
func checkRun(t *testing.T, p *kit.Pool, r runs.Run) replay.Report {
	t.Helper()
	if r.Phase != run.PhaseCompleted {
		t.Fatalf("the run is %s: %s", r.Phase, r.Reason)
	}
	if r.Ledger.Expected == 0 || r.Ledger.Counted != r.Ledger.Expected {
		t.Errorf("%d of %d samples counted", r.Ledger.Counted, r.Ledger.Expected)
	}
	var v replay.Report
	p.JSON(&v, "run", "replay", string(r.ID), "--verify")
	if v.Verdict != "bit-exact" || v.Recomputed != v.Rounds || v.Rounds != r.Rounds.Merged || v.Counted != v.Expected || v.Expected != r.Ledger.Expected {
		t.Errorf("replay says %+v of %d merged rounds and %d samples", v, r.Rounds.Merged, r.Ledger.Expected)
	}
	if v.Model != r.Model || v.Model == "" {
		t.Errorf("replay ends with model %q, the run with %q", v.Model, r.Model)
	}
	checkCounts(t, p, r.ID)
	return v
}

// checkCounts adds up the ledger from the accepted contributions itself: every chunk once.
func checkCounts(t *testing.T, p *kit.Pool, id domain.RunID) {
	t.Helper()
	by := map[domain.ChunkID]domain.SlotID{}
	var samples, expected int64
	for _, e := range p.Events() {
		if e.Agg != string(id) {
			continue
		}
		switch d := e.Data.(type) {
		case *run.Submitted:
			expected = int64(d.Spec.Epochs) * int64(d.Data.Samples)
		case *run.ContributionAccepted:
			for _, c := range d.Chunks {
				if other, ok := by[c]; ok {
					t.Errorf("record %d counts chunk %d of %s, which %s has contributed", e.Seq, c, d.Slot, other)
				}
				by[c] = d.Slot
			}
			samples += d.Samples
		case *run.ContributionRevoked:
			t.Errorf("record %d revokes contribution %d of %s", e.Seq, d.Number, d.Slot)
		}
	}
	if samples != expected || expected == 0 {
		t.Errorf("the accepted contributions hold %d samples, %d expected", samples, expected)
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

func sum(b []byte) string { return string(blob.Sum(b)) }
