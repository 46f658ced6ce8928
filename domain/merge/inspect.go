package merge

import (
	"errors"
	"fmt"
	"io"
	"math"

	"tensorturn/domain"
	"tensorturn/domain/safetensors"
)

// Finding is what reading a delta found: facts for run.Inspection.
type Finding struct {
	Why  Fault   // empty when every gate passed
	Note string  // for people: which tensor, which value; at most domain.MaxReasonLength bytes
	Norm float64 // L2 norm of D = base − local over all values, 0 when a gate refused
}

// Inspect reads a whole delta beside its base and measures it. What is wrong with the delta is a finding; an error says
// that nothing was found out: the base could not be read, or the delta's source failed in a way that time may heal.
func Inspect(base, delta io.Reader, want Expect) (Finding, error) {
	return inspect(base, delta, want, allGates, tileValues)
}

func inspect(base, src io.Reader, want Expect, g gates, tile int) (Finding, error) {
	norm, err := measure(base, src, want, g, tile)
	var f *faultError
	if errors.As(err, &f) {
		return Finding{Why: f.why, Note: f.note}, nil
	}
	if err != nil {
		return Finding{}, fmt.Errorf("inspect delta: %w", err)
	}
	return Finding{Norm: norm}, nil
}

// measure reads both streams to their ends.
func measure(base, src io.Reader, want Expect, g gates, tile int) (norm float64, err error) {
	b, err := openWeights("base", base)
	if err != nil {
		return 0, err
	}
	layout := b.file.Tensors()
	if got := safetensors.LayoutDigest(layout); got != want.Layout {
		return 0, domain.Integrity("read base", fmt.Sprintf("its layout is %s, the run's is %s", got.Short(), want.Layout.Short()), "")
	}
	d, err := openDelta(src, want, layout, g)
	if err != nil {
		return 0, err
	}
	theta, values, scratch := make([]float64, tile), make([]float64, tile), make([]byte, 4*tile)
	sum := 0.0
	for {
		t, err := b.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		if err := d.next(); err != nil {
			return 0, tooFew(err)
		}
		n, err := t.Count()
		if err != nil {
			return 0, err
		}
		for at := int64(0); at < n; at += int64(tile) {
			k := int(min(int64(tile), n-at))
			raw, err := b.read(4 * k)
			if err != nil {
				return 0, err
			}
			if err := d.read(k, scratch); err != nil {
				return 0, err
			}
			if ClassOf(t) == Statistic {
				continue // no part of the norm
			}
			widen(theta[:k], raw)
			d.values(values[:k], theta[:k])
			sum = squares(sum, values[:k])
		}
	}
	if err := d.end(); err != nil {
		return 0, err
	}
	return math.Sqrt(sum), nil
}

// end makes sure that the delta ends where its base does.
func (d *delta) end() error {
	err := d.next()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return fault(FaultLayout, "it has more tensors than its base")
	}
	return err
}

// tooFew names an end that came too early.
func tooFew(err error) error {
	if errors.Is(err, io.EOF) {
		return fault(FaultLayout, "it has fewer tensors than its base")
	}
	return err
}
