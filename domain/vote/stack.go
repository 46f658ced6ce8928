package vote

// Stacking is fitted by projected gradient descent.
const (
	stackL2    = 0.05 // pull of each weight towards 1/members: a quarter of the held-out rows is often some tens
	stackSteps = 300
	stackHalve = 40   // halvings of a step before the fit is called done
	stackTiny  = 1e-9 // a step that lowers the loss by less, relatively, is the last
)

// stack finds weights w ≥ 0 that minimise, on the rows, mean −log softmax(Σ w_m·log p_m)[label] + L2·Σ (w_m − 1/M)².
// It is convex. The steps, their order and the end are fixed, so that the result is a function of the inputs.
func stack(in Input, rows []int) []float64 {
	s := stacker{in: in, rows: rows, z: make([]float64, in.Classes), prior: 1 / float64(len(in.Members))}
	s.logs = make([][]float64, len(in.Members))
	for m := range s.logs {
		s.logs[m] = make([]float64, 0, len(rows)*in.Classes)
		for _, i := range rows {
			p := in.row(m, i)
			sum := sum32(p)
			for _, v := range p {
				s.logs[m] = append(s.logs[m], logOf(float64(v)/sum))
			}
		}
	}
	w, next, grad := equalWeights(len(in.Members)), make([]float64, len(in.Members)), make([]float64, len(in.Members))
	loss, step := s.loss(w, grad), 1.0
	for range stackSteps {
		lower := loss
		for range stackHalve {
			for m := range w {
				next[m] = max(0, w[m]-float64(step*grad[m]))
			}
			if lower = s.loss(next, nil); lower < loss {
				break
			}
			step /= 2
		}
		if !(lower < loss) {
			break
		}
		copy(w, next)
		done := loss-lower <= float64(stackTiny*loss)
		loss = s.loss(w, grad)
		step = float64(2 * step)
		if done {
			break
		}
	}
	return w
}

type stacker struct {
	in    Input
	rows  []int
	logs  [][]float64 // of each member [rows, classes]
	z     []float64   // scratch: one row
	prior float64
}

// loss gives the penalised loss at w and, when grad is not nil, its gradient.
func (s *stacker) loss(w, grad []float64) float64 {
	clear(grad)
	total, classes, n := 0.0, s.in.Classes, float64(len(s.rows))
	for r, i := range s.rows {
		clear(s.z)
		for m, wm := range w {
			if wm == 0 {
				continue
			}
			for k, l := range s.logs[m][r*classes : (r+1)*classes] {
				s.z[k] += float64(wm * l)
			}
		}
		softmax(s.z)
		y := int(s.in.Labels[i])
		total -= logOf(s.z[y])
		for m := range grad { // ∂/∂w_m = Σ_k (p_k − [k = y])·log p_mk
			logs := s.logs[m][r*classes : (r+1)*classes]
			g := -logs[y]
			for k, l := range logs {
				g += float64(s.z[k] * l)
			}
			grad[m] += g / n
		}
	}
	total /= n
	for m, wm := range w {
		d := wm - s.prior
		total += float64(stackL2 * float64(d*d))
		if grad != nil {
			grad[m] += float64(2 * stackL2 * d)
		}
	}
	return total
}
