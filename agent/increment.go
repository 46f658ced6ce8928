package agent

import (
	"context"
	"errors"
	"fmt"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/merge"
)

// pullBase brings the weights into the cache: from the ones before and the increment, if both can be had, and otherwise
// whole. An increment that does not give the bytes that the log names is left alone: the digest of the base decides.
func (w *worker) pullBase(base domain.Digest, in *wire.Increment) error {
	if in == nil {
		return w.store.pull(w.ctx, base, w.meter.moved)
	}
	err := w.store.grow(w.ctx, base, in, w.meter.moved)
	if err == nil || w.ctx.Err() != nil {
		return err
	}
	if !errors.Is(err, errNoOrigin) {
		w.log.Warn().Err(err).Str("base", base.Short()).Msg("increment not used, the base is fetched whole")
	}
	return w.store.pull(w.ctx, base, w.meter.moved)
}

// errNoOrigin says that the cache does not hold the weights that an increment leads on from: a slot that missed a round.
var errNoOrigin = errors.New("the weights before are not in the cache")

// grow makes the weights of base from those before. Two slots of a machine do it one after the other, so that the second
// finds what the first made. The increment is fetched before the turn: a slow link must not hold up a slot that has all it needs.
func (s *store) grow(ctx context.Context, base domain.Digest, in *wire.Increment, moved func(int64)) error {
	switch {
	case s.whole(base):
		return nil
	case !s.whole(in.From):
		return errNoOrigin
	}
	if err := s.pull(ctx, in.Blob, moved); err != nil {
		return err
	}
	s.growing.Lock()
	defer s.growing.Unlock()
	if s.whole(base) {
		return nil
	}
	from, err := s.open(ctx, in.From, moved)
	if err != nil {
		return err
	}
	increment, err := s.open(ctx, in.Blob, moved)
	if err != nil {
		return err
	}
	out := s.writer(ctx, moved)
	if err := merge.ApplyIncrement(merge.Codec(in.Codec), from, increment, in.From, out); err != nil {
		return err
	}
	got, err := out.Close()
	if err != nil {
		return err
	}
	if got != base {
		return domain.Integrity("apply increment", fmt.Sprintf("it leads to %s, not to %s", got.Short(), base.Short()), "")
	}
	return nil
}

// whole reports whether the cache holds a blob with all its parts.
func (s *store) whole(id domain.Digest) bool {
	b, err := s.cache.Get(id)
	if err != nil {
		return false
	}
	m, err := blob.Parse(b)
	if err != nil {
		return false
	}
	for _, p := range m.Parts {
		if !s.cache.Has(p) {
			return false
		}
	}
	return true
}
