package jetstream_test

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"tensorturn/broker/brokertest"
	"tensorturn/broker/jetstream"
	"tensorturn/domain"
)

// stock opens the bucket as any client of object stores does.
func stock(t *testing.T, s *server.Server) natsjs.ObjectStore {
	t.Helper()
	js, err := natsjs.New(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	o, err := js.ObjectStore(t.Context(), jetstream.BlobBucket)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestStockClientReadsAPart(t *testing.T) {
	s := startServer(t, t.TempDir(), maxPayload(8<<20+64<<10))
	b := openStore(t, s).Blobs
	for _, n := range []int{0, 1, 700 << 10, domain.MaxPartBytes} {
		data := brokertest.Part(n, n)
		d := brokertest.Sum(data)
		if err := b.Put(t.Context(), d, data); err != nil {
			t.Fatal(err)
		}
		got, err := stock(t, s).GetBytes(t.Context(), string(d))
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes: got %d, %v", n, len(got), err)
		}
	}
}

func TestPartOfAStockClientIsRead(t *testing.T) {
	s := startServer(t, t.TempDir())
	b := openStore(t, s).Blobs
	data := brokertest.Part(3, 300<<10)
	d := brokertest.Sum(data)
	if _, err := stock(t, s).PutBytes(t.Context(), string(d), data); err != nil {
		t.Fatal(err)
	}
	if _, err := stock(t, s).PutBytes(t.Context(), "not a digest", data); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Get(t.Context(), d); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("got %d bytes, %v", len(got), err)
	}
	for i, err := range b.All(t.Context()) {
		if err != nil || i.Digest != d {
			t.Errorf("listed %v, %v", i, err)
		}
	}
}

func TestBlobsSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, dir)
	data := brokertest.Part(1, 2<<20)
	d := brokertest.Sum(data)
	if err := openStore(t, s).Blobs.Put(t.Context(), d, data); err != nil {
		t.Fatal(err)
	}
	stopServer(s)
	if got, err := openStore(t, startServer(t, dir)).Blobs.Get(t.Context(), d); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("got %d bytes, %v", len(got), err)
	}
}

// TestDamagedBlob flips a byte on the disk: the object is damaged or gone, and can be put again.
func TestDamagedBlob(t *testing.T) {
	for name, payload := range map[string]int32{"in pieces": 1 << 20, "whole": 8<<20 + 64<<10} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := startServer(t, dir, maxPayload(payload))
			data := brokertest.Part(1, 3<<20)
			d := brokertest.Sum(data)
			if err := openStore(t, s).Blobs.Put(t.Context(), d, data); err != nil {
				t.Fatal(err)
			}
			stopServer(s)
			files, _ := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "OBJ_BLOBS", "msgs", "*.blk"))
			if len(files) == 0 {
				t.Fatal("no block files")
			}
			raw := mustRead(t, files[0])
			raw[len(raw)/3] ^= 1
			if err := os.WriteFile(files[0], raw, 0o600); err != nil {
				t.Fatal(err)
			}
			b := openStore(t, startServer(t, dir, maxPayload(payload))).Blobs
			ctx, cancel := context.WithTimeout(t.Context(), testLimit)
			defer cancel()
			_, err := b.Get(ctx, d)
			if k := domain.KindOf(err); k != domain.KindIntegrity && k != domain.KindNotFound {
				t.Fatalf("get: %v", err)
			}
			if err := b.Delete(ctx, d); err != nil {
				t.Fatal(err)
			}
			if err := b.Put(ctx, d, data); err != nil {
				t.Fatal(err)
			}
			if got, err := b.Get(ctx, d); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("after it was put again: %d bytes, %v", len(got), err)
			}
		})
	}
}

