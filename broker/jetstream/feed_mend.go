package jetstream

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"tensorturn/domain"
)

// mendBatch is how many messages one request of a check brings; headers alone, some 200 bytes each.
const mendBatch = 5000

// Mend implements broker.Feed. The server leaves out a message whose checksum is wrong without a word, so the whole feed is
// read: its places must be there one after another. One with a hole is deleted and made anew, empty; every event will have
// the place it had, because the publisher fills it with the same events in the same order. Observers keep theirs.
func (f *Feed) Mend(ctx context.Context) (why string, err error) {
	hole, err := f.hole(ctx)
	if err != nil || hole == 0 {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var kept []jetstream.ConsumerConfig
	list := f.stream.ListConsumers(ctx)
	for info := range list.Info() {
		c := info.Config
		if c.Durable == "" {
			continue
		}
		c.DeliverPolicy, c.OptStartSeq, c.OptStartTime = jetstream.DeliverByStartSequencePolicy, max(info.AckFloor.Stream+1, c.OptStartSeq), nil
		kept = append(kept, c)
	}
	if err := list.Err(); err != nil {
		return "", unavailable("list observers", err)
	}
	if err := f.js.DeleteStream(ctx, FeedStream); err != nil {
		return "", unavailable("remove a damaged feed", err)
	}
	if f.stream, err = ensure(ctx, f.js, f.config); err != nil {
		return "", err
	}
	for _, c := range kept {
		if _, err := f.stream.CreateConsumer(ctx, c); err != nil {
			return "", unavailable("admit observer "+domain.Clip(c.Durable, 80)+" again", err)
		}
	}
	return fmt.Sprintf("message %d was damaged", hole), nil
}

// hole gives the first place that is missing between the feed's ends, 0 when none is.
func (f *Feed) hole(ctx context.Context) (uint64, error) {
	const op = "check the feed"
	info, err := f.stream.Info(ctx)
	if err != nil {
		return 0, unavailable(op, err)
	}
	next, last := info.State.FirstSeq, info.State.LastSeq
	if last == 0 || info.State.Msgs == 0 {
		return 0, nil
	}
	c, err := f.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true, MemoryStorage: true,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: next, InactiveThreshold: feedLimit})
	if err != nil {
		return 0, unavailable(op, err)
	}
	defer f.stream.DeleteConsumer(context.WithoutCancel(ctx), c.CachedInfo().Name)
	for next <= last {
		batch, err := c.FetchNoWait(mendBatch)
		if err != nil {
			return 0, unavailable(op, err)
		}
		got := 0
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return 0, unavailable(op, err)
			}
			if got++; meta.Sequence.Stream != next {
				return next, nil
			}
			next++
		}
		switch {
		case ctx.Err() != nil:
			return 0, unavailable(op, ctx.Err())
		case batch.Error() != nil:
			return 0, unavailable(op, batch.Error())
		case got == 0:
			return next, nil // the end is missing
		}
	}
	return 0, nil
}
