package main

import (
	"fmt"
	"strings"

	"tensorturn/domain/run"
	"tensorturn/domain/vote"
	"tensorturn/projections/runs"
)

// membersIn counts the members that are in, and those that may vote.
func membersIn(r runs.Run) (in, all int) {
	for _, m := range r.Members {
		if m.Single || m.Status == run.MemberGone {
			continue
		}
		all++
		if m.Status == run.MemberIn {
			in++
		}
	}
	return in, all
}

// ensembleRows are the figures of an ensemble.
func ensembleRows(r runs.Run) [][]string {
	in, all := membersIn(r)
	rows := [][]string{{"members", fmt.Sprintf("%d of %d in, at least %d must be", in, all, r.Spec.Ensemble.Min)},
		{"requeued members", itoa(requeues(r))}}
	if r.Vote == nil {
		if r.Phase == run.PhaseCompleted {
			rows = append(rows, []string{"held-out", "not voted: no member has outputs on held-out rows"})
		}
		return rows
	}
	v := &r.Vote.Result
	rows = append(rows,
		[]string{"vote", fmt.Sprintf("%s over %s, temperature %.3g", ruleText(v), count(len(r.Vote.Members), "member"), v.Temperature)},
		[]string{"held-out", fmt.Sprintf("accuracy %.4f, loss %.4f on %s", v.Vote.Accuracy, v.Vote.ScaledNLL, votedRows(v))},
		[]string{"a member alone", fmt.Sprintf("accuracy %.4f, loss %.4f on average", v.Mean.Accuracy, v.Mean.ScaledNLL)},
		[]string{"disagreement", fmt.Sprintf("%.2f %% of rows, mean over pairs", 100*v.Disagreement)},
		[]string{"calibration error", fmt.Sprintf("%.4f, after temperature %.4f", v.Vote.ECE, v.Vote.ScaledECE)})
	if v.Best >= 0 && v.Best < len(r.Vote.Members) {
		rows = append(rows, []string{"best member", bestText(v, r.Vote.Members[v.Best].Member)})
	}
	if v.Single != nil {
		rows = append(rows, []string{"single model", fmt.Sprintf("accuracy %.4f, loss %.4f for the compute of all members", v.Single.Accuracy, v.Single.ScaledNLL)})
	}
	return rows
}

// votedRows says how many rows a vote is measured on, and why not on all.
func votedRows(v *vote.Result) string {
	if v.FitRows == 0 {
		return count(v.TestRows, "row")
	}
	return fmt.Sprintf("%d of %s; the others chose temperature, weights and best member", v.TestRows, count(v.Rows, "row"))
}

// requeues counts how often a member went back to the queue.
func requeues(r runs.Run) int {
	n := 0
	for _, m := range r.Members {
		n += m.Requeued
	}
	return n
}

// memberTable says where each member stands and who trained it. Its accuracy is of all held-out rows, as its own trainer measured it.
func (a *app) memberTable(r runs.Run) {
	rows := [][]string{}
	for _, m := range r.Members {
		name := itoa(m.Number)
		if m.Single {
			name = "single"
		}
		accuracy := "-"
		if m.Outputs != "" {
			accuracy = fmt.Sprintf("%.4f", m.Accuracy)
		}
		rows = append(rows, []string{name, string(m.Status), string(m.Slot), percent(m.Samples, m.Total), itoa(m.Saved), itoa(m.Requeued), trainedBy(m), accuracy, cmpOr(m.Reason, m.Unvoted)})
	}
	a.table([]string{"MEMBER", "STATUS", "SLOT", "TRAINED", "CHECKPOINTS", "REQUEUED", "BY", "ACCURACY (ALL)", "REASON"}, rows)
}

// trainedBy lists the slots of a member's stretches, in order.
func trainedBy(m *runs.Member) string {
	var by []string
	for _, g := range m.Stretch {
		if n := len(by); n == 0 || by[n-1] != string(g.Slot) {
			by = append(by, string(g.Slot))
		}
	}
	return strings.Join(by, ", ")
}
