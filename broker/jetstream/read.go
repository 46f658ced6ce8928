package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"tensorturn/broker"
	"tensorturn/domain"
	"tensorturn/domain/event"
)

// One request of a read asks for a piece of this many records or bytes, whichever is less: two pieces are in memory. The
// stock client's calls bound one or the other, and cost half as much again for each record; so the request is made here.
const (
	pieceRecords = 4000
	pieceBytes   = 8 << 20
	pieceLimit   = 10 * time.Second       // for one piece; a store that is slower is looked at more closely
	quietLimit   = 300 * time.Millisecond // without a record: then the store is asked whether there is one
	idleLimit    = 10 * time.Minute       // a reader that stops for longer begins anew
)

// requestDone is what the server says behind the last record of a request that had bytes left.
const requestDone = "Batch Completed"

// Read implements broker.Log.
func (l *Log) Read(ctx context.Context, from uint64) iter.Seq2[broker.Record, error] {
	return func(yield func(broker.Record, error) bool) {
		last, err := l.Last(ctx)
		if err == nil && from <= last {
			err = l.read(ctx, max(from, 1), last, yield)
		}
		if err != nil {
			yield(broker.Record{}, err)
		}
	}
}

// piece is what one request brought; the error, if any, comes behind the records.
type piece struct {
	recs []broker.Record
	err  error
}

// read yields the records of the sequences from..last.
func (l *Log) read(ctx context.Context, from, last uint64, yield func(broker.Record, error) bool) error {
	p, err := l.open(ctx, from, last)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	pieces := make(chan piece, 1)
	done := make(chan struct{})
	go func() { // fetches ahead of the reader: store and decoding take about as long as each other
		defer close(done)
		defer close(pieces)
		p.run(ctx, pieces)
	}()
	defer func() { stop(); <-done; p.close() }()
	next := from
	for piece := range pieces {
		for _, r := range piece.recs {
			if !yield(r, nil) {
				return nil
			}
		}
		if piece.err != nil {
			return piece.err
		}
		next += uint64(len(piece.recs))
	}
	if next <= last {
		return unavailable("read log", ctx.Err())
	}
	return nil
}

// puller asks a consumer of its own for one piece after another.
type puller struct {
	log        *Log
	name       string
	sub        *nats.Subscription
	next, last uint64
}

func (l *Log) open(ctx context.Context, from, last uint64) (*puller, error) {
	ctx, cancel := limit(ctx, readLimit)
	defer cancel()
	c, err := l.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: idleLimit,
	})
	if err != nil {
		return nil, unavailable("read log", err)
	}
	p := &puller{log: l, name: c.CachedInfo().Name, next: from, last: last}
	if p.sub, err = l.nc.SubscribeSync(l.nc.NewInbox()); err != nil {
		p.close()
		return nil, unavailable("read log", err)
	}
	return p, nil
}

// close removes the consumer; one that cannot be removed goes by itself.
func (p *puller) close() {
	if p.sub != nil {
		_ = p.sub.Unsubscribe()
	}
	ctx, cancel := limit(context.Background(), readLimit)
	defer cancel()
	_ = p.log.stream.DeleteConsumer(ctx, p.name)
}

