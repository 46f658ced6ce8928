package jetstream

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"tensorturn/broker"
	"tensorturn/domain"
)

// Subjects of the object store.
const (
	chunkPrefix = "$O." + BlobBucket + ".C."
	metaPrefix  = "$O." + BlobBucket + ".M."
)

// Limits of the blob store.
const (
	putsAtOnce = 4       // × 8 MiB stays far below the 128 MiB at which the stream's queue answers 429
	headroom   = 4 << 10 // a message's headers beside its payload
	hasBatch   = 256     // objects asked for in one request
)

// Blobs is a broker.Blobs on the object store BLOBS: one object for each part or manifest, named by its digest, readable
// by any client of object stores.
type Blobs struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	store   jetstream.ObjectStore
	stream  jetstream.Stream
	chunk   uint32        // bytes of one message: the whole part, if the server takes it, so that it is one sync
	tickets chan struct{} // one for each Put under way
	broken  func() string

	mu      sync.Mutex
	flights map[domain.Digest]chan struct{} // Puts and Deletes under way; closed at their end
}

func openBlobs(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, maxBytes int64) (*Blobs, error) {
	stream, err := ensure(ctx, js, blobConfig(maxBytes))
	if err != nil {
		return nil, err
	}
	store, err := js.ObjectStore(ctx, BlobBucket)
	if err != nil {
		return nil, unavailable("open blobs", err)
	}
	return &Blobs{nc: nc, js: js, store: store, stream: stream, chunk: uint32(min(domain.MaxPartBytes, nc.MaxPayload()-headroom)),
		tickets: make(chan struct{}, putsAtOnce), flights: map[domain.Digest]chan struct{}{}}, nil
}

// alone waits until nobody else changes the object and gives the function that lets the next one.
func (b *Blobs) alone(ctx context.Context, d domain.Digest) (func(), error) {
	for {
		b.mu.Lock()
		other, busy := b.flights[d]
		if !busy {
			mine := make(chan struct{})
			b.flights[d] = mine
			b.mu.Unlock()
			return func() {
				b.mu.Lock()
				delete(b.flights, d)
				b.mu.Unlock()
				close(mine)
			}, nil
		}
		b.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Put implements broker.Blobs. An object that is there is not written again.
func (b *Blobs) Put(ctx context.Context, d domain.Digest, data []byte) error {
	if err := broker.CheckBlob(d, data); err != nil {
		return err
	}
	op := "put blob " + d.Short()
	if err := sound(op, b.broken); err != nil { // an object that is there may not be on the disk
		return err
	}
	ctx, cancel := limit(ctx, blobLimit)
	defer cancel()
	release, err := b.alone(ctx, d)
	if err != nil {
		return unavailable(op, err)
	}
	defer release()
	info, err := b.store.GetInfo(ctx, string(d))
	if err == nil && info.Size == uint64(len(data)) {
		whole, err := b.whole(ctx, info)
		if err != nil {
			return unavailable(op, err)
		}
		if whole {
			return nil
		}
	}
	if err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return unavailable(op, err)
	}
	select {
	case b.tickets <- struct{}{}:
		defer func() { <-b.tickets }()
	case <-ctx.Done():
		return unavailable(op, ctx.Err())
	}
	if err = b.tidy(ctx, d); err == nil {
		err = b.write(ctx, d, data)
	}
	if err != nil {
		b.clear(ctx, d)
		return unavailable(op, err)
	}
	return nil
}

// write stores the object in the form of the stock client's, each message synced before the next and the description last: it
// never describes what is not there. Whose pieces they are can be seen from their subject. The client's own Put sends everything at once,
// and now and then leaves a goroutine behind for ever (nats.go 1.55.0).
func (b *Blobs) write(ctx context.Context, d domain.Digest, data []byte) error {
	info := jetstream.ObjectInfo{Bucket: BlobBucket, NUID: string(d) + "." + nuid.Next(), Size: uint64(len(data)),
		ObjectMeta: jetstream.ObjectMeta{Name: string(d), Opts: &jetstream.ObjectMetaOptions{ChunkSize: b.chunk}}}
	for piece := range slices.Chunk(data, int(b.chunk)) {
		if err := b.publish(ctx, &nats.Msg{Subject: chunkPrefix + info.NUID, Data: piece}); err != nil {
			return err
		}
		info.Chunks++
	}
	sum := sha256.Sum256(data)
	info.Digest = "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:])
	text, err := json.Marshal(info)
	if err != nil {
		return err
	}
	return b.publish(ctx, &nats.Msg{Subject: metaSubject(d), Data: text, Header: nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}}})
}

