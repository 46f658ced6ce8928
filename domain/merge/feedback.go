package merge

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"tensorturn/domain"
	"tensorturn/domain/safetensors"
)

// Error feedback (EF-SGD, arXiv 1901.09847): what a coarse code loses of one delta is added to the slot's next one, so that
// nothing is lost for good and a code without a zero has no lasting bias.
//
//	c = (base − local) + keep·e;  wire = Q(c);  e' = c − deq(wire)
//
// e belongs to a slot, not to a chunk. It is a file of float32 weights in the base's layout, never sent, and only as good
// as its delta: whoever does not know that the delta before was counted begins anew.

// Feedback is the error of the delta before, and where to write this one's.
type Feedback struct {
	Residual io.Reader // safetensors, F32, the base's names and shapes; nil: zeros
	Keep     float64   // factor of the residual: samples of the delta before over those of this one, times beta; 0 to MaxKeep
	Next     io.Writer // receives the new residual in the same layout
}

// MaxKeep bounds how much a residual may be blown up where a slot's next delta weighs less than the one before.
const MaxKeep = 4.0

// MaxResidual is how many times longer than its delta a residual may be. Beyond it the feedback is running away, and its
// owner begins anew (algorithms 1.7).
const MaxResidual = 3.0

// Encoded is what writing a delta with feedback found: L2 norms of D as a reader decodes it and of the new residual.
type Encoded struct{ Norm, Residual float64 }

// RunsAway reports whether the residual must be dropped.
func (e Encoded) RunsAway() bool { return !(e.Residual <= float64(MaxResidual*e.Norm)) }

// EncodeWithFeedback is EncodeDelta with error feedback. The codec must write differences. A residual that cannot be used
// (damaged, of another layout, not finite) is a *ResidualError: encode again without it.
func EncodeWithFeedback(codec Codec, base, local io.Reader, baseDigest domain.Digest, w io.Writer, f Feedback) (Encoded, error) {
	return encodeWithFeedback(codec, base, local, baseDigest, w, f, tileValues)
}

func encodeWithFeedback(codec Codec, base, local io.Reader, baseDigest domain.Digest, w io.Writer, f Feedback, tile int) (Encoded, error) {
	if codec == CodecFP32 || !codec.Known() || !(f.Keep >= 0 && f.Keep <= MaxKeep) {
		return Encoded{}, domain.Invalid("encode delta", fmt.Sprintf("feedback of %v with codec %q", f.Keep, codec),
			fmt.Sprintf("use int8, e3m0 or 2bit and a factor of 0 to %v", MaxKeep))
	}
	fb := &feedback{from: f}
	norm, err := encodeDelta(codec, base, local, baseDigest, w, fb, tile)
	return Encoded{Norm: norm, Residual: math.Sqrt(fb.sum)}, err
}

// ResidualError says that the residual is not one.
type ResidualError struct{ Err error }

func (e *ResidualError) Error() string { return "read residual: " + e.Err.Error() }

// Unwrap gives the cause.
func (e *ResidualError) Unwrap() error { return e.Err }

// feedback walks the residual beside base and local weights. A nil one does nothing.
type feedback struct {
	from Feedback
	old  *weights // nil: zeros
	out  *safetensors.Writer
	raw  []byte
	sum  float64 // of squares of the new residual
}

func (f *feedback) open(layout []safetensors.Tensor, tile int) (err error) {
	if f == nil {
		return nil
	}
	f.raw = make([]byte, 4*tile)
	if f.from.Residual != nil {
		if f.old, err = openWeights("residual", f.from.Residual); err != nil {
			return &ResidualError{err}
		}
		if err := safetensors.Compare(layout, f.old.file.Tensors()); err != nil {
			return &ResidualError{err}
		}
	}
	f.out, err = safetensors.NewWriter(f.from.Next, layout, nil)
	return err
}

func (f *feedback) next() error {
	if f == nil || f.old == nil {
		return nil
	}
	if _, err := f.old.next(); err != nil {
		return &ResidualError{noEnd(err, f.old.what)}
	}
	return nil
}

// add adds the scaled residual to the differences.
func (f *feedback) add(d []float32) error {
	if f == nil || f.old == nil {
		return nil
	}
	raw, err := f.old.read(4 * len(d))
	if err != nil {
		return &ResidualError{err}
	}
	if j := firstNotFinite(raw); j >= 0 {
		return &ResidualError{domain.Invalid("", fmt.Sprintf("tensor %q is not finite at value %d", domain.Clip(f.old.name, 60), j), "")}
	}
	keep := f.from.Keep
	for j := range d {
		e := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*j:])))
		d[j] = float32(float64(d[j]) + float64(keep*e))
	}
	return nil
}

// lose writes what the code lost of c.
func (f *feedback) lose(c []float32, decoded []float64) error {
	if f == nil {
		return nil
	}
	for j, x := range c {
		e := float32(float64(x) - decoded[j])
		binary.LittleEndian.PutUint32(f.raw[4*j:], math.Float32bits(e))
		f.sum += float64(float64(e) * float64(e))
	}
	_, err := f.out.Write(f.raw[:4*len(c)])
	return err
}

// skip passes over values that are sent as they are: nothing of them is lost.
func (f *feedback) skip(n int) error {
	if f == nil {
		return nil
	}
	if f.old != nil {
		if _, err := f.old.read(4 * n); err != nil {
			return &ResidualError{err}
		}
	}
	clear(f.raw[:4*n])
	_, err := f.out.Write(f.raw[:4*n])
	return err
}

// close makes sure that both files end.
func (f *feedback) close() error {
	if f == nil {
		return nil
	}
	if err := f.old.end(); err != nil {
		return &ResidualError{err}
	}
	return f.out.Close()
}
