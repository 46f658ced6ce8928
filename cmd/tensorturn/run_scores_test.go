package main

import (
	"testing"

	"tensorturn/domain/run"
	"tensorturn/domain/vote"
)

// A report of a vote says on which rows each figure is, why the rule is in force, and that the best member was chosen on others.
func TestVoteWords(t *testing.T) {
	fitted := &vote.Result{Asked: vote.Auto, Rule: vote.Stacking, Rows: 240, FitRows: 120, TestRows: 120, Best: 1, Members: []vote.Score{{Accuracy: 0.95}, {Accuracy: 0.9333}}}
	few := &vote.Result{Asked: vote.Auto, Rule: vote.Mean, Fallback: "too few rows", Rows: 20, TestRows: 20, Members: []vote.Score{{Accuracy: 0.95}}}
	for _, c := range []struct{ got, want string }{
		{measuredOn(fitted), "on 120 of 240 held-out rows used; the other 120 chose weights, temperatures (T) and the best member, so that a figure at T may be worse here:"},
		{measuredOn(few), "on all 20 held-out rows used, too few to fit weights or temperatures on a part of them:"},
		{ruleText(fitted), "stacking (auto stacks up to 8 members, and it was a gain on rows it was not fitted on)"},
		{ruleText(few), "mean (too few rows)"},
		{ruleText(&vote.Result{Asked: vote.Auto, Rule: vote.Greedy}), "greedy (auto selects among more than 8 members, and it was a gain on rows it was not fitted on)"},
		{ruleText(&vote.Result{Asked: vote.Stacking, Rule: vote.Stacking}), "stacking"},
		{bestText(fitted, 2), "2: accuracy 0.9333 on these rows, best on the 120 that chose"},
		{bestText(few, 1), "1: accuracy 0.9500"},
		{votedRows(fitted), "120 of 240 rows; the others chose temperature, weights and best member"},
		{chunkRange(0, 900), "0–899"}, {chunkRange(3, 4), "3"}, {chunkRange(3, 3), "-"},
		{(&run.MemberPredicted{Slot: "a/0", Member: 5, Single: true, Outputs: &run.MemberOutputs{Accuracy: 0.9, Loss: 0.3, Rows: 7}}).Line(), "a/0 brings the single model in: accuracy 0.9000, loss 0.3 on 7 rows"},
	} {
		if c.got != c.want {
			t.Errorf("%s", c.got)
		}
	}
}
