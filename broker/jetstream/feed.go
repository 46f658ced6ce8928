package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tensorturn/broker"
	"tensorturn/domain"
)

// FeedStream is the stream of events as other systems read them.
const FeedStream = "FEED"

// feedSubjects are its subjects, feedSeqHeader the header that carries an event's sequence in the log.
const (
	feedSubjects  = "tt.v1.events.>"
	feedSeqHeader = "Tensorturn-Sequence"
	feedWindow    = 256 // messages on their way at a time
	feedLimit     = 30 * time.Second
)

// Limits of an observer's consumer (measured: a pull outlives the client that sent it, and swallows messages until it
// expires; they come again after the acknowledgement's time is over).
const (
	observerAckWait  = 15 * time.Second // and a reader that takes longer over a batch says so, or gets it twice
	observerUnacked  = 1000
	observerPulls    = 64               // pulls that wait at a time
	observerBatch    = 1000             // stock clients ask for 500
	observerExpires  = 30 * time.Second // stock clients wait this long
	observerMaxBytes = 64 << 20
)

// feedConfig is the feed: others read it, nobody changes it. When it is full the oldest messages go; the log has them all.
// It is not synced: what a crash takes from its end is published again at the same places.
func feedConfig(maxBytes int64) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: FeedStream, Subjects: []string{feedSubjects},
		Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		Replicas: 1, MaxConsumers: -1, MaxMsgs: -1, MaxBytes: maxBytes, MaxMsgsPerSubject: -1,
		MaxMsgSize: broker.MaxFeedBytes + headerBytes, Duplicates: duplicates, PersistMode: jetstream.AsyncPersistMode,
		DenyDelete: true, DenyPurge: true, AllowDirect: true,
	}
}

// Feed is a broker.Feed on the stream FEED, and the consumers of observers on it.
type Feed struct {
	js     jetstream.JetStream
	config jetstream.StreamConfig
	mu     sync.Mutex // held while observers come and go, and while a damaged feed is made anew
	stream jetstream.Stream
	last   uint64 // of the stream, as the last Tail or Publish has seen it
}

func openFeed(ctx context.Context, nc *nats.Conn, api string, maxBytes int64) (*Feed, error) {
	js, err := jetstream.NewWithAPIPrefix(nc, api, jetstream.WithDefaultTimeout(feedLimit), jetstream.WithPublishAsyncMaxPending(feedWindow))
	if err != nil {
		return nil, &domain.Error{Kind: domain.KindInternal, Op: "open feed", Why: "no JetStream context", Err: err}
	}
	config := feedConfig(maxBytes)
	stream, err := ensure(ctx, js, config)
	if err != nil {
		return nil, err
	}
	return &Feed{js: js, config: config, stream: stream}, nil
}

// Tail implements broker.Feed.
func (f *Feed) Tail(ctx context.Context) (uint64, string, error) {
	const op = "find the feed's end"
	ctx, cancel := limit(ctx, feedLimit)
	defer cancel()
	info, err := f.stream.Info(ctx)
	if err != nil {
		return 0, "", unavailable(op, err)
	}
	f.last = info.State.LastSeq
	if f.last == 0 {
		return 0, "", nil
	}
	m, err := f.stream.GetMsg(ctx, f.last)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, "", domain.Integrity(op, fmt.Sprintf("its newest message, %d, is missing", f.last), "stop the hub, remove the folder of the stream FEED, start it again: the feed is made anew")
	}
	if err != nil {
		return 0, "", unavailable(op, err)
	}
	seq, err := strconv.ParseUint(m.Header.Get(feedSeqHeader), 10, 64)
	if err != nil {
		return 0, "", domain.Integrity(op, fmt.Sprintf("message %d says no place in the log", f.last), "something else wrote to the stream FEED: find it, and remove the stream's folder")
	}
	return seq, m.Header.Get(jetstream.MsgIDHeader), nil
}

// Publish implements broker.Feed. Each message expects the one before it, so that a lost one stops those behind it.
func (f *Feed) Publish(ctx context.Context, ms []broker.FeedMessage) error {
	ctx, cancel := limit(ctx, feedLimit)
	defer cancel()
	for len(ms) > 0 {
		n := min(len(ms), feedWindow)
		if err := f.send(ctx, ms[:n]); err != nil {
			return err
		}
		ms = ms[n:]
	}
	return nil
}

