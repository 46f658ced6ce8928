package hub

import (
	"context"
	"time"

	"tensorturn/domain"
)

// startWorkers begins the goroutines that read deltas, merge rounds, count votes, collect blobs and send replies. All but the last
// end with ctx; that one ends with the loop.
func (s *Service) startWorkers(ctx context.Context, began Position) {
	for range inspectWorkers {
		s.workers.Go(func() { s.inspectAll(ctx) })
	}
	s.workers.Go(func() { s.mergeAll(ctx) })
	s.workers.Go(func() { s.proveAll(ctx) })
	s.workers.Go(func() { s.voteAll(ctx) })
	s.workers.Go(func() { s.collectAll(ctx) })
	s.workers.Go(s.sendReplies)
	s.workers.Go(func() { s.keepHeads(ctx) })
	s.workers.Go(func() { s.writeSnapshots(ctx) })
	if began.Seq == 0 {
		s.below.Store(allVerified)
		return
	}
	s.workers.Go(func() { s.verifyBelow(ctx, began) })
}

func (s *Service) inspectAll(ctx context.Context) {
	for {
		select {
		case j := <-s.inspects:
			began := time.Now()
			found := s.inspect(ctx, j)
			s.cfg.Logger.Debug().Str("run", string(j.Run)).Str("slot", string(j.Slot)).Int64("took_ms", time.Since(began).Milliseconds()).
				Str("why", string(found.Found.Why)).AnErr("err", found.Err).Msg("delta inspected")
			s.post(ctx, found)
		case <-ctx.Done():
			return
		}
	}
}

// mergeAll merges one round at a time: a merge reads and writes as fast as the disk, two would only share it.
func (s *Service) mergeAll(ctx context.Context) {
	for {
		select {
		case j := <-s.merges:
			began := time.Now()
			s.setMerging(began)
			m := s.merge(ctx, j)
			s.logMerge(m, time.Since(began))
			s.post(ctx, m)
			s.setMerging(time.Time{}) // the log names what was written, or nobody ever will
		case <-ctx.Done():
			return
		}
	}
}

// logMerge says how a merge went. One that failed is said aloud: its run stands still until it succeeds.
func (s *Service) logMerge(m Merged, took time.Duration) {
	l, text := s.cfg.Logger.Info(), "round merged"
	if m.Err != nil || len(m.Unreadable) > 0 {
		l, text = s.cfg.Logger.Warn().AnErr("err", m.Err).Int("unreadable", len(m.Unreadable)).Str("next", domain.NextOf(m.Err)), "round not merged, tried again"
	}
	l.Str("run", string(m.Job.Run)).Int("round", m.Job.Round).Int64("took_ms", took.Milliseconds()).Msg(text)
}

func (s *Service) setMerging(t time.Time) {
	s.mu.Lock()
	s.merging = t
	s.mu.Unlock()
}

// post gives a result to the loop and waits until it is decided. Results wait for room: losing one would leave its job
// under way for ever.
func (s *Service) post(ctx context.Context, in Input) {
	decided := make(chan struct{})
	select {
	case s.queue <- task{in: in, after: func() { close(decided) }}:
	case <-ctx.Done():
		return
	}
	select {
	case <-decided:
	case <-ctx.Done():
	}
}
