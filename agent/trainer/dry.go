package trainer

import (
	"context"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Dry is a trainer that can say what a step takes. The agent asks the first slot of a run, before the run spreads.
type Dry interface {
	// Dry trains on the chunk until it has made a step and what it takes has been measured. Afterwards the trainer may only be closed:
	// weights, optimizer and random state have moved on. An error is the step's own.
	Dry(ctx context.Context, c domain.ChunkID, progress func(Progress)) (run.Memory, error)
}
