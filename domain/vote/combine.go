package vote

import (
	"fmt"

	"tensorturn/domain"
)

// Combiner combines members' probabilities by a rule that is already fitted. A member that did not answer is left out:
// the weights of those that did are scaled to the same sum.
type Combiner struct {
	Rule        Rule // not Auto
	Weights     []float64
	Temperature float64 // 1 leaves the combined probabilities as they are
}

// Combiner gives the rule of a result, temperature included.
func (r Result) Combiner() Combiner {
	return Combiner{Rule: r.Rule, Weights: r.Weights, Temperature: r.Temperature}
}

// Answer is the vote on one row.
type Answer struct {
	Class     int
	Votes     int     // members that answered
	Agreement float64 // fraction of them that name Class
}

// Row combines one row: members[m] are member m's probabilities, nil when it did not answer. The combined probabilities
// go to out, which has a place for every class. It allocates nothing.
func (c Combiner) Row(members [][]float32, out []float64) (Answer, error) {
	const op = "vote"
	if len(members) != len(c.Weights) || len(members) > MaxMembers {
		return Answer{}, domain.Invalid(op, fmt.Sprintf("%d answers for %d members", len(members), len(c.Weights)), "give nil for a member that did not answer")
	}
	votes := 0
	for m, p := range members {
		if p == nil {
			continue
		}
		if err := checkMember(m, len(out), 1, p); err != nil {
			return Answer{}, err
		}
		votes++
	}
	if votes == 0 || len(out) == 0 {
		return Answer{}, domain.Unavailable(op, "no member answered", "try again", nil)
	}
	class := c.combine(func(m int) []float32 { return members[m] }, out)
	if c.Temperature != 1 {
		temper(out, 1/c.Temperature, out)
	}
	return Answer{Class: class, Votes: votes, Agreement: float64(agreeing(members, class)) / float64(votes)}, nil
}

// agreeing counts members that name the class.
func agreeing(members [][]float32, class int) (n int) {
	for _, p := range members {
		if p != nil && argmax(p) == class {
			n++
		}
	}
	return n
}

// combine writes the rule's probabilities of one row, before temperature, and gives its class. member gives nil for one
// that did not answer; at least one did, and its row was checked.
func (c Combiner) combine(member func(m int) []float32, out []float64) (class int) {
	switch c.Rule {
	case Majority:
		return plurality(len(c.Weights), member, out)
	case Stacking:
		c.pool(member, out)
	default:
		mean(c.Weights, len(c.Weights), member, out)
	}
	return argmax(out)
}

// mean is Σ w·p / Σ w over members that answered, each row scaled to the sum 1 first. Nil weights are equal ones. Members
// whose weights are all zero, which greedy selection may leave alone when the others are gone, count equally.
func mean(weights []float64, members int, member func(m int) []float32, out []float64) {
	clear(out)
	total := 0.0
	for m := range members {
		w := 1.0
		if weights != nil {
			w = weights[m]
		}
		if p := member(m); p != nil && w > 0 {
			total += w
			addScaled(out, p, w)
		}
	}
	if total == 0 {
		mean(nil, members, member, out)
		return
	}
	for i := range out {
		out[i] /= total
	}
}

// addScaled adds w·p/Σp to out.
func addScaled(out []float64, p []float32, w float64) {
	f := w / sum32(p)
	for i, v := range p {
		out[i] += float64(f * float64(v))
	}
}

// pool is the weighted logarithmic opinion pool: p ∝ exp(Σ w·log p).
func (c Combiner) pool(member func(m int) []float32, out []float64) {
	clear(out)
	all, present, answered := 0.0, 0.0, 0
	for m, w := range c.Weights {
		all += w
		if member(m) != nil {
			present += w
			answered++
		}
	}
	for m, w := range c.Weights {
		p := member(m)
		if p == nil {
			continue
		}
		if present > 0 {
			w = float64(w*all) / present
		} else {
			w = all / float64(answered)
		}
		if w > 0 {
			addLogs(out, p, w)
		}
	}
	softmax(out)
}

// addLogs adds w·log(p/Σp) to out.
func addLogs(out []float64, p []float32, w float64) {
	s := sum32(p)
	for i, v := range p {
		out[i] += float64(w * logOf(float64(v)/s))
	}
}

// plurality writes the share of votes for each class, with one more voter who knows nothing and gives each class an
// equal part, so that no class is impossible. The class is the one with most votes; ties go to the tied class with most
// probability over all members, then to the lower one.
func plurality(members int, member func(m int) []float32, out []float64) (class int) {
	mean(nil, members, member, out)
	var picks [MaxMembers]int
	answered := 0
	for m := range members {
		if p := member(m); p != nil {
			picks[answered] = argmax(p)
			answered++
		}
	}
	class = -1
	most := 0
	for _, k := range picks[:answered] {
		n := 0
		for _, other := range picks[:answered] {
			if other == k {
				n++
			}
		}
		if class < 0 || n > most || n == most && (out[k] > out[class] || out[k] == out[class] && k < class) {
			class, most = k, n
		}
	}
	voters := float64(answered + 1)
	for k := range out {
		out[k] = 1 / float64(float64(len(out))*voters)
	}
	for _, k := range picks[:answered] {
		out[k] += 1 / voters
	}
	return class
}

func equalWeights(n int) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = 1 / float64(n)
	}
	return w
}

// sum32 adds a row in order.
func sum32(p []float32) (sum float64) {
	for _, v := range p {
		sum += float64(v)
	}
	return sum
}

// argmax is the likeliest class; ties go to the lower one. A NaN is never likeliest.
func argmax[F float32 | float64](p []F) int {
	best := 0
	for i, v := range p {
		if v > p[best] {
			best = i
		}
	}
	return best
}
