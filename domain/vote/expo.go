package vote

import "math"

// ln2 in two pieces: the first has so few bits that its products with exponents are exact.
const (
	ln2Hi = 6.93147180369123816490e-01
	ln2Lo = 1.90821492927058770002e-10
	log2e = 1.44269504088896338700
)

// underflow is where exp gives 0: below it results would be denormal.
const underflow = -708

// exp is e^x for x up to 700, by x = k·ln 2 + r and the Taylor series of e^r with |r| ≤ ln 2 / 2, whose terms fall below
// half a unit in the last place at the 14th power. Below −708 it is 0. Its error stays within 2 units in the last place
// (a test), and its bits are the same everywhere.
func exp(x float64) float64 {
	if x < underflow {
		return 0
	}
	k := math.Floor(float64(x*log2e) + 0.5)
	r := (x - float64(k*ln2Hi)) - float64(k*ln2Lo)
	sum := 1.0
	for n := 13; n >= 1; n-- {
		sum = 1 + float64(r*sum)/float64(n)
	}
	return float64(sum * math.Float64frombits(uint64(int64(k)+1023)<<52))
}

// log is the natural logarithm of a normal x > 0: x = m·2^e with m around 1, and log m = 2·atanh((m−1)/(m+1)) as a
// series, whose terms fall below half a unit in the last place at the 23rd power.
func log(x float64) float64 {
	bits := math.Float64bits(x)
	e := int64(bits>>52) - 1023
	m := math.Float64frombits(bits&(1<<52-1) | 1023<<52)
	if m > math.Sqrt2 {
		m /= 2
		e++
	}
	s := (m - 1) / (m + 1)
	q := float64(s * s)
	sum := 0.0
	for n := 23; n >= 3; n -= 2 {
		sum = float64(q * (sum + 1/float64(n)))
	}
	k := float64(e)
	return float64(k*ln2Hi) + (float64(k*ln2Lo) + float64(2*float64(s*(1+sum))))
}

// logOf is the logarithm of a probability, with the floor of MinProbability.
func logOf(p float64) float64 { return log(max(p, MinProbability)) }
