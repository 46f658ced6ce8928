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

// encoder writes one delta.
type encoder struct {
	codec       Codec
	feedback    *feedback // nil: none
	base, local *weights
	out         *safetensors.Writer
	theta       []float64 // base, then D as a reader will decode it
	d           []float32
	code        []byte
	values      bool    // the present tensor is a statistic: its values are written, and it is no part of the norm
	sum         float64 // of squares of D
}

// EncodeDelta writes the delta of local weights against their base to w: a safetensors file with the codec, the base's
// blob id and the layout in its metadata. base and local are safetensors streams of one layout in canonical order. It
// returns the L2 norm of D = base − local as Inspect will measure it.
//
// Weights that cannot be coded (NaN, Inf, a difference beyond float32, another layout, a class without a rule) are
// domain.KindInvalid and name the tensor; errors of the streams keep their kind. After an error w holds rubbish.
func EncodeDelta(codec Codec, base, local io.Reader, baseDigest domain.Digest, w io.Writer) (norm float64, err error) {
	return encodeDelta(codec, base, local, baseDigest, w, nil, tileValues)
}

func encodeDelta(codec Codec, base, local io.Reader, baseDigest domain.Digest, w io.Writer, fb *feedback, tile int) (float64, error) {
	if !codec.Known() {
		return 0, domain.Invalid("encode delta", fmt.Sprintf("there is no codec %q", codec), "use fp32, int8, e3m0 or 2bit")
	}
	e := &encoder{codec: codec, feedback: fb, theta: make([]float64, tile), d: make([]float32, tile), code: make([]byte, codeBytes(codec, int64(tile)))}
	var err error
	if e.base, err = openWeights("base", base); err != nil {
		return 0, fmt.Errorf("encode delta: %w", err)
	}
	if e.local, err = openWeights("local weights", local); err != nil {
		return 0, fmt.Errorf("encode delta: %w", err)
	}
	layout := e.base.file.Tensors()
	if err := safetensors.Compare(layout, e.local.file.Tensors()); err != nil {
		return 0, fmt.Errorf("encode delta: local weights do not match their base: %w", err)
	}
	if err := e.feedback.open(layout, tile); err != nil {
		return 0, fmt.Errorf("encode delta: %w", err)
	}
	tensors, err := deltaTensors(codec, layout)
	if err != nil {
		return 0, err
	}
	e.out, err = safetensors.NewWriter(w, tensors, deltaMetadata(codec, baseDigest, safetensors.LayoutDigest(layout)))
	if err != nil {
		return 0, fmt.Errorf("encode delta: %w", err)
	}
	if err := e.all(tile); err != nil {
		return 0, fmt.Errorf("encode delta: %w", err)
	}
	return math.Sqrt(e.sum), nil
}

// all writes every tensor and makes sure that both streams end.
func (e *encoder) all(tile int) error {
	for {
		t, err := e.base.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if _, err := e.local.next(); err != nil {
			return err
		}
		if err := e.feedback.next(); err != nil {
			return err
		}
		e.values = ClassOf(t) == Statistic
		n, err := t.Count()
		if err != nil {
			return err
		}
		for at := int64(0); at < n; at += int64(tile) {
			if err := e.tile(at, int(min(int64(tile), n-at))); err != nil {
				return err
			}
		}
	}
	if err := e.local.end(); err != nil {
		return err
	}
	return errors.Join(e.feedback.close(), e.out.Close())
}

// tile writes n values, the first of them number at of its tensor.
func (e *encoder) tile(at int64, n int) error {
	b, err := e.base.read(4 * n)
	if err != nil {
		return err
	}
	l, err := e.local.read(4 * n)
	if err != nil {
		return err
	}
	for _, raw := range [][]byte{b, l} {
		if j := firstNotFinite(raw); j >= 0 {
			which := e.local.what
			if &raw[0] == &b[0] {
				which = e.base.what
			}
			return domain.Invalid("", fmt.Sprintf("%s: tensor %q is not finite at value %d", which, domain.Clip(e.base.name, 60), at+int64(j)),
				"the training has diverged: lower the learning rate or clip gradients")
		}
	}
	if e.values {
		if err := e.feedback.skip(n); err != nil {
			return err
		}
		_, err = e.out.Write(l)
		return err
	}
	if e.codec == CodecFP32 {
		widen(e.theta[:n], b)
		for j := range n {
			e.theta[j] -= float64(math.Float32frombits(binary.LittleEndian.Uint32(l[4*j:])))
		}
		e.sum = squares(e.sum, e.theta[:n])
		_, err = e.out.Write(l)
		return err
	}
	return e.tileCoded(at, n, b, l)
}

// tileCoded codes base − local, and with feedback what earlier deltas lost. The difference is rounded once to float32: the
// scale is one, and the code is coarser.
func (e *encoder) tileCoded(at int64, n int, b, l []byte) error {
	d := e.d[:n]
	for j := range d {
		d[j] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*j:])) - math.Float32frombits(binary.LittleEndian.Uint32(l[4*j:]))
	}
	if err := e.feedback.add(d); err != nil {
		return err
	}
	for j, x := range d {
		if math.Float32bits(x)&0x7f800000 == 0x7f800000 {
			return domain.Invalid("", fmt.Sprintf("tensor %q: base − local is beyond float32 at value %d", domain.Clip(e.base.name, 60), at+int64(j)),
				"use codec fp32")
		}
	}
	encodeTile(e.codec, e.code, d, e.theta)
	e.sum = squares(e.sum, e.theta[:n])
	if err := e.feedback.lose(d, e.theta[:n]); err != nil {
		return err
	}
	_, err := e.out.Write(e.code[:codeBytes(e.codec, int64(n))])
	return err
}
