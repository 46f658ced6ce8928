package merge

import (
	"errors"
	"fmt"
	"io"
	"math"

	"tensorturn/domain"
	"tensorturn/domain/safetensors"
)

// Input is one accepted contribution.
type Input struct {
	Delta   io.Reader
	Codec   Codec
	Samples int64 // by the hub's ledger: the weight, at least 1
	// Base is set for a late delta: the blob id of the weights it was made from, which are not the job's. BaseReader reads
	// them (safetensors, the job's base's names and shapes); it may be nil when the codec writes differences.
	Base       domain.Digest
	BaseReader io.Reader
}

// Job is one merge. The order of the inputs is part of the result: by slot id, then by contribution number.
type Job struct {
	Base       io.Reader     // safetensors, F32, canonical order
	BaseDigest domain.Digest // blob id of the base: every delta must have been made from it
	Momentum   io.Reader     // safetensors, F64, the base's names and shapes; nil in the first round: zeros
	Inputs     []Input
	Eta, Mu    float64 // outer learning rate (> 0) and momentum (0 ≤ mu < 1)

	NextBase     io.Writer // receives the base's layout
	NextMomentum io.Writer // receives the momentum's layout

	Down Down // the coded way down, if there is one
}

// Result is what a merge found.
type Result struct {
	StepNorm float64 // L2 norm of next base − base
	Residual float64 // L2 norm of what a coded way down still owes, 0 without one
}

// InputError says that one delta cannot be read, now or ever: the hub revokes that contribution and merges the rest.
type InputError struct {
	Index int // in Job.Inputs
	Fault Fault
	Note  string
}

func (e *InputError) Error() string {
	return fmt.Sprintf("delta %d of the merge is %s: %s", e.Index, e.Fault, e.Note)
}

// Unwrap gives it domain.KindIntegrity: the delta was whole when it was accepted.
func (e *InputError) Unwrap() error { return domain.Integrity("read delta", e.Note, "") }

// Merge writes the next base and the next momentum. With theta the base, L_i the local weights of input i (codec fp32)
// or theta − D_i, n_i its samples, all in float64 and in the order given:
//
//	L = (Σ n_i·L_i) / Σ n_i;  D = theta − L;  m' = mu·m + D
//	theta' = (1−eta)·theta + eta·L − eta·(mu·m')
//
// which is the PyTorch form of Nesterov momentum, theta − eta·(D + mu·m'), arranged so that eta 1 and mu 0 lose no bit.
// For a late delta L_i = theta − D_i in either codec, with D_i its difference to the weights it was made from, and the
// weights are 4n for it and 5n for the others of that merge.
//
// theta' is rounded once to float32, m' is stored as float64. Statistics of normalisation (class Statistic) become L, and
// their m' is zero: they are measurements, not steps.
//
// A delta that cannot be used is an *InputError. A result that is not finite is domain.KindInvalid and names tensor and
// value: weights never become NaN. Other errors keep the kind of their stream. After any error both outputs are rubbish
// and must be thrown away.
func Merge(job Job) (Result, error) { return mergeTiles(job, allGates, tileValues) }

func mergeTiles(job Job, g gates, tile int) (Result, error) {
	m, err := open(job, g, tile)
	if err != nil {
		return Result{}, fmt.Errorf("merge: %w", err)
	}
	if err := m.all(); err != nil {
		return Result{}, fmt.Errorf("merge: %w", err)
	}
	r := Result{StepNorm: math.Sqrt(m.sum)}
	if m.down != nil {
		r.Residual = math.Sqrt(m.down.sum)
	}
	return r, nil
}

// merger holds the streams of one merge and one tile of each kind of value.
type merger struct {
	job      Job
	gates    gates
	base     *weights
	momentum *weights // nil in the first round
	inputs   []*delta
	origins  []*origin // of late inputs, nil for others
	weights  []float64
	total    float64 // of the weights

	nextBase     *safetensors.Writer
	nextMomentum *safetensors.Writer
	down         *downward // nil: the next base is exact

	statistic         bool // the present tensor is one
	tile              int
	theta, mean, m    []float64
	scratch, out, mem []byte
	sum               float64 // of squares of the step
}

// open checks the job and reads every header.
func open(job Job, g gates, tile int) (*merger, error) {
	if err := check(job); err != nil {
		return nil, err
	}
	m := &merger{job: job, gates: g, weights: weigh(job.Inputs), tile: tile,
		theta: make([]float64, tile), mean: make([]float64, tile), m: make([]float64, tile),
		scratch: make([]byte, 4*tile), out: make([]byte, 4*tile), mem: make([]byte, 8*tile)}
	for _, w := range m.weights {
		m.total += w // whole numbers: exact
	}
	var err error
	if m.base, err = openWeights("base", job.Base); err != nil {
		return nil, err
	}
	layout := m.base.file.Tensors()
	digest := safetensors.LayoutDigest(layout)
	for i, in := range job.Inputs {
		made := job.BaseDigest
		if in.Base != "" {
			made = in.Base
		}
		d, err := openDelta(in.Delta, Expect{Codec: in.Codec, Base: made, Layout: digest}, layout, g)
		if err != nil {
			return nil, ofInput(i, err)
		}
		from, err := openOrigin(i, in, layout, tile)
		if err != nil {
			return nil, err
		}
		m.inputs, m.origins = append(m.inputs, d), append(m.origins, from)
	}
	momentum := momentumTensors(layout)
	if job.Momentum != nil {
		if m.momentum, err = openF64("momentum", job.Momentum, momentum); err != nil {
			return nil, err
		}
	}
	if m.down, err = openDown(job, layout, momentum, digest, tile); err != nil {
		return nil, err
	}
	if m.nextBase, err = safetensors.NewWriter(job.NextBase, layout, nil); err != nil {
		return nil, fmt.Errorf("write next base: %w", err)
	}
	if m.nextMomentum, err = safetensors.NewWriter(job.NextMomentum, momentum, nil); err != nil {
		return nil, fmt.Errorf("write next momentum: %w", err)
	}
	return m, nil
}

