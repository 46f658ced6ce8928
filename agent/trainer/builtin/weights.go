package builtin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"tensorturn/domain"
	"tensorturn/domain/safetensors"
)

const (
	opLoad   = "load weights"
	opSave   = "save weights"
	ioValues = 16 << 10 // values converted at a time
)

// Init implements trainer.Trainer.
func (t *Trainer) Init(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.model.initialise(t.spec.Seed)
	t.blind()
	return nil
}

// Load implements trainer.Trainer. The stream is read to its end and checked before the present weights are touched: a
// cut, foreign or not finite one changes nothing. Optimizer state stays.
func (t *Trainer) Load(ctx context.Context, weights io.Reader) error {
	r, err := safetensors.NewReader(weights)
	if err != nil {
		return fmt.Errorf("%s: %w", opLoad, err)
	}
	if err := safetensors.Compare(t.model.layout, r.Tensors()); err != nil {
		return fmt.Errorf("%s: %w", opLoad, err)
	}
	// The gradients are free between steps and as long as the weights.
	staging, at := t.model.params.Grad, 0
	for {
		tensor, body, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = readValues(ctx, tensor, body, staging[at:at+elements(tensor)])
			at += elements(tensor)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", opLoad, err)
		}
	}
	domain.Assert(at == len(staging), "a stream with the model's layout fills the model")
	copy(t.model.params.Data, staging)
	return nil
}

// readValues reads one tensor's values, all finite.
func readValues(ctx context.Context, tensor safetensors.Tensor, body io.Reader, out []float32) error {
	buf := make([]byte, 4*min(len(out), ioValues))
	for at := 0; at < len(out); {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := buf[:4*min(len(out)-at, ioValues)]
		if _, err := io.ReadFull(body, part); err != nil {
			return fmt.Errorf("tensor %s: %w", tensor.Name, err)
		}
		for ; len(part) > 0; part = part[4:] {
			v := math.Float32frombits(binary.LittleEndian.Uint32(part))
			if !finite(v) {
				return domain.Invalid("", fmt.Sprintf("tensor %s, value %d is not finite", tensor.Name, at), "use weights of an earlier round")
			}
			out[at] = v
			at++
		}
	}
	return nil
}

// Save implements trainer.Trainer: equal weights give equal bytes.
func (t *Trainer) Save(ctx context.Context, w io.Writer) error {
	out, err := safetensors.NewWriter(w, t.model.layout, map[string]string{"format": "pt"})
	if err != nil {
		return fmt.Errorf("%s: %w", opSave, err)
	}
	values := t.model.params.Data
	buf := make([]byte, 0, 4*min(len(values), ioValues))
	for len(values) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := values[:min(len(values), ioValues)]
		values = values[len(part):]
		buf = buf[:0]
		for _, v := range part {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
		}
		if _, err := out.Write(buf); err != nil {
			return fmt.Errorf("%s: %w", opSave, err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("%s: %w", opSave, err)
	}
	return nil
}

func finite(v float32) bool { return math.Float32bits(v)&0x7f800000 != 0x7f800000 }
