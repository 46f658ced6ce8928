package hub

import (
	"context"
	"time"
)

// keepEvery is how often the log's position is stored outside of it: what a cut could take unnoticed is this much.
const keepEvery = time.Second

// unkeptSaid spaces the complaints of a disk that takes no position.
const unkeptSaid = time.Minute

// noteHead tells where the log ends; on the loop. A log that is not trusted any more gives no position.
func (s *Service) noteHead() {
	if s.core.ReadOnly() != nil {
		return
	}
	if seq, digest := s.core.Head(); seq > 0 {
		if p := s.at.Load(); p == nil || p.Seq != seq {
			s.at.Store(&Position{Seq: seq, Digest: digest})
		}
	}
}

// keepHeads stores the position while the log grows.
func (s *Service) keepHeads(ctx context.Context) {
	if s.cfg.KeepHead == nil {
		return
	}
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	var kept Position
	for {
		select {
		case <-ticker.C:
			kept = s.saveHead(kept)
		case <-ctx.Done():
			return
		}
	}
}

// saveHead stores the position unless it is the one that was kept, and gives what is kept now.
func (s *Service) saveHead(kept Position) Position {
	p := s.at.Load()
	if s.cfg.KeepHead == nil || p == nil || *p == kept {
		return kept
	}
	if err := s.cfg.KeepHead(*p); err != nil {
		s.unkept.Do(func() { s.cfg.Logger.Warn().Err(err).Msg("position of the log not kept outside of it") })
		return kept
	}
	return *p
}