// TestManyPartsAtOnce puts more than the stream's queue holds (128 MiB) from many callers: none is dropped.
func TestManyPartsAtOnce(t *testing.T) {
	const parts = 40 // × 4 MiB
	b := newStore(t).Blobs
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() {
			data := brokertest.Part(i, 4<<20)
			if err := b.Put(t.Context(), brokertest.Sum(data), data); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	n := 0
	for _, err := range b.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != parts {
		t.Fatalf("%d parts are stored", n)
	}
}

func TestDeleteLeavesNoMark(t *testing.T) {
	s := startServer(t, t.TempDir())
	b := openStore(t, s).Blobs
	for i := range 5 {
		data := brokertest.Part(i, 10<<10)
		if err := b.Put(t.Context(), brokertest.Sum(data), data); err != nil {
			t.Fatal(err)
		}
		if err := b.Delete(t.Context(), brokertest.Sum(data)); err != nil {
			t.Fatal(err)
		}
	}
	js, err := natsjs.New(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "OBJ_BLOBS")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs != 0 {
		t.Fatalf("%d messages are left, %v", info.State.Msgs, err)
	}
}

// TestDescriptionWithoutObject: in a store that has room for the description of an object and not for the object, the put
// fails and leaves nothing that looks stored; an object whose pieces are gone is put again.
func TestDescriptionWithoutObject(t *testing.T) {
	s := startServer(t, t.TempDir())
	b := openStore(t, s).Blobs
	js, err := natsjs.New(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "OBJ_BLOBS")
	if err != nil {
		t.Fatal(err)
	}
	data := brokertest.Part(1, 200<<10)
	d := brokertest.Sum(data)
	put := func(what string) {
		t.Helper()
		if err := b.Put(t.Context(), d, data); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got, err := b.Get(t.Context(), d); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%s: %d bytes, %v", what, len(got), err)
		}
	}
	put("first")
	if err := stream.Purge(t.Context(), natsjs.WithPurgeSubject("$O.BLOBS.C.>")); err != nil {
		t.Fatal(err)
	}
	put("its pieces are gone")
	if err := b.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}

	full := stream.CachedInfo().Config
	roomy := full.MaxBytes
	full.MaxBytes = 4 << 10
	if _, err := js.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), d, data); domain.KindOf(err) != domain.KindUnavailable {
		t.Fatalf("put into a full store: %v", err)
	}
	if has, err := b.Has(t.Context(), []domain.Digest{d}); err != nil || has[0] {
		t.Fatalf("what was refused looks stored: %v, %v", has, err)
	}
	full.MaxBytes = roomy
	if _, err := js.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	put("after there is room")
}

// TestPiecesWithoutDescription: what a process that ended within a Put has left is listed, so that it is collected, and does not stand in the
// way of the same object. No Put leaves a goroutine behind.
func TestPiecesWithoutDescription(t *testing.T) {
	s := startServer(t, t.TempDir())
	b := openStore(t, s).Blobs
	js, err := natsjs.New(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	data, other := brokertest.Part(1, 10<<10), brokertest.Part(2, 10<<10)
	for _, part := range [][]byte{data, other} {
		if _, err := js.Publish(t.Context(), "$O.BLOBS.C."+string(brokertest.Sum(part))+".left", part[:100]); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Put(t.Context(), brokertest.Sum(data), data); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Get(t.Context(), brokertest.Sum(data)); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	sizes := map[domain.Digest]int64{}
	for i, err := range b.All(t.Context()) {
		if err != nil || i.Stored.IsZero() {
			t.Fatalf("%+v, %v", i, err)
		}
		sizes[i.Digest] = i.Size
	}
	if want := (map[domain.Digest]int64{brokertest.Sum(data): 10 << 10, brokertest.Sum(other): 100}); !maps.Equal(sizes, want) {
		t.Errorf("listed are %v", sizes)
	}
	for _, part := range [][]byte{data, other} {
		if err := b.Delete(t.Context(), brokertest.Sum(part)); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := js.Stream(t.Context(), "OBJ_BLOBS")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs != 0 {
		t.Errorf("%d messages are left, %v", info.State.Msgs, err)
	}
	var running strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&running, 1); err != nil || strings.Contains(running.String(), "resetPendingAcksOnReconnect") {
		t.Errorf("a publisher of the stock client is left: %v", err)
	}
}
