// Package trainer is the contract between the agent and the code that trains. agent/trainer/builtin implements it in
// pure Go; a process trainer will implement it over a socket. It schedules nothing and talks to no network.
//
// One Trainer serves one slot for one run, from Open to Close, on one goroutine at a time. Its optimizer state lives as
// long as it does: Load replaces weights and leaves optimizer and random state untouched.
package trainer

import (
	"context"
	"errors"
	"io"

	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

// Optimizer state across rounds (design section 5; algorithms: DiLoCo keeps inner state, a late joiner ramps).
const (
	MaxMissedRounds = 5  // more than these, and the state is zeroed
	RampSteps       = 50 // steps until the full learning rate after that
)

// Job is what a trainer is opened with.
type Job struct {
	Run     domain.RunID
	Spec    run.Spec
	Dataset run.Dataset
	Data    io.ReaderAt // the packed data set (domain/dataset), fetched as it is read
	Dir     string      // a work directory of the trainer's own, may be empty for the built-in one

	// Device is the UUID of the GPU to compute on, empty for whatever the agent's environment shows.
	Device string

	// Serve opens it for predictions alone: Load, Predict, Close.
	Serve bool

	// Of a member of an ensemble, whose own settings are in Spec: its number, 0 for none; for each sample of the training part the row
	// trained in its place, nil for itself; and the columns it sees, nil for all.
	Member  int
	Rows    []int
	Columns []int
}

// Trainer trains one model. Every method returns promptly with ctx.Err() when ctx ends; the trainer may then only be
// closed. Errors are task errors: the trainer's own, never a link's.
type Trainer interface {
	// Layout describes the tensors in canonical (name) order: names, dtypes, shapes.
	Layout() []safetensors.Tensor
	// Init sets the weights that the job's seed gives: the same bits on every machine of one kind.
	Init(ctx context.Context) error
	// Load replaces the weights by a safetensors stream whose layout must equal Layout.
	Load(ctx context.Context, weights io.Reader) error
	// Rejoin forgets the optimizer state and lets the learning rate ramp up over RampSteps steps. The agent calls it before
	// Load when the slot has missed more than MaxMissedRounds rounds: moments that old point elsewhere.
	Rejoin(ctx context.Context) error
	// Save writes the weights as a safetensors stream in canonical order.
	Save(ctx context.Context, w io.Writer) error
	// Train trains the chunk on the present weights. Samples come in the order of the run's permutation, the learning
	// rate from the chunk's position on the run's sample clock. progress is called after every optimizer step.
	Train(ctx context.Context, c domain.ChunkID, progress func(Progress)) (Result, error)
	// Evaluate measures the present weights on the held-out part; it changes nothing.
	Evaluate(ctx context.Context, progress func(Progress)) (Metrics, error)
	// Predict gives class probabilities [rows, classes], or of a regression numbers [rows], for raw features [rows, features], as they stand in the table:
	// the trainer standardises them with the data set's statistics.
	Predict(ctx context.Context, features []float32) ([]float32, error)
	// Close frees everything.
	Close() error
}

// Progress is one step of work done.
type Progress struct {
	Samples int     // samples of this step
	Loss    float64 // mean loss of this step, nats
}

// Result is a trained chunk.
type Result struct {
	Steps int
	Loss  float64 // mean over the chunk's samples, nats
	All   bool    // a program did its whole member at once: nothing is left to train
}

// Metrics is a model measured on held-out data.
type Metrics struct {
	Samples  int
	Accuracy float64 // fraction; 0 of a regression
	Loss     float64 // mean cross-entropy, nats; of a regression the mean squared error

	// Of a regression alone: 1 − squared error / variance, nil where the held-out numbers are all equal, and the mean absolute
	// error.
	R2, MAE *float64
}

// LastLines gives what a trainer's program printed last before the failure, oldest first; nil when the error knows nothing.
func LastLines(err error) []string {
	var printed interface{ LastLines() []string }
	if errors.As(err, &printed) {
		return printed.LastLines()
	}
	return nil
}

// Factory opens a trainer for a job.
type Factory func(ctx context.Context, job Job) (Trainer, error)
