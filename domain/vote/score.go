package vote

import "math"

// score measures a model on the test rows, as it is and at its temperature. classes[i] is the class it gives row i.
func score(f forecast, class func(row int) int, test []int, labels []int32, temp float64) Score {
	s := Score{Temperature: temp}
	right := 0
	for _, i := range test {
		if class(i) == int(labels[i]) {
			right++
		}
	}
	s.Accuracy = float64(right) / float64(len(test))
	s.NLL, s.Brier, s.ECE = measure(f.classes, class, test, labels, func(i int, out []float64) { copy(out, f.row(i)) })
	s.ScaledNLL, s.ScaledBrier, s.ScaledECE = s.NLL, s.Brier, s.ECE
	if temp != 1 {
		s.ScaledNLL, s.ScaledBrier, s.ScaledECE = measure(f.classes, class, test, labels, func(i int, out []float64) { temper(f.row(i), 1/temp, out) })
	}
	return s
}

// measure gives mean log loss, Brier score (the sum over classes) and expected calibration error: over bins of equal width of the
// confidence in the class given, the mean distance between how sure and how often right (Naeini et al. 2015).
func measure(classes int, class func(row int) int, test []int, labels []int32, probabilities func(row int, out []float64)) (nll, brier, ece float64) {
	p := make([]float64, classes)
	var sure, right [Bins]float64
	for _, i := range test {
		probabilities(i, p)
		y := int(labels[i])
		nll -= logOf(p[y])
		for k, v := range p {
			if k == y {
				v -= 1
			}
			brier += float64(v * v)
		}
		k := class(i)
		bin := min(int(float64(p[k]*Bins)), Bins-1)
		sure[bin] += p[k]
		if k == y {
			right[bin]++
		}
	}
	for b := range sure {
		ece += math.Abs(right[b] - sure[b])
	}
	n := float64(len(test))
	return max(nll/n, 0), brier / n, ece / n
}

// meanScore is the mean of scores, field by field. It divides once, so that the mean of ones is one.
func meanScore(all []Score) Score {
	var m Score
	for _, s := range all {
		m.Accuracy += s.Accuracy
		m.NLL += s.NLL
		m.Brier += s.Brier
		m.ECE += s.ECE
		m.Temperature += s.Temperature
		m.ScaledNLL += s.ScaledNLL
		m.ScaledBrier += s.ScaledBrier
		m.ScaledECE += s.ScaledECE
	}
	n := float64(len(all))
	return Score{m.Accuracy / n, m.NLL / n, m.Brier / n, m.ECE / n, m.Temperature / n, m.ScaledNLL / n, m.ScaledBrier / n, m.ScaledECE / n}
}

// pairs counts, for each pair of members, the rows on which their classes differ, and gives the mean over pairs of the fraction of rows.
func pairs(picks [][]int32, rows []int) (counts []int, mean float64) {
	total := 0
	for a := range picks {
		for b := a + 1; b < len(picks); b++ {
			n := 0
			for _, i := range rows {
				if picks[a][i] != picks[b][i] {
					n++
				}
			}
			counts = append(counts, n)
			total += n
		}
	}
	if len(counts) == 0 {
		return nil, 0
	}
	return counts, float64(total) / float64(len(counts)*len(rows))
}
