package builtin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/builtin/optimizer"
	"tensorturn/domain"
	"tensorturn/domain/safetensors"
	"tensorturn/domain/vote"
)

var (
	_ trainer.Checkpointer = (*Trainer)(nil)
	_ trainer.Predictor    = (*Trainer)(nil)
)

// hiddenOf lists the columns that are not among the kept ones; kept nil is all of them.
func hiddenOf(kept []int, columns int) []int {
	if kept == nil {
		return nil
	}
	var hidden []int
	for c, at := 0, 0; c < columns; c++ {
		if at < len(kept) && kept[at] == c {
			at++
			continue
		}
		hidden = append(hidden, c)
	}
	return hidden
}

// hide sets the columns that the member does not see to their mean, which is 0 after standardising.
func (t *Trainer) hide(features []float32) {
	width := t.facts.Features()
	for _, c := range t.hidden {
		for at := c; at < len(features); at += width {
			features[at] = 0
		}
	}
}

// firstWeight is the tensor that looks at the columns of a table.
const firstWeight = "0.weight"

// blind zeroes the weights of the columns that the member does not see. Their gradients are zero, so they stay zero: the
// model may be given whole rows afterwards, by anybody, and does not look at them.
func (t *Trainer) blind() {
	at := 0
	for _, tensor := range t.model.layout {
		n := elements(tensor)
		if tensor.Name == firstWeight {
			t.hide(t.model.params.Data[at : at+n])
		}
		at += n
	}
}

// Outputs implements trainer.Predictor.
func (t *Trainer) Outputs(ctx context.Context, progress func(trainer.Progress)) (vote.Outputs, trainer.Metrics, error) {
	out := vote.Outputs{Classes: len(t.facts.Classes)}
	out.Probabilities = make([]float32, 0, t.facts.Heldout*out.Classes)
	m, err := t.evaluate(ctx, progress, func(p []float32) { out.Probabilities = append(out.Probabilities, p...) })
	return out, m, err
}

// Names of a checkpoint's tensors, in canonical order behind the weights' plain one.
const (
	powersTensor  = "optimizer.powers" // float64: running products of the betas
	weightsTensor = "weights"          // all weights, in the layout's order
)

// stateTensors describes a checkpoint: moments, powers and weights.
func (t *Trainer) stateTensors() ([]safetensors.Tensor, [][]float32, []*float64) {
	moments, powers := optimizer.State(t.optimizer)
	n := int64(len(t.model.params.Data))
	var list []safetensors.Tensor
	for i := range moments {
		list = append(list, safetensors.Tensor{Name: fmt.Sprintf("optimizer.moment%d", i), DType: safetensors.F32, Shape: []int64{n}})
	}
	if len(powers) > 0 {
		list = append(list, safetensors.Tensor{Name: powersTensor, DType: safetensors.F64, Shape: []int64{int64(len(powers))}})
	}
	return append(list, safetensors.Tensor{Name: weightsTensor, DType: safetensors.F32, Shape: []int64{n}}), moments, powers
}

// Keeps implements trainer.Checkpointer.
func (t *Trainer) Keeps() bool { return true }

// SaveState implements trainer.Checkpointer. The order of samples and the learning rate follow from the position alone.
func (t *Trainer) SaveState(ctx context.Context, w io.Writer) error {
	const op = "save checkpoint"
	if err := ctx.Err(); err != nil {
		return err
	}
	list, moments, powers := t.stateTensors()
	out, err := safetensors.NewWriter(w, list, map[string]string{"format": "pt"})
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	for _, m := range moments {
		err = first(err, writeValues(out, m))
	}
	for _, p := range powers {
		_, e := out.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(*p)))
		err = first(err, e)
	}
	if err = first(err, writeValues(out, t.model.params.Data)); err == nil {
		err = out.Close()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func writeValues(out io.Writer, values []float32) error {
	buf := make([]byte, 0, 4*min(len(values), ioValues))
	for len(values) > 0 {
		part := values[:min(len(values), ioValues)]
		values = values[len(part):]
		buf = buf[:0]
		for _, v := range part {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
		}
		if _, err := out.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// LoadState implements trainer.Checkpointer. A foreign or damaged stream changes nothing.
func (t *Trainer) LoadState(ctx context.Context, r io.Reader) error {
	const op = "load checkpoint"
	list, moments, powers := t.stateTensors()
	in, err := safetensors.NewReader(r)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if err := safetensors.Compare(list, in.Tensors()); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	into := append(append([][]float32{}, moments...), t.model.params.Data)
	var staged [][]float32
	var read []float64
	for {
		tensor, body, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && tensor.Name == powersTensor {
			read, err = readPowers(body, len(powers))
		} else if err == nil {
			values := make([]float32, len(t.model.params.Data))
			staged, err = append(staged, values), readValues(ctx, tensor, body, values)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	domain.Assert(len(staged) == len(into) && len(read) == len(powers), "a stream with the checkpoint's tensors fills it")
	for i := range into {
		copy(into[i], staged[i])
	}
	for i := range powers {
		*powers[i] = read[i]
	}
	t.ramp = 0
	return nil
}

func readPowers(body io.Reader, n int) ([]float64, error) {
	buf := make([]byte, 8*n)
	if _, err := io.ReadFull(body, buf); err != nil {
		return nil, err
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(buf[8*i:]))
		if !(out[i] >= 0 && out[i] <= 1) {
			return nil, domain.Invalid("", "the optimizer's powers are none", "use an earlier checkpoint")
		}
	}
	return out, nil
}
