package vote

import (
	"fmt"
	"math"
)

// The bounds of log-odds weights, in multiples of their mean: a member is never worth more than sixteen of another.
const (
	minOdds = 0.25
	maxOdds = 4
)

// logOdds are the weights ln((1−e)/e) + ln(C−1) for members with error e on the rows: what independent voters with such
// errors are worth (Nitzan and Paroush 1982; the second term is that of many classes, Zhu et al. 2009: it is 0 for two). Half a
// row is added to both sides, so that a member without error has a finite weight. They are held within minOdds and
// maxOdds of their mean and then sum to 1; where the mean is not above 0, nobody is better than chance and all are equal.
func logOdds(picks [][]int32, classes int, rows []int, labels []int32) []float64 {
	w := make([]float64, len(picks))
	sum := 0.0
	for m := range picks {
		wrong := 0
		for _, i := range rows {
			if picks[m][i] != labels[i] {
				wrong++
			}
		}
		w[m] = log((float64(len(rows)-wrong)+0.5)/(float64(wrong)+0.5)) + log(float64(max(classes-1, 1)))
		sum += w[m]
	}
	mean := sum / float64(len(w))
	if !(mean > 0) {
		return equalWeights(len(w))
	}
	sum = 0
	for m := range w {
		w[m] = min(max(w[m]/mean, minOdds), maxOdds)
		sum += w[m]
	}
	for m := range w {
		w[m] /= sum
	}
	return w
}

// greedyRounds bounds the members that greedy selection puts together, repetitions included.
const greedyRounds = 64

// greedy picks members one after another, with replacement, each time the one whose addition gives the mean the least
// log loss on the rows, and keeps the best prefix (Caruana et al. 2004). Ties go to the lower member and to the shorter
// prefix. The weights are how often each was picked.
func greedy(in Input, rows []int) []float64 {
	sums := make([]float64, len(rows)) // of the true class's probability over what is picked
	picked := make([]int, 0, greedyRounds)
	keep, least := 0, math.Inf(1)
	for len(picked) < greedyRounds {
		best, loss := -1, math.Inf(1)
		for m := range in.Members {
			if l := greedyLoss(in, m, rows, sums, len(picked)+1); l < loss {
				best, loss = m, l
			}
		}
		for n, i := range rows {
			sums[n] += trueProbability(in, best, i)
		}
		picked = append(picked, best)
		if loss < least {
			keep, least = len(picked), loss
		}
	}
	w := make([]float64, len(in.Members))
	for _, m := range picked[:keep] {
		w[m]++
	}
	for m := range w {
		w[m] /= float64(keep)
	}
	return w
}

// greedyLoss is the log loss of the rows when member m joins the count−1 that sums holds.
func greedyLoss(in Input, m int, rows []int, sums []float64, count int) float64 {
	total := 0.0
	for n, i := range rows {
		total -= logOf((sums[n] + trueProbability(in, m, i)) / float64(count))
	}
	return total
}

// trueProbability is what member m gives the label of row i.
func trueProbability(in Input, m, i int) float64 {
	p := in.row(m, i)
	return float64(p[in.Labels[i]]) / sum32(p)
}

// gain holds a fitted rule against equal weights on the rows it was not fitted on. Both have the temperature that fits the rows of the
// fit best, since log losses at different sharpness say little (Ashukha et al. 2020). It gives the mean gain of a row in nats and its standard error.
func gain(in Input, fitted Combiner, p parts) (mean, se float64) {
	losses := func(c Combiner) []float64 {
		f := in.forecast(c)
		beta := 1 / temperature(f, p.weigh, in.Labels)
		out := make([]float64, len(p.check))
		for n := range p.check {
			row := p.check[n : n+1]
			out[n] = lossAt(logsOf(f, row), f.classes, row, in.Labels, beta)
		}
		return out
	}
	with, without := losses(fitted), losses(Combiner{Rule: Mean, Weights: equalWeights(len(in.Members))})
	n := float64(len(with))
	for i := range with {
		mean += (without[i] - with[i]) / n
	}
	square := 0.0
	for i := range with {
		d := without[i] - with[i] - mean
		square += float64(d * d)
	}
	return mean, math.Sqrt(square / float64(n*(n-1)))
}

// settle decides between a fitted rule and equal weights: it must win by at least one standard error on a second part.
func settle(in Input, fitted Combiner, p parts) (c Combiner, fallback string) {
	mean, se := gain(in, fitted, p)
	if mean > 0 && mean >= se {
		return fitted, ""
	}
	return Combiner{Rule: Mean, Weights: equalWeights(len(in.Members))},
		fmt.Sprintf("%s gained %.4f nats a row on the second part, below its standard error of %.4f: equal weights", fitted.Rule, mean, se)
}
