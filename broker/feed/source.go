// Package feed publishes the log's events for other systems: Source hands them out in order to whoever follows (the
// publisher, event streams over HTTP, webhooks), Publisher keeps the feed on JetStream up to date. It decides nothing and
// renders nothing itself (projections/feed does); cmd starts and stops it, broker/gateway reads from Source.
package feed

import (
	"context"
	"iter"
	"sync"
	"time"

	"tensorturn/broker"
	"tensorturn/domain/event"
	"tensorturn/domain/freeze"
	"tensorturn/projections/feed"
)

// Limits of what is kept in memory and handed out at once.
const (
	maxRecent      = 4096    // newest events kept, up to twice as many; whoever is further behind reads the log
	maxRecentBytes = 8 << 20 // of their messages, up to twice as much
	maxBatch       = 256     // messages of one batch
	maxBatchBytes  = 1 << 20
)

// Source gives the events of the log to any number of followers, each at its own pace. A slow one costs nothing but its
// own place: nothing waits for it and nothing is kept for it.
type Source struct {
	log    broker.Log
	reg    *event.Registry
	format *feed.Format

	mu     sync.Mutex
	live   bool
	last   uint64  // newest sequence noted
	recent []entry // without gaps up to last
	bytes  int
	moved  chan struct{} // closed and replaced when last grows
}

// entry is one recent event; a withheld one has no message.
type entry struct {
	seq  uint64
	told bool
	msg  feed.Message
}

// NewSource makes a source over a log that the hub has read or is about to read: see Note.
func NewSource(log broker.Log, reg *event.Registry, format *feed.Format) *Source {
	return &Source{log: log, reg: reg, format: format, moved: make(chan struct{})}
}

// Note takes events that are durable, in order. It is a listener of the hub's Service and is called on its loop: events are
// rendered here, since the hub's state may change their data later. Before GoLive, while the hub reads its log, only the
// position is noted.
func (s *Source) Note(es []event.Envelope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.last
	for _, e := range es {
		if e.Seq <= s.last {
			continue // delivery is at least once
		}
		if s.live {
			s.keep(e)
		}
		s.last = e.Seq
	}
	if s.last != before {
		close(s.moved)
		s.moved = make(chan struct{})
	}
}

// Parts implements hub.Follower: the source holds nothing but its position.
func (s *Source) Parts() []freeze.Part { return nil }

// Resume implements hub.Follower.
func (s *Source) Resume(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = seq
}

func (s *Source) keep(e event.Envelope) {
	if e.Seq != s.last+1 {
		s.recent, s.bytes = nil, 0 // what is missing is in the log
	}
	n := entry{seq: e.Seq}
	n.msg, n.told = s.format.Message(e)
	s.recent = append(s.recent, n)
	s.bytes += len(n.msg.Data)
	if len(s.recent) > 2*maxRecent || s.bytes > 2*maxRecentBytes { // cut in large steps, so that keeping stays cheap
		drop := 0
		for len(s.recent)-drop > maxRecent || s.bytes > maxRecentBytes && drop < len(s.recent)-1 {
			s.bytes -= len(s.recent[drop].msg.Data)
			drop++
		}
		s.recent = append([]entry(nil), s.recent[drop:]...)
	}
}

// GoLive begins to keep recent events. It is called when the hub has read its log.
func (s *Source) GoLive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = true
}

// Position is the sequence of the newest event.
func (s *Source) Position() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Before is the sequence of the newest event older than t, 0 when there is none. Times grow with sequences, as long as the
// hub's clock does; where it was set back, the answer is one of the places that fit.
func (s *Source) Before(ctx context.Context, t time.Time) (uint64, error) {
	low, high := uint64(0), s.Position() // the answer is within low..high
	for low < high {
		middle := low + (high-low+1)/2
		for rec, err := range s.log.Read(ctx, middle) {
			var e event.Envelope
			if err == nil {
				e, err = event.Decode(s.reg, rec.Seq, rec.Data)
			}
			if err != nil {
				return 0, err
			}
			if e.Time.Before(t) {
				low = middle
			} else {
				high = middle - 1
			}
			break
		}
	}
	return low, ctx.Err()
}

// Batch is some events in order.
type Batch struct {
	Messages []feed.Message // those that are told, may be none
	Upto     uint64         // every event up to here has been considered
}

// Follow yields the events behind sequence after, batch by batch, and waits for new ones until ctx ends. An error ends it;
// follow again behind the last batch. After a wait, a batch holds what is there: nobody waits for it to fill.
func (s *Source) Follow(ctx context.Context, after uint64) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for {
			b, moved, ok := s.next(after)
			switch {
			case !ok:
				var goOn bool
				if after, goOn = s.readLog(ctx, after, yield); !goOn {
					return
				}
			case b.Upto > after:
				after = b.Upto
				if !yield(b, nil) {
					return
				}
			default:
				select {
				case <-moved:
				case <-ctx.Done():
					return
				}
			}
		}
	}
}

// next gives what is kept behind after. ok is false when that is not kept any more; a batch that goes no further than
// after says that there is nothing new before moved is closed.
func (s *Source) next(after uint64) (b Batch, moved <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if after >= s.last {
		return Batch{Upto: after}, s.moved, true
	}
	if len(s.recent) == 0 || s.recent[0].seq > after+1 {
		return Batch{}, nil, false
	}
	bytes := 0
	b.Upto = after
	for _, e := range s.recent[after+1-s.recent[0].seq:] {
		if len(b.Messages) == maxBatch || bytes > 0 && bytes+len(e.msg.Data) > maxBatchBytes {
			break
		}
		if e.told {
			b.Messages = append(b.Messages, e.msg)
			bytes += len(e.msg.Data)
		}
		b.Upto = e.seq
	}
	return b, s.moved, true
}

// readLog yields what the log holds behind after, and gives how far it came.
func (s *Source) readLog(ctx context.Context, after uint64, yield func(Batch, error) bool) (uint64, bool) {
	b, bytes, yielded, end := Batch{Upto: after}, 0, after, s.Position()
	for rec, err := range s.log.Read(ctx, after+1) {
		if err == nil && rec.Seq > end {
			break // not noted: behind a break in a damaged log, or about to be noted
		}
		var e event.Envelope
		if err == nil {
			e, err = event.Decode(s.reg, rec.Seq, rec.Data)
		}
		if err != nil {
			if ctx.Err() == nil {
				yield(Batch{}, err)
			}
			return b.Upto, false
		}
		if m, told := s.format.Message(e); told {
			b.Messages = append(b.Messages, m)
			bytes += len(m.Data)
		}
		b.Upto = e.Seq
		if len(b.Messages) == maxBatch || bytes >= maxBatchBytes {
			if !yield(b, nil) {
				return b.Upto, false
			}
			b, bytes, yielded = Batch{Upto: b.Upto}, 0, b.Upto
		}
	}
	if ctx.Err() != nil {
		return b.Upto, false
	}
	if b.Upto == after { // noted, and yet not in the log: a log that was cut under us is not to be asked in a circle
		yield(Batch{}, event.Break(after+1, "the log ends before what the hub has stored", nil))
		return after, false
	}
	return b.Upto, b.Upto == yielded || yield(b, nil)
}
