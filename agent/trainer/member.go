package trainer

import (
	"context"
	"errors"
	"io"

	"tensorturn/domain/vote"
)

// Members of an ensemble are trained chunk after chunk, from 0 to the last, by one trainer each. What follows is optional: a
// trainer without it is a member all the same.

// Checkpointer is a Trainer whose member can go on elsewhere.
type Checkpointer interface {
	// Keeps reports whether it does: a program may not.
	Keeps() bool
	// SaveState writes everything that the rest of the training depends on: weights, optimizer, random state. Which chunks
	// it has trained is the caller's to know.
	SaveState(ctx context.Context, w io.Writer) error
	// LoadState goes on from there, on a fresh trainer of the same job: what is trained then has the bits that it would have had
	// without the break, on machines of one kind.
	LoadState(ctx context.Context, r io.Reader) error
}

// Predictor is a Trainer that gives class probabilities for all held-out rows, in their order.
type Predictor interface {
	// Outputs changes nothing, like Evaluate. ErrMute: it cannot after all.
	Outputs(ctx context.Context, progress func(Progress)) (vote.Outputs, Metrics, error)
}

// ErrMute says that a trainer gives no probabilities; wrapped with the reason.
var ErrMute = errors.New("without a vote")

// As finds a T in t or in what it wraps.
func As[T any](t Trainer) (T, bool) {
	for t != nil {
		if x, ok := t.(T); ok {
			return x, true
		}
		w, ok := t.(interface{ Unwrap() Trainer })
		if !ok {
			break
		}
		t = w.Unwrap()
	}
	var none T
	return none, false
}
