package brokertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"testing"

	"tensorturn/broker"
	"tensorturn/domain"
)

// Sum is the digest of data.
func Sum(data []byte) domain.Digest {
	h := sha256.Sum256(data)
	return domain.Digest(hex.EncodeToString(h[:]))
}

// Part makes n bytes that differ by seed.
func Part(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*31 + i>>8*17 + seed*101)
	}
	return b
}

// Blobs runs the suite. open gives a store that is empty and ends with the test.
func Blobs(t *testing.T, open func(t *testing.T) broker.Blobs) {
	for name, test := range map[string]func(context.Context, *testing.T, broker.Blobs){
		"put and get":     testPutAndGet,
		"refused":         testBlobRefused,
		"missing":         testMissing,
		"again":           testPutAgain,
		"delete":          testDelete,
		"list":            testList,
		"many at once":    testManyAtOnce,
		"context is over": testBlobContextOver,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), testLimit)
			defer cancel()
			test(ctx, t, open(t))
		})
	}
}

func mustPut(ctx context.Context, t *testing.T, b broker.Blobs, data []byte) domain.Digest {
	t.Helper()
	d := Sum(data)
	if err := b.Put(ctx, d, data); err != nil {
		t.Fatalf("put of %d bytes: %v", len(data), err)
	}
	return d
}

func testPutAndGet(ctx context.Context, t *testing.T, b broker.Blobs) {
	for _, n := range []int{0, 1, 1000, 128 << 10, 128<<10 + 1, 1 << 20, domain.MaxPartBytes} {
		data := Part(n, n)
		d := mustPut(ctx, t, b, data)
		got, err := b.Get(ctx, d)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("get of %d bytes: %d bytes, %v", n, len(got), err)
		}
	}
}

func testBlobRefused(ctx context.Context, t *testing.T, b broker.Blobs) {
	data := Part(1, 100)
	if err := b.Put(ctx, Sum(Part(2, 100)), data); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("another digest: %v", err)
	}
	if err := b.Put(ctx, "abc", data); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("no digest: %v", err)
	}
	large := Part(3, domain.MaxPartBytes+1)
	if err := b.Put(ctx, Sum(large), large); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("too large: %v", err)
	}
	if has, err := b.Has(ctx, []domain.Digest{Sum(data), Sum(large)}); err != nil || slices.Contains(has, true) {
		t.Errorf("refused objects are stored: %v, %v", has, err)
	}
}

func testMissing(ctx context.Context, t *testing.T, b broker.Blobs) {
	if _, err := b.Get(ctx, Sum([]byte("nothing"))); domain.KindOf(err) != domain.KindNotFound {
		t.Errorf("get: %v", err)
	}
	d := mustPut(ctx, t, b, []byte("something"))
	has, err := b.Has(ctx, []domain.Digest{Sum([]byte("nothing")), d, Sum(nil)})
	if err != nil || !slices.Equal(has, []bool{false, true, false}) {
		t.Errorf("has: %v, %v", has, err)
	}
	if has, err := b.Has(ctx, nil); err != nil || len(has) != 0 {
		t.Errorf("has of nothing: %v, %v", has, err)
	}
}

func testPutAgain(ctx context.Context, t *testing.T, b broker.Blobs) {
	data := Part(4, 300<<10)
	d := mustPut(ctx, t, b, data)
	before := list(ctx, t, b)
	mustPut(ctx, t, b, data)
	after := list(ctx, t, b)
	if len(after) != 1 || after[0] != before[0] {
		t.Fatalf("put again changed the store: %v, then %v", before, after)
	}
	if got, err := b.Get(ctx, d); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("get: %d bytes, %v", len(got), err)
	}
}

func testDelete(ctx context.Context, t *testing.T, b broker.Blobs) {
	data := Part(5, 200<<10)
	d := mustPut(ctx, t, b, data)
	for range 2 { // a missing object is no error
		if err := b.Delete(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Get(ctx, d); domain.KindOf(err) != domain.KindNotFound {
		t.Fatalf("get of a deleted object: %v", err)
	}
	if infos := list(ctx, t, b); len(infos) != 0 {
		t.Fatalf("a deleted object is listed: %v", infos)
	}
	mustPut(ctx, t, b, data)
	if got, err := b.Get(ctx, d); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("get after it was put again: %d bytes, %v", len(got), err)
	}
}

func list(ctx context.Context, t *testing.T, b broker.Blobs) []broker.BlobInfo {
	t.Helper()
	var infos []broker.BlobInfo
	for i, err := range b.All(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, i)
	}
	return infos
}

func testList(ctx context.Context, t *testing.T, b broker.Blobs) {
	if infos := list(ctx, t, b); len(infos) != 0 {
		t.Fatalf("an empty store lists %v", infos)
	}
	want := map[domain.Digest]int64{}
	for i := range 20 {
		want[mustPut(ctx, t, b, Part(i, 100+i))] = int64(100 + i)
	}
	for _, i := range list(ctx, t, b) {
		if want[i.Digest] != i.Size || i.Stored.IsZero() {
			t.Errorf("listed %+v, want %d bytes", i, want[i.Digest])
		}
		delete(want, i.Digest)
	}
	if len(want) != 0 {
		t.Errorf("not listed: %v", want)
	}
}

func testManyAtOnce(ctx context.Context, t *testing.T, b broker.Blobs) {
	const workers, objects = 8, 6
	var wg sync.WaitGroup
	errs := make(chan error, workers*objects)
	for w := range workers {
		wg.Go(func() {
			for i := range objects {
				data := Part((w+i)%objects, 400<<10) // every object is put by every worker, in another order
				if err := b.Put(ctx, Sum(data), data); err != nil {
					errs <- fmt.Errorf("put: %w", err)
				} else if got, err := b.Get(ctx, Sum(data)); err != nil || !bytes.Equal(got, data) {
					errs <- fmt.Errorf("get: %d bytes, %w", len(got), err)
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	if infos := list(ctx, t, b); len(infos) != objects {
		t.Errorf("%d objects listed, want %d", len(infos), objects)
	}
}

func testBlobContextOver(ctx context.Context, t *testing.T, b broker.Blobs) {
	d := mustPut(ctx, t, b, []byte("x"))
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := b.Put(over, Sum([]byte("y")), []byte("y")); domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("put: %v", err)
	}
	if _, err := b.Get(over, d); domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("get: %v", err)
	}
}
