package feed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker"
	"tensorturn/domain"
)

// Pacing of a publisher whose feed does not answer, and its patience at the end.
const (
	retryFirst = 250 * time.Millisecond
	retryMost  = 30 * time.Second
	stopWait   = 3 * time.Second // to publish what has been decided before the hub ends; the rest comes with the next start
)

// Publisher keeps a feed up to date with the log: every event that is told, once, in order. It goes on behind the newest
// message of the feed, which says its place in the log, so that neither a restart nor a lost answer leaves a gap or a
// double. It is one goroutine between Start and Stop.
type Publisher struct {
	feed   broker.Feed
	source *Source
	logger zerolog.Logger

	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	upto  uint64        // every event up to here is published or withheld
	why   error         // why it does not go on, nil when it does
	moved chan struct{} // closed and replaced when upto grows or the publisher ends
	ended bool
}

// NewPublisher makes a publisher; nothing runs before Start.
func NewPublisher(f broker.Feed, s *Source, l zerolog.Logger) *Publisher {
	return &Publisher{feed: f, source: s, logger: l, moved: make(chan struct{})}
}

// Start begins to publish. It is called once, when the hub has read its log.
func (p *Publisher) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel, p.done = cancel, make(chan struct{})
	go func() {
		defer close(p.done)
		p.run(ctx)
	}()
}

// Stop publishes what is noted, within a few seconds, and ends the goroutine. It may be called without Start, and twice.
func (p *Publisher) Stop() {
	if p.done == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWait)
	defer cancel()
	_ = p.Wait(ctx, p.source.Position()) // what is left comes with the next start
	p.cancel()
	<-p.done
}

// Wait waits until every event up to seq is published. It gives the reason when it stops waiting before.
func (p *Publisher) Wait(ctx context.Context, seq uint64) error {
	for {
		p.mu.Lock()
		upto, why, ended, moved := p.upto, p.why, p.ended, p.moved
		p.mu.Unlock()
		if upto >= seq {
			return nil
		}
		if ended {
			return domain.Unavailable("wait for the feed", fmt.Sprintf("it ends at %d of %d", upto, seq), "look into the hub's log", why)
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return domain.Unavailable("wait for the feed", fmt.Sprintf("it is at %d of %d", upto, seq), "try again", errors.Join(why, ctx.Err()))
		}
	}
}

// Status is the sequence up to which events are published, and why it does not go on, nil when it does.
func (p *Publisher) Status() (upto uint64, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upto, p.why
}

func (p *Publisher) set(upto uint64, why error, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upto, p.why, p.ended = upto, why, p.ended || ended
	close(p.moved)
	p.moved = make(chan struct{})
}

func (p *Publisher) run(ctx context.Context) {
	upto := uint64(0)
	defer func() { _, why := p.Status(); p.set(upto, why, true) }()
	p.mend(ctx)
	wait := retryFirst
	for ctx.Err() == nil {
		before := upto
		err := p.publish(ctx, &upto)
		if ctx.Err() != nil {
			return
		}
		p.set(upto, err, false)
		if domain.KindOf(err) == domain.KindIntegrity {
			p.logger.Error().Err(err).Uint64("seq", upto).Msg("the event feed stops")
			return
		}
		if upto > before {
			wait = retryFirst
		}
		p.logger.Warn().Err(err).Uint64("seq", upto).Msg("the event feed waits")
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		wait = min(2*wait, retryMost)
	}
}

// mend has a damaged feed made anew. One that cannot be checked is gone on with: whoever reads it sees the jump in sequence.
func (p *Publisher) mend(ctx context.Context) {
	switch why, err := p.feed.Mend(ctx); {
	case err != nil && ctx.Err() == nil:
		p.logger.Warn().Err(err).Msg("the event feed could not be checked")
	case why != "":
		p.logger.Warn().Str("reason", why).Msg("the event feed is made anew from the log")
	}
}

// publish goes on behind the feed's tail until something fails.
func (p *Publisher) publish(ctx context.Context, upto *uint64) error {
	tail, err := p.tail(ctx)
	if err != nil {
		return err
	}
	*upto = max(*upto, tail) // between the tail and what was published may lie withheld events
	p.set(*upto, nil, false)
	for b, err := range p.source.Follow(ctx, tail) {
		if err != nil {
			return err
		}
		if len(b.Messages) > 0 {
			ms := make([]broker.FeedMessage, 0, len(b.Messages))
			for _, m := range b.Messages {
				ms = append(ms, broker.FeedMessage{Seq: m.Seq, ID: m.ID, Subject: m.Subject, Data: m.Data})
			}
			if err := p.feed.Publish(ctx, ms); err != nil {
				return err
			}
		}
		*upto = max(*upto, b.Upto)
		p.set(*upto, nil, false)
	}
	return ctx.Err()
}

// tail gives the feed's end, after looking whether the feed is one of this log: a log that was restored from a backup may
// have gone another way since.
func (p *Publisher) tail(ctx context.Context) (uint64, error) {
	seq, id, err := p.feed.Tail(ctx)
	if err != nil || seq == 0 {
		return 0, err
	}
	for rec, err := range p.source.log.Read(ctx, seq) {
		if err != nil {
			return 0, err
		}
		if rec.ID == id {
			return seq, nil
		}
		break
	}
	return 0, domain.Integrity("continue the event feed", fmt.Sprintf("its newest event %s is not record %d of the log", domain.Clip(id, 80), seq),
		"was the log restored from a backup? stop the hub, remove the folder of the stream FEED, start it again: the feed is made anew and observers begin again")
}
