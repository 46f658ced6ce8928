package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"tensorturn/domain"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
	"tensorturn/domain/vote"
	"tensorturn/projections/runs"
)

// ensembleCard is ensemble.json: how the members' answers become one.
type ensembleCard struct {
	Run         domain.RunID `json:"run"`
	Name        string       `json:"name"`
	Rule        vote.Rule    `json:"vote,omitempty"` // empty before the vote
	Temperature float64      `json:"temperature,omitempty"`
	Members     []exported   `json:"members"`           // by number
	Single      *exported    `json:"single,omitempty"`  // the model of the same compute; it has no vote
	Metrics     *vote.Result `json:"metrics,omitempty"` // its lists have the order of the members that have a weight
	Columns     []string     `json:"columns,omitempty"`
	Left        []leftOut    `json:"left_out"` // members that did not come in, and why
	Ledger      runs.Ledger  `json:"ledger"`
	Disagree    float64      `json:"disagreement"`                    // mean over pairs of the fraction of rows on which two members differ
	Pairs       [][]float64  `json:"pairwise_disagreement,omitempty"` // [voter][voter], in the order of metrics
	Best        int          `json:"best_single,omitempty"`           // number of the member that did best on the fitting rows
}

// exported is one member's folder.
type exported struct {
	Member  int           `json:"member"`
	Path    string        `json:"path"`             // members/<k>, from the folder of ensemble.json
	SHA256  domain.Digest `json:"sha256"`           // of its model.safetensors
	Weights domain.Digest `json:"weights"`          // blob id
	Weight  *float64      `json:"weight,omitempty"` // in the vote; none: it has no vote
	Seed    uint64        `json:"seed"`
	Why     string        `json:"why,omitempty"` // it has no vote
}

type leftOut struct {
	Member int    `json:"member"`
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
}

// memberCard is tensorturn.json of one member.
type memberCard struct {
	card
	Member runs.Member `json:"member"`
}

// exportEnsemble writes a folder for each member whose weights are in the store, and ensemble.json.
func (a *app) exportEnsemble(ctx context.Context, cl *client, r runs.Run, dir string) (ensembleCard, error) {
	c := ensembleCard{Run: r.ID, Name: r.Name, Members: []exported{}, Left: []leftOut{}, Ledger: r.Ledger}
	weights := map[int]float64{} // looked up only
	if r.Vote != nil {
		res := r.Vote.Result
		c.Rule, c.Temperature, c.Metrics, c.Disagree = res.Rule, res.Temperature, &res, res.Disagreement
		c.Pairs, c.Best = pairwise(&res), r.Vote.Members[res.Best].Member
		for i, m := range r.Vote.Members {
			weights[m.Member] = res.Weights[i]
		}
	}
	var facts *dataset.Facts
	if r.Spec.Trainer != run.Process { // a program knows how to build its model
		f, err := factsOf(ctx, cl, r)
		if err != nil {
			return c, err
		}
		facts = f
		c.Columns = f.Columns
	}
	for _, m := range r.Members {
		if m.Weights == "" || m.Status == run.MemberGone {
			if !m.Single {
				c.Left = append(c.Left, leftOut{m.Number, string(m.Status), m.Reason})
			}
			continue
		}
		x, err := exportMember(ctx, cl, r, m, facts, dir)
		if err != nil {
			return c, fmt.Errorf("member %d: %w", m.Number, err)
		}
		if w, voted := weights[m.Number]; voted {
			x.Weight = &w
		}
		if m.Single {
			c.Single = &x
			continue
		}
		c.Members = append(c.Members, x)
	}
	if len(c.Members) == 0 {
		return c, domain.Conflict("export model of "+string(r.ID), "no member is trained yet", "wait for the first: tensorturn run watch "+string(r.ID))
	}
	return c, writeJSON(filepath.Join(dir, "ensemble.json"), c)
}

// pairwise is the matrix of the fractions of test rows on which two members name different classes.
func pairwise(v *vote.Result) [][]float64 {
	m := make([][]float64, len(v.Members))
	for i := range m {
		m[i] = make([]float64, len(v.Members))
	}
	at := 0
	for i := range m {
		for j := i + 1; j < len(m) && at < len(v.Pairs); j++ {
			m[i][j] = float64(v.Pairs[at]) / float64(v.TestRows)
			m[j][i] = m[i][j]
			at++
		}
	}
	return m
}

// exportMember writes members/<k>, which loads on its own.
func exportMember(ctx context.Context, cl *client, r runs.Run, m *runs.Member, facts *dataset.Facts, dir string) (exported, error) {
	name := itoa(m.Number)
	if m.Single {
		name = "single"
	}
	x := exported{Member: m.Number, Path: filepath.ToSlash(filepath.Join("members", name)), Weights: m.Weights, Seed: m.Seed}
	if m.Outputs == "" {
		x.Why = m.Unvoted
	}
	to := filepath.Join(dir, "members", name)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return x, domain.Invalid("export model", plainPathError(err), "choose another folder")
	}
	sum, err := copyBlob(ctx, cl, m.Weights, filepath.Join(to, "model.safetensors"))
	if err != nil {
		return x, err
	}
	x.SHA256 = sum
	spec := run.MemberSpec(r.Spec, m.Number)
	if facts != nil {
		if err := writeJSON(filepath.Join(to, "config.json"), configOf(spec, *facts)); err != nil {
			return x, err
		}
	}
	return x, writeJSON(filepath.Join(to, "tensorturn.json"), memberCard{Member: *m, card: card{Run: r.ID, Name: r.Name, Phase: r.Phase, Weights: m.Weights, SHA256: sum,
		FirstEvent: r.FirstSeq, LastEvent: r.LastSeq, Data: r.Data, Seed: m.Seed, Ledger: runs.Ledger{Expected: m.Total, Counted: m.Samples}, Spec: spec, Evaluations: []run.Evaluated{}}})
}
