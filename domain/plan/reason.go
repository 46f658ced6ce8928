package plan

import (
	"math"
	"strconv"
)

// figure writes a number for people: three digits are what a measurement is worth.
func figure(x float64) string {
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(x)))))
	return strconv.FormatFloat(math.Round(x*math.Pow10(digits))/math.Pow10(digits), 'f', -1, 64)
}

// count writes a number of chunks.
func count(n int) string {
	if n == 1 {
		return "1 chunk"
	}
	return strconv.Itoa(n) + " chunks"
}
