package merge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"tensorturn/domain/safetensors"
)

// A delta that comes a round late was made from the previous base. It is applied as one more delta of this round, with
// 1/(1 + 1/4) of its weight: the rule of a file-system re-implementation of DiLoCo, which lost 0.043 nats by dropping
// such deltas. Whole weights keep the arithmetic exact: a late delta of n samples weighs 4n, the others of that merge
// 5n each. A merge without late deltas weighs them n, as ever.
const (
	freshWeight = 5
	lateWeight  = 4
)

// weigh gives the weight of each input.
func weigh(inputs []Input) []float64 {
	late := false
	for _, in := range inputs {
		late = late || in.Base != ""
	}
	ws := make([]float64, len(inputs))
	for i, in := range inputs {
		n := in.Samples
		switch {
		case in.Base != "":
			n *= lateWeight
		case late:
			n *= freshWeight
		}
		ws[i] = float64(n)
	}
	return ws
}

// NeedsBase reports whether the input's BaseReader must be given: it is late, and its codec does not write differences.
func (in Input) NeedsBase() bool { return in.Base != "" && in.Codec == CodecFP32 }

// origin walks the weights that a late delta of values was made from: its difference to them is what is applied. A delta
// of coded differences needs none.
type origin struct {
	file *weights
	tile []float64
}

// openOrigin opens the base of a late delta, which has the tensors of the job's base.
func openOrigin(i int, in Input, layout []safetensors.Tensor, tile int) (*origin, error) {
	if !in.NeedsBase() {
		return nil, nil
	}
	what := fmt.Sprintf("base of late delta %d", i)
	if in.BaseReader == nil {
		return nil, fmt.Errorf("read %s: there is none", what)
	}
	file, err := openWeights(what, in.BaseReader)
	if err != nil {
		return nil, err
	}
	if err := safetensors.Compare(layout, file.file.Tensors()); err != nil {
		return nil, fmt.Errorf("read %s: it does not match the base: %w", what, err)
	}
	return &origin{file: file, tile: make([]float64, tile)}, nil
}

func (o *origin) next() error {
	if o == nil {
		return nil
	}
	if _, err := o.file.next(); err != nil {
		return noEnd(err, o.file.what)
	}
	return nil
}

// noEnd names an end that came too early.
func noEnd(err error, what string) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: it has too few tensors: %w", what, io.ErrUnexpectedEOF)
	}
	return err
}

// read gives the next n values, nil for a delta that needs none.
func (o *origin) read(n int) ([]float64, error) {
	if o == nil {
		return nil, nil
	}
	raw, err := o.file.read(4 * n)
	if err != nil {
		return nil, err
	}
	widen(o.tile[:n], raw)
	return o.tile[:n], nil
}

// accumulateLate adds weight·(theta − (from − L)) for plain values L that were trained from other weights than theta.
func accumulateLate(sum, theta, from []float64, weight float64, raw []byte) {
	theta, from = theta[:len(sum)], from[:len(sum)]
	for j := range sum {
		l := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*j:])))
		sum[j] += float64(weight * (theta[j] - (from[j] - l)))
	}
}
