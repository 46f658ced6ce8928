package hub

import (
	"context"
	"fmt"
	"time"

	"tensorturn/broker"
	"tensorturn/domain"
	"tensorturn/domain/blob"
)

// Pacing of garbage collection.
const (
	collectEvery = 10 * time.Minute
	orphanAge    = time.Hour // an object nobody refers to may be part of an upload under way
)

// collectAll removes orphans now and then.
func (s *Service) collectAll(ctx context.Context) {
	ticker := time.NewTicker(collectEvery)
	defer ticker.Stop()
	c := &collector{blobs: s.cfg.Blobs, manifests: map[domain.Digest][]domain.Digest{}}
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		removed, bytes, err := s.collect(ctx, c, began)
		l := s.cfg.Logger.Debug()
		if err != nil && ctx.Err() == nil {
			l = s.cfg.Logger.Warn().Err(err)
		}
		l.Int("removed", removed).Int64("bytes", bytes).Int64("took_ms", time.Since(began).Milliseconds()).Msg("blobs collected")
	}
}

// collect removes the objects that are older than orphanAge and that neither a run nor work under way refers to.
func (s *Service) collect(ctx context.Context, c *collector, now time.Time) (removed int, bytes int64, err error) {
	if s.ReadOnly() != nil {
		return 0, 0, nil // what a damaged log no longer names may be all that is left
	}
	before := now.Add(-orphanAge)
	s.mu.Lock()
	if !s.merging.IsZero() && s.merging.Before(before) {
		before = s.merging // what a long merge has written is named by nobody yet
	}
	s.mu.Unlock()
	defer s.claims.forget() // what was proven while the sweep went on may be gone
	return c.sweep(ctx, before, func() (refs []domain.Digest, err error) {
		s.claims.forget() // a claim that the references do not show yet is looked for anew
		err = s.Read(ctx, func(core *Core) { refs = core.References() })
		return refs, err
	})
}

// sweep removes what was stored before a time and nobody refers to. The references are asked after the list was made: an
// object of the list that has found an owner since then stays.
func (c *collector) sweep(ctx context.Context, before time.Time, references func() ([]domain.Digest, error)) (removed int, bytes int64, err error) {
	old, err := c.old(ctx, before)
	if err != nil || len(old) == 0 {
		return 0, 0, err
	}
	refs, err := references()
	if err != nil {
		return 0, 0, err
	}
	live, err := c.mark(ctx, refs)
	if err != nil {
		return 0, 0, err
	}
	for _, o := range old {
		if _, ok := live[o.Digest]; ok {
			continue
		}
		if err := c.blobs.Delete(ctx, o.Digest); err != nil {
			return removed, bytes, fmt.Errorf("delete blob %s: %w", o.Digest, err)
		}
		removed++
		bytes += o.Size
	}
	return removed, bytes, nil
}

// collector knows the manifests it has read, so that a collection reads only new ones.
type collector struct {
	blobs     broker.Blobs
	manifests map[domain.Digest][]domain.Digest
}

func (c *collector) old(ctx context.Context, before time.Time) ([]broker.BlobInfo, error) {
	var old []broker.BlobInfo
	for o, err := range c.blobs.All(ctx) {
		if err != nil {
			return nil, fmt.Errorf("list blobs: %w", err)
		}
		if o.Stored.Before(before) {
			old = append(old, o)
		}
	}
	return old, nil
}

// mark gives the manifests and parts of the referenced blobs. A manifest that cannot be read ends the collection: what
// it names must not be taken for garbage. One that is missing names nothing.
func (c *collector) mark(ctx context.Context, refs []domain.Digest) (map[domain.Digest]struct{}, error) {
	live := map[domain.Digest]struct{}{}
	seen := map[domain.Digest][]domain.Digest{}
	for _, d := range refs {
		if _, ok := seen[d]; ok {
			continue
		}
		parts, ok := c.manifests[d]
		if !ok {
			r, err := blob.Open(ctx, d, c.blobs.Get)
			if domain.KindOf(err) == domain.KindNotFound {
				continue
			}
			if err != nil {
				return nil, err
			}
			parts = r.Manifest().Parts
		}
		seen[d] = parts
		live[d] = struct{}{}
		for _, p := range parts {
			live[p] = struct{}{}
		}
	}
	c.manifests = seen
	return live, nil
}
