package merge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"tensorturn/domain"
	"tensorturn/domain/safetensors"
)

// The way down (error-compensated in both directions as DoubleSqueeze, arXiv 1905.05957; algorithms 1.8): instead of the
// next base the machines get its coded increment. The shared base S stays the same bits everywhere; what the code loses
// is the hub's residual r, which the next merge adds again.
//
//	master = S + r − eta·(D + mu·m');  code = Q(S − master);  S' = S − deq(code), rounded to float32;  r' = master − S'
//
// An increment is a delta file of the old base to the next one: the same form, the same gates, D = S − S'. S' is the model:
// evaluated, saved, hashed. Statistics travel as values and have no residual.

// Down asks a merge for an increment.
type Down struct {
	Codec        Codec     // int8 or e3m0; empty: the next base is exact and the rest is not used
	Residual     io.Reader // safetensors, F64, the momentum's layout; nil in the first round: zeros
	Increment    io.Writer // receives the increment, a delta file
	NextResidual io.Writer // receives the residual in the momentum's layout
}

// Increments reports whether next bases may be sent in the codec. 2-bit is not among them: with its residual two thirds as
// long as every step, the shared base would trail the master by a round.
func (c Codec) Increments() bool { return c == CodecInt8 || c == CodecE3M0 }

// downward is the coded way down of one merge. A nil one does nothing.
type downward struct {
	codec     Codec
	residual  *weights // nil: zeros
	increment *safetensors.Writer
	next      *safetensors.Writer
	r, q      []float64
	d         []float32
	code, mem []byte
	values    []byte // of a statistic: what is written in place of code
	sum       float64
}

// openDown reads the residual's header and begins both files.
func openDown(job Job, layout, momentum []safetensors.Tensor, layoutDigest domain.Digest, tile int) (*downward, error) {
	in := job.Down
	if in.Codec == "" {
		return nil, nil
	}
	if !in.Codec.Increments() {
		return nil, domain.Invalid("", fmt.Sprintf("the next base cannot be sent as %q", in.Codec), "use int8 or e3m0")
	}
	d := &downward{codec: in.Codec, r: make([]float64, tile), q: make([]float64, tile), d: make([]float32, tile),
		code: make([]byte, codeBytes(in.Codec, int64(tile))), mem: make([]byte, 8*tile)}
	var err error
	if in.Residual != nil {
		if d.residual, err = openF64("residual", in.Residual, momentum); err != nil {
			return nil, err
		}
	}
	tensors, err := deltaTensors(in.Codec, layout)
	if err != nil {
		return nil, err
	}
	if d.increment, err = safetensors.NewWriter(in.Increment, tensors, deltaMetadata(in.Codec, job.BaseDigest, layoutDigest)); err != nil {
		return nil, fmt.Errorf("write increment: %w", err)
	}
	if d.next, err = safetensors.NewWriter(in.NextResidual, momentum, nil); err != nil {
		return nil, fmt.Errorf("write next residual: %w", err)
	}
	return d, nil
}

// tensor goes to the residual's next tensor.
func (d *downward) tensor() error {
	if d == nil || d.residual == nil {
		return nil
	}
	_, err := d.residual.next()
	return noEnd(err, "residual")
}

// read fills the residual's tile: zeros in the first round.
func (d *downward) read(n int) error {
	if d == nil || d.residual == nil {
		if d != nil {
			clear(d.r[:n])
		}
		return nil
	}
	raw, err := d.residual.read(8 * n)
	if err != nil {
		return err
	}
	for j := range d.r[:n] {
		d.r[j] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*j:]))
	}
	return nil
}

// write stores the tile's code and residual.
func (d *downward) write(n int, statistic bool) error {
	if d == nil {
		return nil
	}
	code := d.code[:codeBytes(d.codec, int64(n))]
	if statistic {
		code = d.values
	}
	if _, err := d.increment.Write(code); err != nil {
		return fmt.Errorf("write increment: %w", err)
	}
	if _, err := d.next.Write(d.mem[:8*n]); err != nil {
		return fmt.Errorf("write next residual: %w", err)
	}
	return nil
}

// close makes sure that the residual ends, and ends both files.
func (d *downward) close() error {
	if d == nil {
		return nil
	}
	if err := d.residual.end(); err != nil {
		return err
	}
	return errors.Join(d.increment.Close(), d.next.Close())
}

