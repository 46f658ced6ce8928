package vote

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"tensorturn/domain"
)

// TestScenarios plays testdata/scenarios: small tables to read.
//
//	row rule=… weights=(…) t=…    one row: each line is a member's probabilities, "-" for one that did not answer
//	vote rule=… times=N           held-out rows: "label: member 1 | member 2 | …", all of them repeated N times
//
// To write the answers anew: go test ./domain/vote -run TestScenarios -rewrite, then read the difference.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "row":
				return playRow(t, d)
			case "vote":
				return playVote(t, d)
			}
			d.Fatalf(t, "unknown command %q", d.Cmd)
			return ""
		})
	})
}

func playRow(t *testing.T, d *datadriven.TestData) string {
	c := Combiner{Rule: Mean, Temperature: 1}
	var members [][]float32
	classes := 0
	for line := range strings.Lines(strings.TrimSpace(d.Input) + "\n") {
		p := probabilities(t, line)
		members = append(members, p)
		classes = max(classes, len(p))
	}
	c.Weights = equalWeights(len(members))
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "rule":
			c.Rule = Rule(a.Vals[0])
		case "t":
			c.Temperature = number(t, a.Vals[0])
		case "weights":
			for i, v := range a.Vals {
				c.Weights[i] = number(t, v)
			}
		}
	}
	out := make([]float64, classes)
	a, err := c.Row(members, out)
	if err != nil {
		return refusal(err)
	}
	return fmt.Sprintf("class %d by %d votes, %.0f %% agree: %.4f\n", a.Class, a.Votes, 100*a.Agreement, out)
}

func playVote(t *testing.T, d *datadriven.TestData) string {
	rule, times := Mean, 1
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "rule":
			rule = Rule(a.Vals[0])
		case "times":
			times = int(number(t, a.Vals[0]))
		}
	}
	var in Input
	lines := slices.Collect(strings.Lines(strings.TrimSpace(d.Input) + "\n"))
	for range times {
		for _, line := range lines {
			label, said, _ := strings.Cut(line, ":")
			in.Labels = append(in.Labels, int32(number(t, label)))
			for m, s := range strings.Split(said, "|") {
				p := probabilities(t, s)
				if in.Classes = max(in.Classes, len(p)); m == len(in.Members) {
					in.Members = append(in.Members, nil)
				}
				in.Members[m] = append(in.Members[m], p...)
			}
		}
	}
	r, err := Compute(in, rule)
	if err != nil {
		return refusal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, weights %.3f, temperature %.3f, fitted on %d of %d rows\n", r.Rule, r.Weights, r.Temperature, r.FitRows, r.Rows)
	if r.Fallback != "" {
		fmt.Fprintf(&b, "%s\n", r.Fallback)
	}
	line := func(name string, s Score) {
		fmt.Fprintf(&b, "%-9s accuracy %.2f  nll %.3f  brier %.3f  ece %.3f  at T %.2f: nll %.3f  brier %.3f  ece %.3f\n", name, s.Accuracy, s.NLL, s.Brier, s.ECE, s.Temperature, s.ScaledNLL, s.ScaledBrier, s.ScaledECE)
	}
	for m, s := range r.Members {
		line(fmt.Sprintf("member %d", m+1), s)
	}
	line("vote", r.Vote)
	fmt.Fprintf(&b, "best: member %d; two members differ on %.1f %% of the rows\n", r.Best+1, 100*r.Disagreement)
	return b.String()
}

// refusal renders an error with its kind.
func refusal(err error) string {
	var theirs *MemberError
	if errors.As(err, &theirs) {
		return "member's fault: " + err.Error() + "\n"
	}
	return fmt.Sprintf("refused (%s): %v\n", domain.KindOf(err), err)
}

func probabilities(t *testing.T, s string) []float32 {
	if strings.TrimSpace(s) == "-" {
		return nil
	}
	var p []float32
	for _, f := range strings.Fields(s) {
		p = append(p, float32(number(t, f)))
	}
	return p
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
