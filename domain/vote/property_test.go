package vote

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tensorturn/domain/permute"
)

// drawn is a vote by chance: any shape, exact zeros and certainties among the probabilities.
func drawn(t *rapid.T) Input {
	in := Input{Classes: rapid.IntRange(1, 5).Draw(t, "classes")}
	rows := rapid.IntRange(1, 90).Draw(t, "rows")
	luck := permute.NewSource(rapid.Uint64().Draw(t, "luck")) // a draw for each cell would take minutes
	cells := []float64{0, 0, 0.1, 0.3, 1, 1, 5, 100}
	for range rows {
		in.Labels = append(in.Labels, int32(luck.Below(uint64(in.Classes))))
	}
	for range rapid.IntRange(1, 10).Draw(t, "members") {
		var p []float32
		for range rows {
			row, sum := make([]float64, in.Classes), 0.0
			for c := range row {
				row[c] = cells[luck.Below(uint64(len(cells)))]
				sum += row[c]
			}
			if sum == 0 {
				row[0], sum = 1, 1
			}
			for _, v := range row {
				p = append(p, float32(v/sum))
			}
		}
		in.Members = append(in.Members, p)
	}
	return in
}

// TestAnyVoteHolds: whatever the members say, figures are finite and within their bounds, nothing is changed, and the same input gives
// the same bits.
func TestAnyVoteHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawn(t)
		before := Input{Classes: in.Classes, Labels: slices.Clone(in.Labels)}
		for _, m := range in.Members {
			before.Members = append(before.Members, slices.Clone(m))
		}
		rule := rapid.SampledFrom(Rules()).Draw(t, "rule")
		r, err := Compute(in, rule)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := Compute(in, rule)
		if d := cmp.Diff(r, again); d != "" {
			t.Fatalf("the second vote differs:\n%s", d)
		}
		if d := cmp.Diff(before, in); d != "" {
			t.Fatalf("the vote changed what it read:\n%s", d)
		}
		if r.Rule == Auto || r.FitRows+r.TestRows != r.Rows || r.TestRows == 0 || r.Best < 0 || r.Best >= len(in.Members) || r.Disagreement < 0 || r.Disagreement > 1 {
			t.Fatalf("%+v", r)
		}
		for _, s := range append([]Score{r.Vote, r.Mean}, r.Members...) {
			bounded(t, s)
		}
		sum := 0.0
		for _, w := range r.Weights {
			if !(w >= 0) || math.IsInf(w, 0) {
				t.Fatalf("weights %v", r.Weights)
			}
			sum += w
		}
		if r.Rule != Stacking && math.Abs(sum-1) > 1e-9 {
			t.Fatalf("weights %v sum to %v", r.Weights, sum)
		}
	})
}

func bounded(t *rapid.T, s Score) {
	for _, f := range []struct{ v, most float64 }{{s.Accuracy, 1}, {s.NLL, 28}, {s.Brier, 2.001}, {s.ECE, 1.001}, {s.ScaledNLL, 230}, {s.ScaledBrier, 2.001}, {s.ScaledECE, 1.001}, {s.Temperature, 8.001}} {
		if !(f.v >= 0 && f.v <= f.most) { // NaN fails both
			t.Fatalf("%+v", s)
		}
	}
}

// TestMeanIsNeverWorseThanTheMeanMember: by Jensen's inequality, in log loss and in Brier score, on any data.
func TestMeanIsNeverWorseThanTheMeanMember(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, err := Compute(drawn(t), Mean)
		if err != nil {
			t.Fatal(err)
		}
		if r.Vote.NLL > r.Mean.NLL+1e-9 || r.Vote.Brier > r.Mean.Brier+1e-9 {
			t.Fatalf("vote %+v, mean member %+v", r.Vote, r.Mean)
		}
	})
}

// TestOneMemberIsItsVote: with one member every rule answers what the member says.
func TestOneMemberIsItsVote(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawn(t)
		in.Members = in.Members[:1]
		for _, rule := range []Rule{Mean, LogOdds, Stacking, Greedy, Auto} {
			r, err := Compute(in, rule)
			if err != nil || r.Vote != r.Members[0] || r.Mean != r.Members[0] || r.Pairs != nil {
				t.Fatalf("%s: %v, %+v", rule, err, r)
			}
		}
	})
}

// TestSearchFindsTheGrid: the coarse search gives the temperature that looking at every point gives.
func TestSearchFindsTheGrid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawn(t)
		if in.Classes == 1 {
			return
		}
		rows := make([]int, len(in.Labels))
		for i := range rows {
			rows[i] = i
		}
		f := in.forecast(Combiner{Rule: Mean, Weights: equalWeights(len(in.Members))})
		logs := logsOf(f, rows)
		best, least := 0, lossAt(logs, f.classes, rows, in.Labels, 1)
		for i := -gridEnd; i <= gridEnd; i++ {
			if l := lossAt(logs, f.classes, rows, in.Labels, 1/gridAt(i)); l < least || l == least && nearer(i, best) {
				best, least = i, l
			}
		}
		got := temperature(f, rows, in.Labels)
		if loss := lossAt(logs, f.classes, rows, in.Labels, 1/got); loss > least+1e-12 {
			t.Fatalf("temperature %v with loss %v, the grid has %v with %v", got, loss, gridAt(best), least)
		}
	})
}

