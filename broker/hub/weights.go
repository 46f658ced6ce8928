package hub

import (
	"context"

	"tensorturn/broker"
)

// weights is what the workers read and write: blobs of safetensors.
type weights struct{ blobs broker.Blobs }

func (w weights) inspect(ctx context.Context, j InspectJob) Inspected { return Inspected{Job: j} }
func (w weights) merge(ctx context.Context, j MergeJob) Merged        { return Merged{Job: j} }
