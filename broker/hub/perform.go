package hub

import (
	"context"
	"time"

	"tensorturn/broker"
	"tensorturn/domain"
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

// Collect removes the objects that were stored before a time and to which core refers no more, for the same callers.
func Collect(ctx context.Context, blobs broker.Blobs, before time.Time, core *Core) (removed int, err error) {
	c := &collector{blobs: blobs, manifests: map[domain.Digest][]domain.Digest{}}
	removed, _, err = c.sweep(ctx, before, func() ([]domain.Digest, error) { return core.References(), nil })
	return removed, err
}
