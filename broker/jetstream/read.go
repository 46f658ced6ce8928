package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/synadia-io/orbit.go/jetstreamext"

	"tensorturn/broker"
	"tensorturn/domain/event"
)

// One request of a read. A piece is fetched whole before the reader sees it, so that a slow reader holds up nobody and no
// time limit.
const (
	readBatch = 5000
	readBytes = 16 << 20
)

// Read implements broker.Log.
func (l *Log) Read(ctx context.Context, from uint64) iter.Seq2[broker.Record, error] {
	return func(yield func(broker.Record, error) bool) {
		last, err := l.Last(ctx)
		if err != nil {
			yield(broker.Record{}, err)
			return
		}
		for next := max(from, 1); next <= last; {
			piece, err := l.piece(ctx, next, last)
			for _, r := range piece {
				if !yield(r, nil) {
					return
				}
			}
			if err != nil {
				yield(broker.Record{}, err)
				return
			}
			next += uint64(len(piece))
		}
	}
}

// piece fetches records from sequence next on: one at least, unless there is an error. The error, if any, comes behind
// the records.
func (l *Log) piece(ctx context.Context, next, last uint64) ([]broker.Record, error) {
	ctx, cancel := limit(ctx, readLimit)
	defer cancel()
	n := int(min(last-next+1, readBatch))
	msgs, err := jetstreamext.GetBatch(ctx, l.js, EventStream, n, jetstreamext.GetBatchSeq(next), jetstreamext.GetBatchMaxBytes(readBytes))
	if err != nil {
		return nil, unavailable("read log", err)
	}
	recs := make([]broker.Record, 0, n)
	for m, err := range msgs {
		want := next + uint64(len(recs))
		switch {
		case errors.Is(err, jetstreamext.ErrNoMessages):
			return recs, event.Break(want, fmt.Sprintf("the record is missing, though the log goes on to %d", last), nil)
		case err != nil:
			return recs, unavailable("read log", err)
		case m.Sequence != want:
			return recs, event.Break(want, fmt.Sprintf("the record is missing, %d comes next", m.Sequence), nil)
		}
		recs = append(recs, broker.Record{Seq: m.Sequence, Subject: m.Subject, ID: m.Header.Get("Nats-Msg-Id"), Data: m.Data})
	}
	if len(recs) == 0 {
		return nil, event.Break(next, fmt.Sprintf("the record is missing, though the log goes on to %d", last), nil)
	}
	return recs, nil
}
