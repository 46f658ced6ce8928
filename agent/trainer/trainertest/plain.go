// Package trainertest holds what tests of trainers share: the plain training loop that a pool's result is compared
// with, and the suite that every trainer.Trainer must pass. Tests alone import it.
package trainertest

import (
	"context"
	"io"

	"tensorturn/agent/trainer"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Plain trains the job without any pool: weights from the seed, chunks 0, 1, 2 and so on in order on one trainer, and
// the weights saved to w. With one machine, one contribution a round, outer rate 1, momentum 0 and codec fp32 a pool
// must give the same bits.
func Plain(ctx context.Context, open trainer.Factory, job trainer.Job, w io.Writer) (trainer.Metrics, error) {
	t, err := open(ctx, job)
	if err != nil {
		return trainer.Metrics{}, err
	}
	defer t.Close()
	if err := t.Init(ctx); err != nil {
		return trainer.Metrics{}, err
	}
	for c := range run.TotalChunks(job.Spec, job.Dataset) {
		if _, err := t.Train(ctx, domain.ChunkID(c), nil); err != nil {
			return trainer.Metrics{}, err
		}
	}
	if err := t.Save(ctx, w); err != nil || job.Dataset.Heldout == 0 {
		return trainer.Metrics{}, err
	}
	return t.Evaluate(ctx, nil)
}