// TestDealIsFair: every row has one place, and of each class half is test and a quarter each of the others, whatever the order.
func TestDealIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		classes := rapid.IntRange(1, 6).Draw(t, "classes")
		labels := rapid.SliceOfN(rapid.Int32Range(0, int32(classes-1)), 80, 300).Draw(t, "labels")
		p := deal(labels, classes)
		seen := make([]int, len(labels))
		count := func(part []int) []int {
			n := make([]int, classes)
			for _, i := range part {
				seen[i]++
				n[labels[i]]++
			}
			return n
		}
		test, weigh, check := count(p.test), count(p.weigh), count(p.check)
		if len(p.fit) == 0 {
			return // a part was too small: all rows are test rows
		}
		for i, n := range seen {
			if n != 1 {
				t.Fatalf("row %d is in %d parts", i, n)
			}
		}
		for c := range classes {
			all := test[c] + weigh[c] + check[c]
			if d := test[c] - all/2; d < -1 || d > 1 || weigh[c]-check[c] > 1 || check[c]-weigh[c] > 1 {
				t.Fatalf("class %d: %d test, %d weigh, %d check of %d", c, test[c], weigh[c], check[c], all)
			}
		}
	})
}

// TestDealHasNoBeat: a pattern in the file, of any period, does not end up in one part.
func TestDealHasNoBeat(t *testing.T) {
	for period := 2; period <= 12; period++ {
		labels := make([]int32, 1200)
		p := deal(labels, 1)
		in := make([]int, period)
		for _, row := range p.test {
			in[row%period]++
		}
		for phase, n := range in {
			if share := float64(n) * float64(period) / 1200; share < 0.3 || share > 0.7 {
				t.Errorf("every %d rows: %.0f %% of phase %d are test rows", period, 100*share, phase)
			}
		}
	}
}

// TestMissingMembersKeepTheVote: a row answered by all is Compute's; one answered by some is a vote of those.
func TestMissingMembersKeepTheVote(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawn(t)
		r, err := Compute(in, rapid.SampledFrom(Rules()).Draw(t, "rule"))
		if err != nil {
			t.Fatal(err)
		}
		c := r.Combiner()
		members, out := make([][]float32, len(in.Members)), make([]float64, in.Classes)
		answered := 0
		for m := range members {
			if rapid.Bool().Draw(t, "answers") {
				members[m] = in.row(m, 0)
				answered++
			}
		}
		a, err := c.Row(members, out)
		if answered == 0 {
			if err == nil {
				t.Fatal("a vote of nobody")
			}
			return
		}
		sum := 0.0
		for _, v := range out {
			sum += v
		}
		if err != nil || a.Votes != answered || math.Abs(sum-1) > 1e-9 || a.Agreement < 0 || a.Agreement > 1 || a.Class < 0 || a.Class >= in.Classes {
			t.Fatalf("%+v, %v, %v", a, err, out)
		}
	})
}

// TestOutputsComeBack: what is written is read, thinned or whole, and every cut of the file is refused.
func TestOutputsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawn(t)
		o := Outputs{Classes: in.Classes, Probabilities: in.Members[0]}
		if rapid.Bool().Draw(t, "labels") {
			o.Labels = in.Labels
		}
		var b bytes.Buffer
		if err := WriteOutputs(&b, o); err != nil {
			t.Fatal(err)
		}
		got, err := ReadOutputs(bytes.NewReader(b.Bytes()), len(in.Labels), in.Classes, 1)
		if d := cmp.Diff(o, got); err != nil || d != "" {
			t.Fatalf("%v\n%s", err, d)
		}
		stride := rapid.IntRange(1, 7).Draw(t, "stride")
		thin, err := ReadOutputs(bytes.NewReader(b.Bytes()), len(in.Labels), in.Classes, stride)
		if err != nil || len(thin.Probabilities) != (len(in.Labels)+stride-1)/stride*in.Classes || thin.Probabilities[0] != o.Probabilities[0] {
			t.Fatalf("%v, %d values with stride %d", err, len(thin.Probabilities), stride)
		}
		if _, err := ReadOutputs(bytes.NewReader(b.Bytes()[:rapid.IntRange(0, b.Len()-1).Draw(t, "cut")]), len(in.Labels), in.Classes, 1); err == nil {
			t.Fatal("a cut file is read")
		}
		if _, err := ReadOutputs(bytes.NewReader(b.Bytes()), len(in.Labels)+1, in.Classes, 1); err == nil {
			t.Fatal("a file of other rows is read")
		}
	})
}

// TestRegressionIdentity: mean error minus disagreement is the vote's error (Krogh and Vedelsby 1995, eq. 6).
func TestRegressionIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.IntRange(1, 30).Draw(t, "rows")
		number := rapid.Float64Range(-100, 100)
		targets := rapid.SliceOfN(number, rows, rows).Draw(t, "targets")
		var members [][]float64
		for range rapid.IntRange(1, 6).Draw(t, "members") {
			members = append(members, rapid.SliceOfN(number, rows, rows).Draw(t, "predictions"))
		}
		r, err := Regress(members, targets)
		if err != nil || math.Abs(r.MeanMSE-r.Disagreement-r.VoteMSE) > 1e-6 || r.VoteMSE > r.MeanMSE+1e-6 {
			t.Fatalf("%+v, %v", r, err)
		}
		members[0][0] = math.NaN()
		var bad *MemberError
		if _, err := Regress(members, targets); !errors.As(err, &bad) || bad.Member != 0 {
			t.Fatalf("a prediction that is no number is taken: %v", err)
		}
	})
}