// stepDown is step for a coded way down: out receives S', the increment's code and the residual are kept for write. Every
// product stands in a conversion, see step.
func (m *merger) stepDown(n int) (bad int) {
	eta, mu, total, down := m.job.Eta, m.job.Mu, m.total, m.down
	keep := 1 - eta
	theta, sum, mom := m.theta[:n], m.mean[:n], m.m[:n]
	r, d, q := down.r[:n], down.d[:n], down.q[:n]
	bad = -1
	for j := range theta {
		l := sum[j] / total
		next := float64(mu*mom[j]) + (theta[j] - l)
		master := float64(keep*theta[j]) + float64(eta*l) - float64(eta*float64(mu*next)) + r[j]
		r[j] = master
		d[j] = float32(theta[j] - master)
		if bad < 0 && (math.Float32bits(d[j])&0x7f800000 == 0x7f800000 || math.Float64bits(next)&(0x7ff<<52) == 0x7ff<<52) {
			bad = j
		}
		binary.LittleEndian.PutUint64(m.mem[8*j:], math.Float64bits(next))
	}
	if bad >= 0 {
		return bad
	}
	encodeTile(down.codec, down.code, d, q)
	norm := m.sum
	for j := range theta {
		s := float32(theta[j] - q[j])
		if bad < 0 && math.Float32bits(s)&0x7f800000 == 0x7f800000 {
			bad = j
		}
		rest := r[j] - float64(s)
		binary.LittleEndian.PutUint32(m.out[4*j:], math.Float32bits(s))
		binary.LittleEndian.PutUint64(down.mem[8*j:], math.Float64bits(rest))
		moved := float64(s) - theta[j]
		norm += float64(moved * moved)
		down.sum += float64(rest * rest)
	}
	m.sum = norm
	return bad
}

// averageDown is average for a coded way down.
func (m *merger) averageDown(n int) (bad int) {
	bad = m.average(n)
	m.down.values = m.out[:4*n]
	clear(m.down.mem[:8*n])
	return bad
}

// ApplyIncrement writes the next base to w: base is the weights whose blob id is from, increment what the hub made of them. The
// bytes are those of the hub's own next base; whoever calls it compares their digest. What is wrong with the increment is an
// *IncrementError: fetch the whole base instead. Errors of the streams keep their kind; after any error w holds rubbish.
func ApplyIncrement(codec Codec, base, increment io.Reader, from domain.Digest, w io.Writer) error {
	return applyIncrement(codec, base, increment, from, w, tileValues)
}

// IncrementError says that an increment cannot be used, now or ever.
type IncrementError struct {
	Fault Fault
	Note  string
}

func (e *IncrementError) Error() string {
	return fmt.Sprintf("the increment is %s: %s", e.Fault, e.Note)
}

// Unwrap gives it domain.KindIntegrity.
func (e *IncrementError) Unwrap() error { return domain.Integrity("apply increment", e.Note, "") }

func applyIncrement(codec Codec, base, increment io.Reader, from domain.Digest, w io.Writer, tile int) error {
	if !codec.Increments() {
		return domain.Invalid("apply increment", fmt.Sprintf("none is written as %q", domain.Clip(string(codec), 40)), "")
	}
	err := applyTiles(base, increment, Expect{Codec: codec, Base: from}, w, tile)
	var f *faultError
	if errors.As(err, &f) {
		return &IncrementError{Fault: f.why, Note: f.note}
	}
	if err != nil {
		return fmt.Errorf("apply increment: %w", err)
	}
	return nil
}

func applyTiles(base, increment io.Reader, want Expect, w io.Writer, tile int) error {
	b, err := openWeights("base", base)
	if err != nil {
		return err
	}
	layout := b.file.Tensors()
	want.Layout = safetensors.LayoutDigest(layout)
	d, err := openDelta(increment, want, layout, allGates)
	if err != nil {
		return err
	}
	out, err := safetensors.NewWriter(w, layout, nil)
	if err != nil {
		return err
	}
	a := applier{base: b, d: d, out: out, theta: make([]float64, tile), q: make([]float64, tile), scratch: make([]byte, 4*tile)}
	for {
		t, err := b.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := d.next(); err != nil {
			return tooFew(err)
		}
		n, err := t.Count()
		if err != nil {
			return err
		}
		for at := int64(0); at < n; at += int64(tile) {
			if err := a.tile(at, int(min(int64(tile), n-at)), ClassOf(t) == Statistic); err != nil {
				return err
			}
		}
	}
	if err := d.end(); err != nil {
		return err
	}
	return out.Close()
}

// applier holds the streams of one application and a tile of each.
type applier struct {
	base     *weights
	d        *delta
	out      *safetensors.Writer
	theta, q []float64
	scratch  []byte
}

// tile writes n values of the next base.
func (a *applier) tile(at int64, n int, statistic bool) error {
	raw, err := a.base.read(4 * n)
	if err != nil {
		return err
	}
	if err := a.d.read(n, a.scratch); err != nil {
		return err
	}
	if statistic {
		_, err = a.out.Write(a.d.raw)
		return err
	}
	widen(a.theta[:n], raw)
	a.d.values(a.q[:n], a.theta[:n])
	for j := range n {
		s := math.Float32bits(float32(a.theta[j] - a.q[j]))
		if s&0x7f800000 == 0x7f800000 {
			return fault(FaultNotFinite, "tensor %q would not be finite at value %d", domain.Clip(a.base.name, 60), at+int64(j))
		}
		binary.LittleEndian.PutUint32(raw[4*j:], s)
	}
	_, err = a.out.Write(raw)
	return err
}
