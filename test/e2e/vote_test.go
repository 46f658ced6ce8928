package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/run"
	"tensorturn/domain/vote"
	"tensorturn/projections/replay"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

// polled is a small ensemble over half of the digits; more goes into its ensemble section.
func polled(t *testing.T, more string) string {
	return strings.Replace(spec(t, "mode: ensemble\nmodel: {kind: mlp, hidden: [16]}\nepochs: 6\nensemble: {"+more+"}\n"), "keep_every: 1\n", "", 1)
}

// An ensemble from submit to export: what run show says of the vote follows from the outputs in the store, replay counts it again, and
// one flipped byte of a member's outputs is named.
func TestVoteOfAnEnsemble(t *testing.T) {
	t.Parallel()
	p, agents := pool(t, "a", "b")
	id := p.Submit(polled(t, "members: 4, vote: log_odds"))
	r := p.AwaitEnd(id)
	if r.Phase != run.PhaseCompleted || r.Vote == nil || len(r.Vote.Members) != 4 {
		t.Fatalf("the run is %s: %s, vote %+v", r.Phase, r.Reason, r.Vote)
	}
	checkVote(t, p, r)
	var v replay.Report
	p.JSON(&v, "run", "replay", string(id), "--verify")
	if v.Vote == nil || !v.Vote.Recomputed || v.Vote.Temperature != r.Vote.Temperature || v.Counted != v.Expected {
		t.Errorf("replay says %+v", v)
	}
	var origins []replay.Origin
	p.JSON(&origins, "model", "lineage", string(id))
	if len(origins) != 4 || origins[2].Weight == nil || *origins[2].Weight != r.Vote.Weights[2] || len(origins[2].Parts) == 0 {
		t.Errorf("lineage: %+v", origins)
	}
	checkEnsembleExport(t, p, r)
	if s := p.Run("model", "export", string(id), filepath.Join(p.Dir, "soup"), "--soup"); s.Code != 6 || !strings.Contains(s.Err, "different weights") || !strings.Contains(s.Err, "hint: ") {
		t.Errorf("members that began apart were averaged: exit code %d, %s", s.Code, s.Err)
	}
	part := partOf(t, p, r.Members[1].Outputs)
	for _, a := range agents {
		a.Stop(kit.Patience)
	}
	p.Hub.Stop(kit.Patience)
	f := &finished{Pool: p, id: id}
	file, at := f.find(t, "OBJ_BLOBS", part[:min(len(part), 4<<10)])
	p.Flip(file, at+100, 1)
	p.StartHub()
	s := p.Run("run", "replay", string(id), "--verify")
	if s.Code != 9 || !strings.Contains(s.Err, string(r.Members[1].Outputs)) && !strings.Contains(s.Err, sum(part)) {
		t.Errorf("with a byte of member 2's outputs flipped: exit code %d, %q", s.Code, s.Err)
	}
}

// checkVote counts the vote here, from the outputs in the store and the labels in the data set.
func checkVote(t *testing.T, p *kit.Pool, r runs.Run) {
	t.Helper()
	if r.Vote.Result.Vote.Accuracy <= r.Vote.Mean.Accuracy-0.02 || r.Vote.Disagreement <= 0 {
		t.Errorf("the vote is worse than a member alone: %+v", r.Vote.Result)
	}
	mean := 0.0
	for _, m := range r.Members {
		o, err := vote.ReadOutputs(bytes.NewReader(p.Blob(m.Outputs)), r.Data.Heldout, r.Data.Classes, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range r.Data.Heldout {
			sum := float32(0)
			for _, v := range o.Probabilities[i*r.Data.Classes : (i+1)*r.Data.Classes] {
				sum += v
			}
			if math.Abs(float64(sum)-1) > 1e-4 {
				t.Fatalf("member %d, row %d: probabilities sum to %v", m.Number, i, sum)
			}
		}
		mean += m.Accuracy / float64(len(r.Members))
	}
	if math.Abs(mean-r.Vote.Mean.Accuracy) > 0.05 { // all held-out rows there, the test part here
		t.Errorf("the trainers measured %v on average, the vote's worker %v", mean, r.Vote.Mean.Accuracy)
	}
	if n := len(r.Vote.Pairs); n != 6 {
		t.Errorf("%d pairs of 4 members", n)
	}
}

// checkEnsembleExport reads what model export writes.
func checkEnsembleExport(t *testing.T, p *kit.Pool, r runs.Run) {
	t.Helper()
	dir := filepath.Join(p.Dir, "out")
	p.Must("model", "export", string(r.ID), dir)
	var e struct {
		Rule        vote.Rule   `json:"vote"`
		Temperature float64     `json:"temperature"`
		Pairs       [][]float64 `json:"pairwise_disagreement"`
		Best        int         `json:"best_single"`
		Members     []struct {
			Path   string        `json:"path"`
			SHA256 domain.Digest `json:"sha256"`
			Weight *float64      `json:"weight"`
		} `json:"members"`
	}
	raw, err := os.ReadFile(filepath.Join(dir, "ensemble.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatal(err)
	}
	if e.Rule != vote.LogOdds || e.Temperature != r.Vote.Temperature || len(e.Members) != 4 || len(e.Pairs) != 4 || e.Pairs[1][3] != e.Pairs[3][1] || e.Best < 1 {
		t.Errorf("ensemble.json: %s", raw)
	}
	for i, m := range e.Members {
		weights, err := os.ReadFile(filepath.Join(dir, m.Path, "model.safetensors"))
		if err != nil || sum(weights) != string(m.SHA256) || m.Weight == nil || *m.Weight != r.Vote.Weights[i] {
			t.Errorf("member %d: %v, %+v", i+1, err, m)
		}
		if _, err := os.Stat(filepath.Join(dir, m.Path, "config.json")); err != nil {
			t.Error(err)
		}
	}
}

// partOf fetches the only part of a small blob as it is stored.
func partOf(t *testing.T, p *kit.Pool, id domain.Digest) []byte {
	t.Helper()
	text, err := p.Object(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	m, err := blob.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := p.Object(context.Background(), m.Parts[0])
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Members that began with the same weights may be averaged, when asked.
func TestSoupOfMembersWithOneStart(t *testing.T) {
	t.Parallel()
	p, _ := pool(t, "a")
	id := p.Submit(polled(t, "members: 3, recipe: {seed: false, bootstrap: true}"))
	r := p.AwaitEnd(id)
	dir := filepath.Join(p.Dir, "soup")
	var c struct {
		Soup     []int   `json:"soup"`
		Accuracy float64 `json:"held_out_accuracy"`
	}
	p.JSON(&c, "model", "export", string(id), dir, "--soup")
	if len(c.Soup) != 3 || c.Accuracy < r.Vote.Mean.Accuracy-0.05 {
		t.Errorf("the soup of %v has accuracy %v, a member alone %v", c.Soup, c.Accuracy, r.Vote.Mean.Accuracy)
	}
	if _, err := os.Stat(filepath.Join(dir, "model.safetensors")); err != nil {
		t.Error(err)
	}
}