func (b *Blobs) publish(ctx context.Context, m *nats.Msg) error {
	_, err := b.js.PublishMsg(ctx, m, jetstream.WithExpectStream(blobStream), jetstream.WithRetryAttempts(0))
	return err
}

// whole reports whether every piece of the object is there: of one that the stock client stored, which does not wait for the pieces,
// or of one that was damaged.
func (b *Blobs) whole(ctx context.Context, info *jetstream.ObjectInfo) (bool, error) {
	pieces := chunkPrefix + info.NUID
	stream, err := b.stream.Info(ctx, jetstream.WithSubjectFilter(pieces))
	if err != nil {
		return false, err
	}
	return stream.State.Subjects[pieces] == uint64(info.Chunks), nil
}

// pieces are the subjects of whatever a Put of the object has ever stored.
func pieces(d domain.Digest) string { return chunkPrefix + string(d) + ".*" }

// tidy takes away pieces of an earlier Put whose process ended, or which are damaged.
func (b *Blobs) tidy(ctx context.Context, d domain.Digest) error {
	info, err := b.stream.Info(ctx, jetstream.WithSubjectFilter(pieces(d)))
	if err != nil || len(info.State.Subjects) == 0 {
		return err
	}
	return b.stream.Purge(ctx, jetstream.WithPurgeSubject(pieces(d)))
}

// clear takes away what a put that failed may have left behind. What is left when that fails too, or when the process ends, is
// listed by All and collected like any object that nobody names.
func (b *Blobs) clear(ctx context.Context, d domain.Digest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearLimit)
	defer cancel()
	for _, subject := range []string{metaSubject(d), pieces(d)} {
		_ = b.stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
	}
}

// clearLimit bounds the clearing up behind a put that failed: its caller waits for an answer.
const clearLimit = 5 * time.Second

// Get implements broker.Blobs.
func (b *Blobs) Get(ctx context.Context, d domain.Digest) ([]byte, error) {
	op := "get blob " + d.Short()
	if _, err := domain.ParseDigest(string(d)); err != nil {
		return nil, err
	}
	ctx, cancel := limit(ctx, blobLimit)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, unavailable(op, err)
	}
	info, err := b.store.GetInfo(ctx, string(d))
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, broker.BlobMissing(d)
	}
	if err != nil {
		return nil, unavailable(op, err)
	}
	data, err := b.fetch(ctx, info)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		if _, err := b.store.GetInfo(ctx, string(d)); errors.Is(err, jetstream.ErrObjectNotFound) {
			return nil, broker.BlobMissing(d) // deleted in between
		}
		return nil, broker.BlobDamaged(d)
	case errors.Is(err, jetstream.ErrDigestMismatch):
		return nil, broker.BlobDamaged(d)
	case err != nil:
		return nil, unavailable(op, err)
	case broker.CheckBlob(d, data) != nil:
		return nil, broker.BlobDamaged(d)
	}
	return data, nil
}

// fetch gets the bytes by direct requests: a consumer, which the stock client uses, waits for ever for a message that is
// lost. The error for a lost one is jetstream.ErrMsgNotFound.
func (b *Blobs) fetch(ctx context.Context, info *jetstream.ObjectInfo) ([]byte, error) {
	switch {
	case info.Size > domain.MaxPartBytes:
		return nil, jetstream.ErrDigestMismatch // larger than anything that is put here
	case info.Chunks == 0:
		return nil, nil
	case info.Chunks == 1:
		m, err := b.stream.GetLastMsgForSubject(ctx, chunkPrefix+info.NUID)
		if err != nil {
			return nil, err
		}
		return m.Data, nil
	}
	msgs, err := jetstreamext.GetBatch(ctx, b.js, blobStream, int(info.Chunks), jetstreamext.GetBatchSubject(chunkPrefix+info.NUID))
	if err != nil {
		return nil, err
	}
	data, chunks := make([]byte, 0, info.Size), uint32(0)
	for m, err := range msgs {
		if errors.Is(err, jetstreamext.ErrNoMessages) {
			break
		}
		if err != nil {
			return nil, err
		}
		data, chunks = append(data, m.Data...), chunks+1
	}
	if chunks != info.Chunks {
		return nil, jetstream.ErrMsgNotFound
	}
	return data, nil
}