// check refuses a job that cannot be merged.
func check(job Job) error {
	total, most := int64(0), int64(MaxTotalSamples)
	for _, in := range job.Inputs {
		if in.Base != "" {
			most = MaxTotalSamples / freshWeight // so that the sum of the weights stays exact
		}
	}
	if !(job.Eta > 0) || math.IsInf(job.Eta, 0) || !(job.Mu >= 0 && job.Mu < 1) {
		return domain.Invalid("", fmt.Sprintf("eta %v must be above 0 and mu %v from 0 to below 1", job.Eta, job.Mu), "")
	}
	if len(job.Inputs) == 0 || len(job.Inputs) > MaxInputs {
		return domain.Invalid("", fmt.Sprintf("there are %d deltas, the limits are 1 and %d", len(job.Inputs), MaxInputs), "")
	}
	for i, in := range job.Inputs {
		if in.Samples < 1 || in.Samples > most-total {
			return domain.Invalid("", fmt.Sprintf("delta %d has %d samples; each needs one, all together at most %d", i, in.Samples, most), "")
		}
		total += in.Samples
	}
	return nil
}

// momentumTensors is the layout of the momentum: the weights' in float64.
func momentumTensors(weights []safetensors.Tensor) []safetensors.Tensor {
	ts := make([]safetensors.Tensor, len(weights))
	for i, t := range weights {
		ts[i] = safetensors.Tensor{Name: t.Name, DType: safetensors.F64, Shape: t.Shape}
	}
	return ts
}

// openF64 opens the momentum or the residual.
func openF64(what string, src io.Reader, want []safetensors.Tensor) (*weights, error) {
	file, err := safetensors.NewReader(src)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	if err := safetensors.Compare(want, file.Tensors()); err != nil {
		return nil, fmt.Errorf("read %s: it does not match the base: %w", what, err)
	}
	return &weights{what: what, file: file}, nil
}

// ofInput says which input an error belongs to.
func ofInput(i int, err error) error {
	var f *faultError
	if errors.As(err, &f) {
		return &InputError{Index: i, Fault: f.why, Note: f.note}
	}
	return fmt.Errorf("read delta %d: %w", i, err)
}

// all merges every tensor and makes sure that every stream ends.
func (m *merger) all() error {
	for {
		t, err := m.base.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := m.tensor(t); err != nil {
			return err
		}
	}
	for i, d := range m.inputs {
		if err := d.end(); err != nil {
			return ofInput(i, err)
		}
	}
	if err := m.momentum.end(); err != nil {
		return err
	}
	return errors.Join(m.nextBase.Close(), m.nextMomentum.Close(), m.down.close())
}

// tensor merges one tensor, tile by tile.
func (m *merger) tensor(t safetensors.Tensor) error {
	n, err := t.Count()
	if err != nil {
		return err
	}
	for i, d := range m.inputs {
		if err := d.next(); err != nil {
			return ofInput(i, tooFew(err))
		}
		if err := m.origins[i].next(); err != nil {
			return err
		}
	}
	if m.momentum != nil {
		if _, err := m.momentum.next(); err != nil {
			return err
		}
	}
	if err := m.down.tensor(); err != nil {
		return err
	}
	m.statistic = ClassOf(t) == Statistic
	for at := int64(0); at < n; at += int64(m.tile) {
		if err := m.merge(at, int(min(int64(m.tile), n-at))); err != nil {
			return err
		}
	}
	return nil
}

// merge does n values, the first of them number at of its tensor.
func (m *merger) merge(at int64, n int) error {
	raw, err := m.base.read(4 * n)
	if err != nil {
		return err
	}
	theta, sum := m.theta[:n], m.mean[:n]
	widen(theta, raw)
	clear(sum)
	for i, d := range m.inputs {
		if err := d.read(n, m.scratch); err != nil {
			return ofInput(i, err)
		}
		from, err := m.origins[i].read(n)
		if err != nil {
			return err
		}
		if from != nil && !m.statistic {
			accumulateLate(sum, theta, from, m.weights[i], d.raw)
			continue
		}
		d.accumulate(sum, theta, m.weights[i])
	}
	if err := m.readMomentum(n); err != nil {
		return err
	}
	if err := m.down.read(n); err != nil {
		return err
	}
	if j := m.rule()(n); j >= 0 && m.gates.result {
		return domain.Invalid("", fmt.Sprintf("tensor %q would not be finite at value %d", domain.Clip(m.base.name, 60), at+int64(j)),
			"lower the outer learning rate; the last good model is kept")
	}
	if _, err := m.nextBase.Write(m.out[:4*n]); err != nil {
		return fmt.Errorf("write next base: %w", err)
	}
	if _, err := m.nextMomentum.Write(m.mem[:8*n]); err != nil {
		return fmt.Errorf("write next momentum: %w", err)
	}
	return m.down.write(n, m.statistic)
}

// rule is the step for the present tensor.
func (m *merger) rule() func(n int) (bad int) {
	switch {
	case m.statistic && m.down != nil:
		return m.averageDown
	case m.statistic:
		return m.average
	case m.down != nil:
		return m.stepDown
	}
	return m.step
}
