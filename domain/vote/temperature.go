package vote

// The grid of temperatures: 2^(i/gridSteps) for |i| ≤ gridEnd, 1/8 to 8.
const (
	gridSteps = 32
	gridEnd   = 96
)

// gridAt is the temperature of a place on the grid. Whole powers of two are exact.
func gridAt(i int) float64 {
	const ln2 = ln2Hi + ln2Lo
	octave := (i + gridEnd) / gridSteps // from 0, since i ≥ −gridEnd
	rest := i + gridEnd - octave*gridSteps
	return float64(exp(float64(float64(rest)*ln2)/gridSteps)*float64(int(1)<<octave)) / (1 << (gridEnd / gridSteps))
}

// softmax turns logits into probabilities in place.
func softmax(z []float64) {
	top, sum := z[0], 0.0
	for _, v := range z {
		top = max(top, v)
	}
	for i, v := range z {
		z[i] = exp(v - top)
		sum += z[i]
	}
	for i := range z {
		z[i] /= sum
	}
}

// temper writes p^beta scaled to the sum 1 to out, which may be p. beta is 1/T: above 1 it sharpens.
func temper(p []float64, beta float64, out []float64) {
	for i, v := range p {
		out[i] = float64(beta * logOf(v))
	}
	softmax(out)
}

// forecast is one model's probabilities on all rows.
type forecast struct {
	classes int
	p       []float64 // [rows, classes]
}

func (f forecast) row(i int) []float64 { return f.p[i*f.classes : (i+1)*f.classes] }

// temperature finds the point of the grid with the least log loss on the rows: one number, fitted after combining
// (Guo et al. 2017; Rahaman and Thiery 2021 for ensembles). Ties go to the temperature nearest to 1, then to the higher
// one. Without rows it is 1.
//
// The loss is convex in 1/T, so that on the grid it falls to its least value and then rises; the search therefore
// looks at every 32nd point, then around the best at every 8th, every 2nd and every one.
func temperature(f forecast, rows []int, labels []int32) float64 {
	if len(rows) == 0 || f.classes == 1 {
		return 1
	}
	logs := logsOf(f, rows)
	best, least := 0, lossAt(logs, f.classes, rows, labels, 1)
	for step, from, to := 32, -gridEnd, gridEnd; ; step /= 4 {
		for i := from; i <= to; i += step {
			if i == best {
				continue
			}
			l := lossAt(logs, f.classes, rows, labels, 1/gridAt(i))
			if l < least || l == least && nearer(i, best) {
				best, least = i, l
			}
		}
		if step == 1 {
			return gridAt(best)
		}
		from, to = max(best-step, -gridEnd), min(best+step, gridEnd)
		if step == 2 {
			step = 4 // the last stride is 1
		}
	}
}

// nearer says which place of the grid wins a tie.
func nearer(i, than int) bool {
	a, b := max(i, -i), max(than, -than)
	return a < b || a == b && i > than
}

// logsOf gives the logarithms of some rows.
func logsOf(f forecast, rows []int) []float64 {
	logs := make([]float64, 0, len(rows)*f.classes)
	for _, i := range rows {
		for _, p := range f.row(i) {
			logs = append(logs, logOf(p))
		}
	}
	return logs
}

// lossAt is the mean log loss of the rows at 1/T = beta, in nats.
func lossAt(logs []float64, classes int, rows []int, labels []int32, beta float64) float64 {
	total := 0.0
	for n, i := range rows {
		z := logs[n*classes : (n+1)*classes]
		top := z[0]
		for _, v := range z {
			top = max(top, v)
		}
		sum := 0.0
		for _, v := range z {
			sum += exp(float64(beta * (v - top)))
		}
		total += log(sum) - float64(beta*(z[labels[i]]-top))
	}
	return total / float64(len(rows))
}