// run sends pieces until the last sequence, an error, or the end of ctx.
func (p *puller) run(ctx context.Context, to chan<- piece) {
	for p.next <= p.last {
		recs, err := p.piece(ctx)
		p.next += uint64(len(recs))
		if err == nil && len(recs) == 0 {
			err = p.missing(ctx)
		}
		select {
		case to <- piece{recs, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// piece fetches the next records. None, without an error, means that the store gave none in time.
func (p *puller) piece(ctx context.Context) ([]broker.Record, error) {
	wait, cancel := limit(ctx, pieceLimit)
	defer cancel()
	n := int(min(p.last-p.next+1, pieceRecords))
	ask := fmt.Appendf(nil, `{"batch":%d,"max_bytes":%d,"expires":%d}`, n, pieceBytes, pieceLimit.Nanoseconds())
	subject := p.log.api + ".CONSUMER.MSG.NEXT." + EventStream + "." + p.name
	if err := p.log.nc.PublishRequest(subject, p.sub.Subject, ask); err != nil {
		return nil, unavailable("read log", err)
	}
	recs := make([]broker.Record, 0, n)
	for len(recs) < n {
		m, err := p.await(wait, p.next+uint64(len(recs)))
		if domain.KindOf(err) == domain.KindIntegrity {
			return recs, err
		}
		if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return recs, nil
		}
		if err != nil {
			return recs, unavailable("read log", err)
		}
		if len(m.Data) == 0 && m.Header.Get("Status") != "" {
			if m.Header.Get("Description") == requestDone {
				continue // of the request before: its records came, and bytes were left
			}
			return recs, nil // the bytes are used up, or there is nothing more
		}
		rec, err := p.record(m, p.next+uint64(len(recs)))
		if rec.Seq != 0 {
			recs = append(recs, rec)
		}
		if err != nil {
			return recs, err
		}
	}
	return recs, nil
}

// await gives the next message. A record that is gone sends none, and nobody should wait for it until the limit: after a
// short silence the store is asked for the record itself.
func (p *puller) await(ctx context.Context, seq uint64) (*nats.Msg, error) {
	for {
		m, err := p.sub.NextMsg(quietLimit) // a context for each record would cost as much as its digest
		if err == nil || !errors.Is(err, nats.ErrTimeout) {
			return m, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := p.gone(ctx, seq); err != nil {
			return nil, err
		}
	}
}

// gone is the error for a record that the store says it does not have, nil when it says anything else.
func (p *puller) gone(ctx context.Context, seq uint64) error {
	if _, err := p.log.stream.GetMsg(ctx, seq); errors.Is(err, jetstream.ErrMsgNotFound) {
		return event.Break(seq, fmt.Sprintf("the record is missing, though the log goes on to %d", p.last), nil)
	}
	return nil
}

// record is the record in a message, which must have sequence want. With an error behind it, if the log is cut there.
func (p *puller) record(m *nats.Msg, want uint64) (broker.Record, error) {
	meta, err := m.Metadata()
	if err != nil {
		return broker.Record{}, &domain.Error{Kind: domain.KindInternal, Op: "read log", Why: "a message without place", Err: err}
	}
	if meta.Sequence.Stream != want {
		return broker.Record{}, event.Break(want, fmt.Sprintf("the record is missing, %d comes next", meta.Sequence.Stream), nil)
	}
	rec := broker.Record{Seq: want, Subject: m.Subject, ID: m.Header.Get(jetstream.MsgIDHeader), Data: m.Data}
	if want == p.last && inBatch(m.Header) {
		return rec, p.log.halfStored(want)
	}
	return rec, nil
}

// inBatch reports whether a record is one of a batch and not its last.
func inBatch(h nats.Header) bool {
	return h.Get(jetstreamext.BatchIDHeader) != "" && h.Get(jetstreamext.BatchCommitHeader) == ""
}

// halfStored is the error for a log that ends within a batch. JetStream leaves it so when a write fails in the middle,
// and completes the batch, which it staged and synced before, when it starts again. If it did not, the end is lost.
func (l *Log) halfStored(last uint64) error {
	if last == l.cut.Last {
		return event.Break(last+1, "the log ends within a batch: the rest of it is lost", nil)
	}
	return domain.Unavailable("read log", fmt.Sprintf("the batch at its end, sequence %d, is stored in part", last),
		"make room on the disk and start the hub again: the rest of the batch is kept beside the log", nil)
}

// Cut is the part that was stored of a batch whose rest is lost, its first and last sequence; zero when there is none. A batch is acknowledged
// when all of it is synced: of one that a crash or a power cut left so, nobody was told.
type Cut struct{ First, Last uint64 }

// Cut gives the batch within which the log ended when it was opened.
func (l *Log) Cut() Cut { return l.cut }

// findCut notes whether the log ends within a batch now, after JetStream has started and completed what it could.
func (l *Log) findCut(ctx context.Context) error {
	last, err := l.Last(ctx)
	if err != nil || last == 0 {
		return err
	}
	m, err := l.stream.GetMsg(ctx, last)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // a read will say so
	case err != nil:
		return unavailable("open log", err)
	case inBatch(m.Header):
		l.cut = Cut{First: last, Last: last}
		if at, err := strconv.ParseUint(m.Header.Get(jetstreamext.BatchSeqHeader), 10, 64); err == nil && at >= 1 && at <= last {
			l.cut.First = last - at + 1
		}
	}
	return nil
}

// Record gives one stored record by its sequence, whatever stands before it: for a repair. Errors: domain.KindNotFound when the
// store has none there, or one of a batch whose rest is lost; domain.KindUnavailable.
func (l *Log) Record(ctx context.Context, seq uint64) (broker.Record, error) {
	if l.cut.Last > 0 && seq >= l.cut.First { // a batch is one decision: a part of it was never made
		return broker.Record{}, domain.NotFound(fmt.Sprintf("record %d", seq), "the rest of its batch is lost", "")
	}
	ctx, cancel := limit(ctx, readLimit)
	defer cancel()
	m, err := l.stream.GetMsg(ctx, seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return broker.Record{}, domain.NotFound(fmt.Sprintf("record %d", seq), "the store has none there", "")
	case err != nil:
		return broker.Record{}, unavailable("read record", err)
	}
	return broker.Record{Seq: m.Sequence, Subject: m.Subject, ID: m.Header.Get(jetstream.MsgIDHeader), Data: m.Data}, nil
}

// missing says why no record came: the next one is not there, or the store is slow or gone. The first is for ever and
// must never be said of the second.
func (p *puller) missing(ctx context.Context) error {
	ctx, cancel := limit(ctx, readLimit)
	defer cancel()
	if err := p.gone(ctx, p.next); err != nil {
		return err
	}
	return unavailable("read log", fmt.Errorf("no record %d within %s", p.next, pieceLimit))
}
