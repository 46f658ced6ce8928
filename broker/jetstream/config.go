package jetstream

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tensorturn/broker"
	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Names of what is stored.
const (
	EventStream     = "EVENTS"
	HeartbeatStream = "HEARTBEATS"
	BlobBucket      = "BLOBS"
	blobStream      = "OBJ_" + BlobBucket
)

// Limits of what is stored.
const (
	headerBytes    = 1 << 10          // headers of one record: id, expectation, batch
	duplicates     = 10 * time.Second // ids remembered in memory; the committer does not rely on them
	heartbeatAge   = time.Hour
	heartbeatBytes = 256 << 20
	maxHeartbeat   = 64 << 10
)

// MinStore is the least that a server must grant the store, in bytes.
const MinStore = 1 << 30

// shares divides what the server grants: heartbeats have a fixed share, an eighth is for events, another for the feed made
// of them, a sixteenth stays free for staged batches, and parts of blobs have the rest. The shares make sure that a stream meets its own limit, which
// refuses a batch as a whole, before the server's, which has been seen to cut one in the middle.
func shares(maxStore int64) (events, feed, blobs int64) {
	events, feed = maxStore/8, maxStore/8
	return events, feed, maxStore - events - feed - maxStore/16 - heartbeatBytes
}

// eventConfig is the log: nothing in it can be changed or removed. Every field that the server would fill in is
// written out, so that the stream can be compared with it field by field.
func eventConfig(maxBytes int64) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: EventStream, Subjects: []string{event.SubjectAll},
		Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
		Replicas: 1, MaxConsumers: -1, MaxMsgs: -1, MaxBytes: maxBytes, MaxMsgsPerSubject: -1,
		MaxMsgSize: broker.MaxRecordBytes + headerBytes, Duplicates: duplicates,
		DenyDelete: true, DenyPurge: true, AllowAtomicPublish: true, AllowDirect: true,
	}
}

// heartbeatConfig is bounded in age and bytes, and is not synced: a heartbeat that is lost is followed by the next.
func heartbeatConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: HeartbeatStream, Subjects: []string{heartbeatPrefix + "*"},
		Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		Replicas: 1, MaxConsumers: -1, MaxMsgs: -1, MaxBytes: heartbeatBytes, MaxMsgsPerSubject: -1, MaxAge: heartbeatAge,
		MaxMsgSize: maxHeartbeat, Duplicates: duplicates, PersistMode: jetstream.AsyncPersistMode, AllowDirect: true,
	}
}

// blobConfig is what a stock client makes for an object store of this name.
func blobConfig(maxBytes int64) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: blobStream, Subjects: []string{chunkPrefix + ">", metaPrefix + ">"},
		Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
		Replicas: 1, MaxConsumers: -1, MaxMsgs: -1, MaxBytes: maxBytes, MaxMsgsPerSubject: -1, MaxMsgSize: -1,
		Duplicates: 2 * time.Minute, AllowRollup: true, AllowDirect: true,
	}
}

// ensure creates the stream if it is missing, and demands that it is what want says: domain.KindConflict names the
// first field that is not. A stream that silently keeps less than it should is found here, not when it is needed. Only
// MaxBytes may differ: it grows when the owner grants more, and never shrinks below what may be stored.
func ensure(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = js.CreateStream(ctx, want)
	}
	if err != nil {
		return nil, domain.Unavailable("open stream "+want.Name, "JetStream does not give it", "look at the hub's disk and log", err)
	}
	info, err := s.Info(ctx)
	if err != nil {
		return nil, domain.Unavailable("open stream "+want.Name, "JetStream does not describe it", "look at the hub's disk and log", err)
	}
	stored := info.Config
	if stored.MaxBytes > 0 && want.MaxBytes > 0 { // the one field that may differ
		stored.MaxBytes = want.MaxBytes
	}
	if why := difference(stored, want); why != "" {
		return nil, domain.Conflict("open stream "+want.Name, why, "something else made or changed the stream: set the field back, or begin with a new directory")
	}
	if info.Config.MaxBytes >= want.MaxBytes {
		return s, nil
	}
	if s, err = js.UpdateStream(ctx, want); err != nil {
		return nil, domain.Unavailable("open stream "+want.Name, fmt.Sprintf("it cannot grow to %d bytes", want.MaxBytes), "grant the store more, or what it had", err)
	}
	return s, nil
}

// difference names the first field in which two configurations differ, "" for none.
func difference(got, want jetstream.StreamConfig) string {
	for k := range got.Metadata {
		if strings.HasPrefix(k, "_nats.") { // the server's own notes on versions
			delete(got.Metadata, k)
		}
	}
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		a, b := g.Field(i), w.Field(i)
		if k := a.Kind(); (k == reflect.Slice || k == reflect.Map) && a.Len() == 0 && b.Len() == 0 {
			continue
		}
		if !reflect.DeepEqual(a.Interface(), b.Interface()) {
			return fmt.Sprintf("field %s is %v, want %v", g.Type().Field(i).Name, a.Interface(), b.Interface())
		}
	}
	return ""
}