// Has implements broker.Blobs.
func (b *Blobs) Has(ctx context.Context, ds []domain.Digest) ([]bool, error) {
	ctx, cancel := limit(ctx, blobLimit)
	defer cancel()
	has := make([]bool, len(ds))
	for at := 0; at < len(ds); at += hasBatch {
		some := ds[at:min(at+hasBatch, len(ds))]
		there, err := b.which(ctx, some)
		if err != nil {
			return nil, unavailable("look for blobs", err)
		}
		for i, d := range some {
			has[at+i] = there[d]
		}
	}
	return has, nil
}

// which asks for the descriptions of objects and gives those that are there.
func (b *Blobs) which(ctx context.Context, ds []domain.Digest) (map[domain.Digest]bool, error) {
	subjects := make([]string, 0, len(ds))
	for _, d := range ds {
		subjects = append(subjects, metaSubject(d))
	}
	there := map[domain.Digest]bool{}
	msgs, err := jetstreamext.GetLastMsgsFor(ctx, b.js, blobStream, subjects)
	if err != nil {
		return nil, err
	}
	for m, err := range msgs {
		if errors.Is(err, jetstreamext.ErrNoMessages) {
			break
		}
		if err != nil {
			return nil, err
		}
		var info jetstream.ObjectInfo
		if err := json.Unmarshal(m.Data, &info); err != nil {
			return nil, err
		}
		there[domain.Digest(info.Name)] = !info.Deleted
	}
	return there, nil
}

func metaSubject(d domain.Digest) string {
	return metaPrefix + base64.URLEncoding.EncodeToString([]byte(d))
}

// Delete implements broker.Blobs. The description goes first, so that no reader finds one without its bytes, and no mark
// is left behind: names are digests, and marks of all that ever were would grow without end.
func (b *Blobs) Delete(ctx context.Context, d domain.Digest) error {
	op := "delete blob " + d.Short()
	if _, err := domain.ParseDigest(string(d)); err != nil {
		return err
	}
	ctx, cancel := limit(ctx, blobLimit)
	defer cancel()
	release, err := b.alone(ctx, d)
	if err != nil {
		return unavailable(op, err)
	}
	defer release()
	subjects := []string{metaSubject(d), pieces(d)}
	info, err := b.store.GetInfo(ctx, string(d), jetstream.GetObjectInfoShowDeleted())
	if err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return unavailable(op, err)
	}
	if err == nil && !strings.HasPrefix(info.NUID, string(d)) { // stored by another client
		subjects = append(subjects, chunkPrefix+info.NUID)
	}
	for _, subject := range subjects {
		if err := b.stream.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
			return unavailable(op, err)
		}
	}
	return nil
}

// All implements broker.Blobs.
func (b *Blobs) All(ctx context.Context) iter.Seq2[broker.BlobInfo, error] {
	return func(yield func(broker.BlobInfo, error) bool) {
		ctx, cancel := limit(ctx, blobLimit)
		defer cancel()
		infos, err := b.store.List(ctx)
		if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
			yield(broker.BlobInfo{}, unavailable("list blobs", err))
			return
		}
		described := make(map[string]bool, len(infos))
		for _, i := range infos {
			described[i.Name] = true
			if _, err := domain.ParseDigest(i.Name); err != nil {
				continue // an object of somebody else: not ours to list or to collect
			}
			if !yield(broker.BlobInfo{Digest: domain.Digest(i.Name), Size: int64(i.Size), Stored: i.ModTime}, nil) {
				return
			}
		}
		b.undescribed(ctx, described, yield)
	}
}

// undescribed yields what has pieces and no description: its Put is under way, or its process ended before the description was stored.
func (b *Blobs) undescribed(ctx context.Context, described map[string]bool, yield func(broker.BlobInfo, error) bool) {
	info, err := b.stream.Info(ctx, jetstream.WithSubjectFilter(chunkPrefix+"*.*"))
	if err != nil {
		yield(broker.BlobInfo{}, unavailable("list blobs", err))
		return
	}
	for _, subject := range slices.Sorted(maps.Keys(info.State.Subjects)) {
		name, _, _ := strings.Cut(strings.TrimPrefix(subject, chunkPrefix), ".")
		if _, err := domain.ParseDigest(name); err != nil || described[name] {
			continue
		}
		m, err := b.stream.GetLastMsgForSubject(ctx, subject)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // described or deleted in between
		}
		if err != nil {
			yield(broker.BlobInfo{}, unavailable("list blobs", err))
			return
		}
		if !yield(broker.BlobInfo{Digest: domain.Digest(name), Size: int64(len(m.Data)), Stored: m.Time}, nil) {
			return
		}
	}
}
