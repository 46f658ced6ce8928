package agent

import (
	"context"
	"errors"

	"tensorturn/domain"
)

// Transport carries syncs to the hub and wakes from it. It reconnects by itself; losing the hub is no error of it.
type Transport interface {
	// Sync sends an encoded wire.SyncRequest and returns the encoded wire.SyncReply. It returns when ctx ends.
	Sync(ctx context.Context, request []byte) ([]byte, error)
	// OnWake names the function to call when the hub hints that a sync is due, or when the link has come back. It must
	// not block. Called once, before the first Sync.
	OnWake(func())
	// Connected reports whether the link to the hub is up, for people.
	Connected() bool
	// Close ends the link and waits for it.
	Close()
}

// Blobs is the hub's store of parts and manifests as an agent reaches it. Safe for concurrent use. moved is called
// with the bytes that went over the wire since the last call; it must not block.
type Blobs interface {
	// Missing gives those of ds, at most MaxAsked, that the store lacks, in their order.
	Missing(ctx context.Context, ds []domain.Digest) ([]domain.Digest, error)
	// Put stores data under its digest; it is durable when Put returns.
	Put(ctx context.Context, d domain.Digest, data []byte, moved func(int64)) error
	// Get fetches an object and checks its digest.
	Get(ctx context.Context, d domain.Digest, moved func(int64)) ([]byte, error)
}

// MaxAsked bounds one question for missing objects: the parts of a 2 GiB delta.
const MaxAsked = 256

// transferFailure marks an error as one of link or disk, which time may heal, and not the trainer's.
type transferFailure struct {
	err   error
	local bool // bytes on this machine are damaged or gone
}

func (t *transferFailure) Error() string { return t.err.Error() }
func (t *transferFailure) Unwrap() error { return t.err }

// ofTransfer marks err, nil for nil.
func ofTransfer(err error) error {
	var marked *transferFailure
	if err == nil || errors.As(err, &marked) {
		return err
	}
	return &transferFailure{err: err}
}

// ofDisk marks err, nil for nil; what is damaged or gone must be made again.
func ofDisk(err error) error {
	if err == nil {
		return nil
	}
	k := domain.KindOf(err)
	return &transferFailure{err: err, local: k == domain.KindIntegrity || k == domain.KindNotFound}
}

// isLocal reports whether err says that bytes on this machine are damaged or gone.
func isLocal(err error) bool {
	var t *transferFailure
	return errors.As(err, &t) && t.local
}
