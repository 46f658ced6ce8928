// Package builtin is the built-in trainer: networks in pure Go over packed data sets, with AdamW or SGD, gradient clip and a
// schedule on the run's sample clock: multilayer perceptrons and chains of convolutions, pools and normalisations over
// tables and pictures, for classes or numbers, and two models of text. It implements agent/trainer.Trainer.
//
// For one seed and one binary its bits are the same at any GOMAXPROCS and on every machine of one kind. A step of a small
// perceptron allocates nothing. It never opens a file or a socket; goroutines live within one operation of the tape, which
// joins them. It never reads a clock, and knows nothing of rounds, leases or deltas.
//
// The agent opens one per slot and run. Package tape holds the differentiation, package optimizer the updates.
package builtin

import (
	"context"
	"fmt"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/builtin/optimizer"
	"tensorturn/agent/trainer/builtin/tape"
	"tensorturn/domain"
	"tensorturn/domain/dataset"
	"tensorturn/domain/permute"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

const (
	opOpen = "open trainer"
	// evaluationRows is the batch of Evaluate and Predict. It is fixed, so that a model's measured loss does not depend
	// on the run's batch size.
	evaluationRows = 256
	// evaluationPlaces bounds the predictions of such a batch where a sample has many.
	evaluationPlaces = 4096
	// MaxBytes is the memory one trainer may need. Pure Go is for small models; a larger one wants the process trainer.
	MaxBytes = 16 << 30
)

// Trainer trains one model. It serves one goroutine at a time.
type Trainer struct {
	spec  run.Spec
	data  run.Dataset
	set   *dataset.Set
	facts dataset.Facts

	model     *model
	optimizer optimizer.Optimizer

	rows     []int   // of a member: the row of each sample, nil for itself
	hidden   []int   // of a member: columns it does not see, ascending
	ramp     int     // steps until the full learning rate, after Rejoin
	batch    int     // most samples of a step
	measured int     // rows of a batch of Evaluate and Predict
	scale    float64 // of a loss: a regression's are those of the targets as they stand in the table
	features []float32
	indices  []int // rows of the chunk in training order
	order    *permute.Order
	epoch    int // of order, -1 before the first
}

var _ trainer.Trainer = (*Trainer)(nil)

// Open makes a trainer for the job; it is a trainer.Factory. Its weights are zero until Init or Load. The packed data
// set must be the one the run describes. If job.Data has a method Size() int64, the size is checked too.
func Open(ctx context.Context, job trainer.Job) (trainer.Trainer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	size := int64(-1)
	if sized, ok := job.Data.(interface{ Size() int64 }); ok {
		size = sized.Size()
	}
	set, err := dataset.Open(job.Data, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", opOpen, err)
	}
	facts := set.Facts()
	want := job.Dataset
	want.Bytes = 0 // the store knows it, not the header
	if got := facts.Run(want.Blob); got != want {
		return nil, domain.Integrity(opOpen, fmt.Sprintf("the packed data has %d+%d samples, %d features, %d classes and blocks of %d; the run says %d+%d, %d, %d and %d",
			got.Samples, got.Heldout, got.Features, got.Classes, got.Block, want.Samples, want.Heldout, want.Features, want.Classes, want.Block),
			"submit the run again, so that its data is packed anew")
	}
	t := &Trainer{spec: job.Spec, data: job.Dataset, set: set, facts: facts, epoch: -1, rows: job.Rows, hidden: hiddenOf(job.Columns, facts.Features())}
	if t.rows != nil && len(t.rows) != facts.Samples {
		return nil, domain.Invalid(opOpen, fmt.Sprintf("%d rows for %d samples", len(t.rows), facts.Samples), "")
	}
	t.batch = min(job.Spec.Batch, facts.Samples)
	if t.batch < 1 {
		return nil, domain.Invalid(opOpen, fmt.Sprintf("batch is %d", job.Spec.Batch), "set batch to 1 or more")
	}
	t.measured = max(1, min(evaluationRows, evaluationPlaces/facts.Targets()))
	t.scale = 1
	if facts.Regression() {
		t.scale = float64(facts.TargetStd * facts.TargetStd)
	}
	if t.model, err = newModel(job.Spec.Model, facts, max(t.batch, t.measured)); err != nil {
		return nil, err
	}
	if t.optimizer, err = optimizer.New(job.Spec.Optimizer, len(t.model.params.Data)); err != nil {
		return nil, err
	}
	return t, nil
}

// Layout implements trainer.Trainer.
func (t *Trainer) Layout() []safetensors.Tensor {
	return append([]safetensors.Tensor(nil), t.model.layout...)
}

// Rejoin implements trainer.Trainer. Plain SGD keeps nothing that could have grown old: a ramp would only make a slot that
// was idle for some rounds train less than its share.
func (t *Trainer) Rejoin(context.Context) error {
	if t.spec.Optimizer.Kind == run.OptimizerSGD {
		return nil
	}
	fresh, err := optimizer.New(t.spec.Optimizer, len(t.model.params.Data))
	if err != nil {
		return err
	}
	t.optimizer, t.ramp = fresh, trainer.RampSteps
	return nil
}

// InProcess says that this process's processors do the work (trainer.Throttle).
func (t *Trainer) InProcess() bool { return true }

// Close implements trainer.Trainer.
func (t *Trainer) Close() error {
	t.model, t.optimizer, t.set = nil, nil, nil
	return nil
}

// input is where the features of a batch of n rows go: it sizes the tape for them.
func (t *Trainer) input(n int) *tape.Tensor {
	t.model.tape.Resize(n)
	return t.model.input
}
