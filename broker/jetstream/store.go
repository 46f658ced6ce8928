// Package jetstream holds the log, the heartbeats, the blobs and the feed on NATS JetStream: streams EVENTS, HEARTBEATS and
// FEED and the object store BLOBS. cmd opens it on a connection of the hub's own account; broker/hub and broker/gateway see the ports
// of package broker alone. It starts no server and decides nothing.
//
// What is acknowledged here is on the disk, provided the server runs with SyncAlways (broker/embedded does).
//
// Dependencies: nats.go, the stock client; synadia-io/orbit.go/jetstreamext, pinned, for the atomic batch and the batched
// direct get that nats.go has no calls for: it is written by the makers of both sides and is a few hundred lines.
package jetstream

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tensorturn/domain"
)

// Time limits, for callers without a deadline of their own.
const (
	openLimit   = 60 * time.Second // a store of a million events opens in about one
	appendLimit = 30 * time.Second // longer than a disk usually stalls: an outcome that is known is worth waiting for
	readLimit   = 30 * time.Second // between two answers of a read
	blobLimit   = 60 * time.Second // one object of 8 MiB on a slow, busy disk
)

// Store is all that a hub keeps.
type Store struct {
	Log        *Log
	Heartbeats *Heartbeats
	Blobs      *Blobs
	Feed       *Feed
}

// Watch lets the store know when the server has given up writing (embedded.Hub.Broken): nothing that was written last is
// then taken for stored, and nothing more is tried. It is called before the first use.
func (s *Store) Watch(broken func() string) { s.Log.broken, s.Blobs.broken = broken, broken }

// Usage is how much of its share a stream has used.
type Usage struct {
	Stream string
	Bytes  int64
	Limit  int64
}

// Usage gives the shares of the streams that refuse what comes when they are full: the log and the blobs. The others drop
// their oldest.
func (s *Store) Usage(ctx context.Context) ([]Usage, error) {
	var out []Usage
	for _, st := range []jetstream.Stream{s.Log.stream, s.Blobs.stream} {
		info, err := st.Info(ctx)
		if err != nil {
			return nil, unavailable("ask for the store's room", err)
		}
		out = append(out, Usage{Stream: info.Config.Name, Bytes: int64(info.State.Bytes), Limit: info.Config.MaxBytes})
	}
	return out, nil
}

// Open opens the streams, creating those that are missing, on a connection of the account that has JetStream under the
// given domain. maxStore is what the server grants JetStream on disk, in bytes, MinStore at least; the streams share it.
// The connection stays the caller's. Errors: domain.KindInvalid for too small a store; domain.KindConflict when a stream
// is not configured as it must be, with the field; domain.KindUnavailable.
func Open(ctx context.Context, nc *nats.Conn, jsDomain string, maxStore int64) (*Store, error) {
	if maxStore < MinStore {
		return nil, domain.Invalid("open store", fmt.Sprintf("%d bytes are too few", maxStore), fmt.Sprintf("grant %d at least", int64(MinStore)))
	}
	eventBytes, feedBytes, blobBytes := shares(maxStore)
	ctx, cancel := limit(ctx, openLimit)
	defer cancel()
	// The prefix is spelt out: jetstreamext v0.3.2 makes a wrong one of a context that only knows its domain.
	api := "$JS." + jsDomain + ".API"
	js, err := jetstream.NewWithAPIPrefix(nc, api, jetstream.WithDefaultTimeout(appendLimit))
	if err != nil {
		return nil, &domain.Error{Kind: domain.KindInternal, Op: "open store", Why: "no JetStream context", Err: err}
	}
	events, err := ensure(ctx, js, eventConfig(eventBytes))
	if err != nil {
		return nil, err
	}
	if _, err = ensure(ctx, js, heartbeatConfig()); err != nil {
		return nil, err
	}
	blobs, err := openBlobs(ctx, nc, js, blobBytes)
	if err != nil {
		return nil, err
	}
	feed, err := openFeed(ctx, nc, api, feedBytes)
	if err != nil {
		return nil, err
	}
	log := &Log{nc: nc, js: js, api: api, stream: events}
	if err := log.findCut(ctx); err != nil {
		return nil, err
	}
	return &Store{Log: log, Heartbeats: &Heartbeats{nc: nc}, Blobs: blobs, Feed: feed}, nil
}

// limit gives ctx a deadline of d unless it has one of its own that is earlier.
func limit(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// heartbeatPrefix begins a machine's heartbeat subject.
const heartbeatPrefix = "tt.hb."

// Heartbeats is a broker.Heartbeats on the stream HEARTBEATS.
type Heartbeats struct{ nc *nats.Conn }

// Heartbeat implements broker.Heartbeats: sent, not waited for. One that is too long or of no machine is dropped.
func (h *Heartbeats) Heartbeat(machine string, data []byte) {
	if domain.ValidID(machine) && len(data) <= maxHeartbeat {
		_ = h.nc.Publish(heartbeatPrefix+machine, data) // a loss is allowed: the next one follows
	}
}
