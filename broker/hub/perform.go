package hub

import (
	"context"

	"tensorturn/broker"
)

// Inspect does what the Service's worker does with an inspection: for a caller that drives Core itself and decides when
// a job begins and when its result arrives, such as the simulator.
func Inspect(ctx context.Context, blobs broker.Blobs, j InspectJob) Inspected {
	return weights{blobs: blobs}.inspect(ctx, j)
}

// Merge does what the Service's worker does with a merge, for the same callers.
func Merge(ctx context.Context, blobs broker.Blobs, j MergeJob) Merged {
	return weights{blobs: blobs}.merge(ctx, j)
}
