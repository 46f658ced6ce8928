package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tensorturn/agent/cache"
	"tensorturn/domain"
	"tensorturn/domain/blob"
)

// store is the cache in front of the hub's blobs. All slots share it; what two of them want is fetched once.
type store struct {
	cache *cache.Cache
	blobs Blobs
	up    *flow
	down  *flow

	growing sync.Mutex // held by whoever makes weights from an increment

	mu       sync.Mutex
	fetching map[domain.Digest]chan struct{} // closed when the fetch has ended
}

func newStore(c *cache.Cache, b Blobs, clock func() time.Duration) *store {
	return &store{cache: c, blobs: b, up: newFlow(clock), down: newFlow(clock), fetching: map[domain.Digest]chan struct{}{}}
}

// get gives an object from the cache, or from the hub and then from the cache the next time.
func (s *store) get(ctx context.Context, d domain.Digest, moved func(int64)) ([]byte, error) {
	var data []byte
	err := s.down.each(ctx, 1, func(ctx context.Context, _ int) (n int64, err error) {
		data, n, err = s.fetch(ctx, d, moved)
		return n, err
	})
	return data, err
}

// fetch is one try of get. n is what came over the wire. Whoever wants an object that is being fetched waits for it.
func (s *store) fetch(ctx context.Context, d domain.Digest, moved func(int64)) (data []byte, n int64, err error) {
	for {
		data, err := s.cache.Get(d)
		if err == nil {
			return data, 0, nil
		}
		if k := domain.KindOf(err); k != domain.KindNotFound && k != domain.KindIntegrity {
			return nil, 0, ofDisk(err)
		}
		s.mu.Lock()
		other := s.fetching[d]
		if other == nil {
			s.fetching[d] = make(chan struct{})
		}
		s.mu.Unlock()
		if other == nil {
			break
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.fetching[d])
		delete(s.fetching, d)
	}()
	if data, err = s.blobs.Get(ctx, d, moved); err != nil {
		return nil, 0, err
	}
	return data, int64(len(data)), ofDisk(s.cache.Put(d, data))
}

// open reads a blob through the cache. ctx is used for every later fetch too.
func (s *store) open(ctx context.Context, id domain.Digest, moved func(int64)) (*blob.Reader, error) {
	return blob.Open(ctx, id, func(ctx context.Context, d domain.Digest) ([]byte, error) { return s.get(ctx, d, moved) })
}

// pull brings all parts of a blob into the cache, several at once.
func (s *store) pull(ctx context.Context, id domain.Digest, moved func(int64)) error {
	r, err := s.open(ctx, id, moved)
	if err != nil {
		return err
	}
	parts := r.Manifest().Parts
	return s.down.each(ctx, len(parts), func(ctx context.Context, i int) (int64, error) {
		if s.cache.Has(parts[i]) {
			return 0, nil // read, and checked, when it is used
		}
		_, n, err := s.fetch(ctx, parts[i], moved)
		return n, err
	})
}

// blobWriter cuts what is written into parts in the cache. failed is the disk's error, in case a trainer that writes
// wraps it away.
type blobWriter struct {
	*blob.Writer
	failed error
}

func (s *store) writer(ctx context.Context, moved func(int64)) *blobWriter {
	w := &blobWriter{}
	w.Writer = blob.NewWriter(ctx, func(ctx context.Context, d domain.Digest, data []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		moved(int64(len(data)))
		if err := s.cache.Put(d, data); err != nil {
			w.failed = ofTransfer(err)
		}
		return w.failed
	})
	return w
}

// push sends what the hub lacks of a cached blob: parts first, several at once, the manifest last, so that a manifest
// in the hub's store names parts that are there. A cut push resumes at the missing parts.
func (s *store) push(ctx context.Context, id domain.Digest, moved func(int64)) error {
	b, err := s.cache.Get(id)
	if err != nil {
		return ofDisk(err)
	}
	m, err := blob.Parse(b)
	if err != nil {
		return &transferFailure{err: fmt.Errorf("send blob %s: %w", id.Short(), err), local: true}
	}
	missing, err := s.missing(ctx, m.Parts)
	if err != nil {
		return ofTransfer(err)
	}
	err = s.up.each(ctx, len(missing), func(ctx context.Context, i int) (int64, error) {
		data, err := s.cache.Get(missing[i])
		if err != nil {
			return 0, ofDisk(err)
		}
		return int64(len(data)), s.blobs.Put(ctx, missing[i], data, moved)
	})
	if err == nil {
		err = s.up.each(ctx, 1, func(ctx context.Context, _ int) (int64, error) { return 0, s.blobs.Put(ctx, id, b, moved) })
	}
	return ofTransfer(err)
}

// missing asks for any number of parts; a part that stands twice in a blob is sent once.
func (s *store) missing(ctx context.Context, parts []domain.Digest) ([]domain.Digest, error) {
	var unique []domain.Digest
	seen := make(map[domain.Digest]bool, len(parts))
	for _, d := range parts {
		if !seen[d] {
			seen[d] = true
			unique = append(unique, d)
		}
	}
	var missing []domain.Digest
	for len(unique) > 0 {
		n := min(len(unique), MaxAsked)
		err := s.up.each(ctx, 1, func(ctx context.Context, _ int) (int64, error) {
			some, err := s.blobs.Missing(ctx, unique[:n])
			if err == nil {
				missing = append(missing, some...)
			}
			return 0, err
		})
		if err != nil {
			return nil, err
		}
		unique = unique[n:]
	}
	return missing, nil
}

// CachedBlobs gives objects from an agent's cache, or from the hub and then from the cache the next time.
type CachedBlobs struct{ store *store }

// NewCachedBlobs puts the cache before the hub's store, for whoever loads deployed models.
func NewCachedBlobs(c *cache.Cache, b Blobs) CachedBlobs {
	return CachedBlobs{newStore(c, b, sinceStart())}
}

// Get gives an object.
func (c CachedBlobs) Get(ctx context.Context, d domain.Digest) ([]byte, error) {
	return c.store.get(ctx, d, func(int64) {})
}
