package broker

import (
	"context"
	"iter"
	"time"

	"tensorturn/domain"
)

// Blobs stores content-addressed objects of at most domain.MaxPartBytes: parts and manifests (domain/blob). Put is
// durable when it returns. Every method is idempotent and safe for concurrent use.
type Blobs interface {
	// Has says which of the digests are stored, in the order given.
	Has(ctx context.Context, ds []domain.Digest) ([]bool, error)
	// Put stores data under its digest. Data whose SHA-256 is not d is refused as domain.KindInvalid.
	Put(ctx context.Context, d domain.Digest, data []byte) error
	// Get returns the object after checking its SHA-256: domain.KindNotFound or domain.KindIntegrity otherwise.
	Get(ctx context.Context, d domain.Digest) ([]byte, error)
	// Delete forgets the object; a missing one is no error.
	Delete(ctx context.Context, d domain.Digest) error
	// All yields every object with its size and time of storage, for garbage collection.
	All(ctx context.Context) iter.Seq2[BlobInfo, error]
}

// BlobInfo describes a stored object.
type BlobInfo struct {
	Digest domain.Digest
	Size   int64
	Stored time.Time
}