func (f *Feed) send(ctx context.Context, ms []broker.FeedMessage) error {
	const op = "publish to the feed"
	acks := make([]jetstream.PubAckFuture, 0, len(ms))
	for i, m := range ms {
		msg := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: nats.Header{
			jetstream.MsgIDHeader: {m.ID}, feedSeqHeader: {strconv.FormatUint(m.Seq, 10)}, "Content-Type": {"application/cloudevents+json"}}}
		ack, err := f.js.PublishMsgAsync(msg, jetstream.WithExpectLastSequence(f.last+uint64(i)), jetstream.WithExpectStream(FeedStream), jetstream.WithRetryAttempts(0))
		if err != nil {
			return unavailable(op, err)
		}
		acks = append(acks, ack)
	}
	for i, a := range acks {
		select {
		case ack := <-a.Ok():
			if ack.Duplicate || ack.Sequence != f.last+uint64(i)+1 {
				return domain.Conflict(op, fmt.Sprintf("event %s is there already at %d", ms[i].ID, ack.Sequence), "")
			}
		case err := <-a.Err():
			return unavailable(op, err)
		case <-ctx.Done():
			return unavailable(op, ctx.Err())
		}
	}
	f.last += uint64(len(ms))
	return nil
}

// Observer says what one observer reads.
type Observer struct {
	Consumer string // name of its durable consumer: its account's public key
	Filter   string // subjects
	From     uint64 // the first sequence of the log it is told, 0 for all
	Since    time.Time
}

// AdmitObserver makes the observer's consumer unless it is there. One that is there keeps its place.
func (f *Feed) AdmitObserver(ctx context.Context, o Observer) error {
	op := "admit observer " + o.Consumer
	ctx, cancel := limit(ctx, feedLimit)
	defer cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.stream.Consumer(ctx, o.Consumer); err == nil {
		return nil
	} else if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return unavailable(op, err)
	}
	start, err := f.find(ctx, o)
	if err != nil {
		return err
	}
	c := jetstream.ConsumerConfig{
		Durable: o.Consumer, FilterSubject: o.Filter, AckPolicy: jetstream.AckExplicitPolicy, AckWait: observerAckWait, MaxAckPending: observerUnacked,
		MaxWaiting: observerPulls, MaxRequestBatch: observerBatch, MaxRequestExpires: observerExpires, MaxRequestMaxBytes: observerMaxBytes,
		DeliverPolicy: jetstream.DeliverAllPolicy, ReplayPolicy: jetstream.ReplayInstantPolicy,
	}
	if start > 0 {
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, start
	}
	if _, err := f.stream.CreateConsumer(ctx, c); err != nil {
		return unavailable(op, err)
	}
	return nil
}

// find gives the place in the feed of the first event that the observer is told, by halving: places in the feed and in
// the log, and times, all grow together. 0 is the beginning.
func (f *Feed) find(ctx context.Context, o Observer) (uint64, error) {
	if o.From <= 1 && o.Since.IsZero() {
		return 0, nil
	}
	info, err := f.stream.Info(ctx)
	if err != nil {
		return 0, unavailable("find a place in the feed", err)
	}
	low, high := max(info.State.FirstSeq, 1), info.State.LastSeq+1 // the place is within low..high
	for low < high {
		middle := low + (high-low)/2
		behind, err := f.before(ctx, middle, o)
		if err != nil {
			return 0, err
		}
		if behind {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, nil
}

// before reports whether the message at a place is older than what the observer is told first.
func (f *Feed) before(ctx context.Context, place uint64, o Observer) (bool, error) {
	m, err := f.stream.GetMsg(ctx, place)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return true, nil // gone in the meantime: the oldest go first
	}
	if err != nil {
		return false, unavailable("find a place in the feed", err)
	}
	if o.From > 0 {
		seq, err := strconv.ParseUint(m.Header.Get(feedSeqHeader), 10, 64)
		return err == nil && seq < o.From, nil
	}
	var e struct {
		Time time.Time `json:"time"`
	}
	if err := json.Unmarshal(m.Data, &e); err != nil {
		return false, nil // not ours; the observer rather gets too much
	}
	return e.Time.Before(o.Since), nil
}

// DismissObserver removes a consumer; a missing one is no error.
func (f *Feed) DismissObserver(ctx context.Context, consumer string) error {
	ctx, cancel := limit(ctx, feedLimit)
	defer cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.stream.DeleteConsumer(ctx, consumer); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return unavailable("dismiss observer "+consumer, err)
	}
	return nil
}

// Observers lists the durable consumers.
func (f *Feed) Observers(ctx context.Context) ([]string, error) {
	ctx, cancel := limit(ctx, feedLimit)
	defer cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	l := f.stream.ConsumerNames(ctx)
	for name := range l.Name() {
		out = append(out, name)
	}
	if err := l.Err(); err != nil {
		return nil, unavailable("list observers", err)
	}
	return out, nil
}

// ObserverLag is how many messages wait for the consumer, and how many of those it was given are not acknowledged.
func (f *Feed) ObserverLag(ctx context.Context, consumer string) (waiting uint64, unacked int, err error) {
	ctx, cancel := limit(ctx, feedLimit)
	defer cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.stream.Consumer(ctx, consumer)
	if err != nil {
		return 0, 0, unavailable("look at observer "+consumer, err)
	}
	i := c.CachedInfo()
	return i.NumPending, i.NumAckPending, nil
}
