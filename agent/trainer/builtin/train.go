package builtin

import (
	"context"
	"fmt"
	"math"
	"slices"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/builtin/optimizer"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Train implements trainer.Trainer. A chunk is cut into batches; the last one may be smaller. When ctx ends between two
// steps, the steps done stay in the weights. progress may be nil.
func (t *Trainer) Train(ctx context.Context, c domain.ChunkID, progress func(trainer.Progress)) (trainer.Result, error) {
	if c < 0 || int(c) >= run.TotalChunks(t.spec, t.data) {
		return trainer.Result{}, domain.Invalid("train", fmt.Sprintf("chunk %d does not exist", c), fmt.Sprintf("the run has chunks 0 to %d", run.TotalChunks(t.spec, t.data)-1))
	}
	t.locate(c)
	var done trainer.Result
	clock := run.Position(t.spec, t.data, c)
	total := 0.0
	for rows := t.indices; len(rows) > 0; {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		batch := rows[:min(len(rows), t.batch)]
		rows = rows[len(batch):]
		loss, err := t.step(batch, clock)
		if err != nil {
			return done, fmt.Errorf("train chunk %d, step %d: %w", c, done.Steps+1, err)
		}
		clock += int64(len(batch))
		loss *= t.scale
		total += loss
		done.Steps++
		if progress != nil {
			progress(trainer.Progress{Samples: len(batch), Loss: loss / float64(len(batch))})
		}
	}
	if i := slices.IndexFunc(t.model.params.Data, func(v float32) bool { return !finite(v) }); i >= 0 {
		return done, fmt.Errorf("train chunk %d: %w", c, diverged("a weight is not finite after its last step", t.rate(clock-1, clock)))
	}
	done.Loss = total / float64(len(t.indices))
	return done, nil
}

// locate works out the chunk's rows in training order. The order of an epoch is kept until another epoch is asked for.
func (t *Trainer) locate(c domain.ChunkID) {
	epoch, _, _ := run.ChunkRange(t.spec, t.data, c)
	if t.order == nil || epoch != t.epoch {
		t.order, t.epoch = run.Permutation(t.spec.Seed, epoch, t.data.Samples, t.data.Block), epoch
	}
	t.indices = run.ChunkIndices(t.indices[:0], t.order, t.spec, t.data, c)
	if t.rows != nil {
		for i, sample := range t.indices {
			t.indices[i] = t.rows[sample]
		}
	}
}

// step is one optimizer step on a batch; clock is the run's sample clock before it. It returns the sum of the losses.
// A step that is not finite leaves weights and optimizer as they were.
func (t *Trainer) step(batch []int, clock int64) (float64, error) {
	m := t.model
	if err := t.read(batch); err != nil {
		return 0, err
	}
	t.hide(m.input.Data)
	rate := t.ramped(t.rate(clock, clock+int64(len(batch))))
	m.tape.Train(true)
	m.tape.Forward()
	m.tape.Train(false)
	loss := m.end.loss()
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return 0, diverged(fmt.Sprintf("the loss is %v", loss), rate)
	}
	m.params.ZeroGrad()
	m.tape.Backward()
	norm := optimizer.Norm(m.params.Grad)
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return 0, diverged(fmt.Sprintf("the norm of the gradient is %v", norm), rate)
	}
	optimizer.Clip(m.params.Grad, norm, t.spec.Optimizer.Clip)
	t.optimizer.Step(m.params.Data, m.params.Grad, rate)
	for _, n := range m.norms {
		n.Commit()
	}
	t.ramp = max(t.ramp-1, 0)
	return loss, nil
}

func (t *Trainer) rate(from, to int64) float64 {
	return optimizer.Rate(t.spec.Schedule, t.spec.Optimizer.LR, from, to, run.TotalSamples(t.spec, t.data))
}

// ramped is the rate of this step while a slot that rejoined ramps up: 1/50, 2/50, ... of it.
func (t *Trainer) ramped(rate float64) float64 {
	if t.ramp == 0 {
		return rate // not one bit may change
	}
	return rate * float64(trainer.RampSteps-t.ramp+1) / trainer.RampSteps
}

func diverged(why string, rate float64) error {
	return domain.Invalid("", fmt.Sprintf("%s at learning rate %.3g", why, rate), "lower optimizer.lr, or set optimizer.clip to 1 if it is switched off")
}
