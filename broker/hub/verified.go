package hub

import (
	"context"
	"time"

	"tensorturn/broker"
	"tensorturn/domain"
	"tensorturn/domain/event"
)

// The log below the snapshot is verified while the hub works, in bursts of verifyBurst records with pauses three times as
// long between them: a quarter of one core.
const (
	verifyBurst = 4000
	verifyRest  = 3
)

// Verified is the sequence up to which this process has read the log from its first record and found that it holds.
func (s *Service) Verified() uint64 {
	if below := s.below.Load(); below != allVerified {
		return below
	}
	if p := s.at.Load(); p != nil {
		return p.Seq
	}
	return 0
}

// allVerified says that what lies below the start's snapshot holds: the rest was verified when it was read or written.
const allVerified = ^uint64(0)

// verifyBelow reads the log up to the snapshot that the hub started from. What does not hold makes the hub read-only, as
// it would have at a start that reads everything.
func (s *Service) verifyBelow(ctx context.Context, at Position) {
	err := s.readBelow(ctx, at)
	for attempt := 0; err != nil && domain.KindOf(err) != domain.KindIntegrity; attempt++ {
		if !rest(ctx, backoff(attempt, retryFirst, retryLongest)) {
			return
		}
		err = s.readBelow(ctx, at)
	}
	if err == nil {
		s.below.Store(allVerified)
		s.cfg.Logger.Debug().Uint64("seq", at.Seq).Msg("the log below the snapshot holds")
		return
	}
	s.Distrust(ctx, err)
}

// Distrust makes the hub read-only because of evidence from outside of the log, and waits until it is, or until ctx ends.
func (s *Service) Distrust(ctx context.Context, err error) {
	told := make(chan struct{})
	select {
	case s.queue <- task{read: func(c *Core) { c.Distrust(err); s.noteReadOnly(); close(told) }}:
	case <-ctx.Done():
		return
	}
	select {
	case <-told:
	case <-ctx.Done():
	}
}

func (s *Service) readBelow(ctx context.Context, at Position) error {
	v := event.NewVerifier(s.cfg.Registry)
	v.Expect(at.Seq, at.Digest)
	if k := s.cfg.Core.Known; k.Seq > 0 && k.Seq < at.Seq {
		v.Expect(k.Seq, k.Digest)
	}
	began := time.Now()
	for rec, err := range s.cfg.Log.Read(ctx, 1) {
		if err != nil {
			return err
		}
		if _, err := broker.VerifyRecord(v, rec); err != nil {
			return err
		}
		s.below.Store(rec.Seq)
		if rec.Seq == at.Seq {
			return nil
		}
		if rec.Seq%verifyBurst == 0 {
			if !rest(ctx, verifyRest*time.Since(began)) {
				return domain.Unavailable("verify log", "the hub stops", "", ctx.Err())
			}
			began = time.Now()
		}
	}
	return v.Finish()
}

// rest waits, and reports whether ctx is still alive.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
