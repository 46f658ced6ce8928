package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/agent/cache"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/merge"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

// weightsFile is a model of one tensor.
func weightsFile(t *testing.T, values ...float32) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := safetensors.NewWriter(&b, []safetensors.Tensor{{Name: "w", DType: safetensors.F32, Shape: []int64{int64(len(values))}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		if _, err := w.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// serve puts a blob into the server.
func (s *blobServer) serve(t *testing.T, data []byte) domain.Digest {
	t.Helper()
	w := blob.NewWriter(t.Context(), func(_ context.Context, d domain.Digest, b []byte) error {
		s.set(func() { s.objects[d] = bytes.Clone(b) })
		return nil
	})
	_, err := w.Write(data)
	if err != nil {
		t.Fatal(err)
	}
	id, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// codedBench is a worker with a cache and a server, and a base with its increment to the next one.
type codedBench struct {
	*worker
	server     *blobServer
	from, next domain.Digest
	increment  domain.Digest
	dir        string
	log        bytes.Buffer
}

func newCodedBench(t *testing.T) *codedBench {
	t.Helper()
	b := &codedBench{server: newBlobServer(t), dir: t.TempDir()}
	c, err := cache.Open(b.dir, cache.Options{Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	lost, err := c.Losses(0)
	if err != nil {
		t.Fatal(err)
	}
	st := newStore(c, b.server.client(t), sinceStart())
	b.worker = &worker{store: st, loss: &losses{files: lost}, ctx: t.Context(), meter: newMeter(0, 1, sinceStart(), func(Input) {}), log: zerolog.New(&b.log)}

	base, local := weightsFile(t, 1, 2, 3), weightsFile(t, 1.5, 2, 2.7)
	b.from = b.server.serve(t, base)
	var delta, next, momentum, increment, residual bytes.Buffer
	if _, err := merge.EncodeDelta(merge.CodecFP32, bytes.NewReader(base), bytes.NewReader(local), b.from, &delta); err != nil {
		t.Fatal(err)
	}
	_, err = merge.Merge(merge.Job{Base: bytes.NewReader(base), BaseDigest: b.from, Eta: 1, Inputs: []merge.Input{{Delta: &delta, Codec: merge.CodecFP32, Samples: 1}},
		NextBase: &next, NextMomentum: &momentum, Down: merge.Down{Codec: merge.CodecE3M0, Increment: &increment, NextResidual: &residual}})
	if err != nil {
		t.Fatal(err)
	}
	b.next, b.increment = b.server.serve(t, next.Bytes()), b.server.serve(t, increment.Bytes())
	return b
}

func (b *codedBench) in() *wire.Increment {
	return &wire.Increment{Blob: b.increment, From: b.from, Codec: run.CodecE3M0}
}

// fetched reports whether the server gave the blob away.
func (b *codedBench) fetched(id domain.Digest) (yes bool) {
	b.server.set(func() { yes = slices.Contains(b.server.gets, id) })
	return yes
}

// Who holds the base gets the next one from the increment; who does not, or meets an increment that leads elsewhere or is
// damaged, fetches it whole.
func TestBaseFromIncrement(t *testing.T) {
	for name, c := range map[string]struct {
		holds  bool
		change func(t *testing.T, b *codedBench, in *wire.Increment)
		whole  bool
	}{
		"holds the base": {holds: true},
		"missed a round": {whole: true},
		"leads elsewhere": {holds: true, whole: true, change: func(t *testing.T, b *codedBench, in *wire.Increment) {
			var d bytes.Buffer
			if _, err := merge.EncodeDelta(merge.CodecE3M0, bytes.NewReader(weightsFile(t, 1, 2, 3)), bytes.NewReader(weightsFile(t, 1, 2, 4)), b.from, &d); err != nil {
				t.Fatal(err)
			}
			in.Blob = b.server.serve(t, d.Bytes())
		}},
		"no increment at all": {holds: true, whole: true, change: func(t *testing.T, b *codedBench, in *wire.Increment) { in.Blob = b.server.serve(t, []byte("rubbish")) }},
		"gone from the store": {holds: true, whole: true, change: func(_ *testing.T, b *codedBench, in *wire.Increment) {
			b.server.set(func() { delete(b.server.objects, in.Blob) })
		}},
		"of a codec to come": {holds: true, whole: true, change: func(_ *testing.T, _ *codedBench, in *wire.Increment) { in.Codec = "zip" }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newCodedBench(t)
			if c.holds {
				if err := b.pullBase(b.from, nil); err != nil {
					t.Fatal(err)
				}
			}
			in := b.in()
			if c.change != nil {
				c.change(t, b, in)
			}
			if err := b.pullBase(b.next, in); err != nil {
				t.Fatal(err)
			}
			if !b.store.whole(b.next) || b.fetched(b.next) != c.whole {
				t.Errorf("in the cache %v, fetched whole %v, want %v\n%s", b.store.whole(b.next), b.fetched(b.next), c.whole, b.log.String())
			}
			if warned := strings.Contains(b.log.String(), "increment not used"); warned != (c.whole && c.holds) {
				t.Errorf("warned %v:\n%s", warned, b.log.String())
			}
		})
	}
}

// A slot fetches its increment while another one makes weights of one.
func TestIncrementIsFetchedBeforeTheTurn(t *testing.T) {
	b := newCodedBench(t)
	if err := b.pullBase(b.from, nil); err != nil {
		t.Fatal(err)
	}
	b.store.growing.Lock() // the other slot
	over := make(chan error, 1)
	go func() { over <- b.pullBase(b.next, b.in()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for !b.store.whole(b.increment) && ctx.Err() == nil {
		runtime.Gosched()
	}
	early := b.store.whole(b.next)
	b.store.growing.Unlock()
	if err := <-over; err != nil || ctx.Err() != nil || early || !b.store.whole(b.next) || b.fetched(b.next) {
		t.Errorf("%v, fetched in time: %v, made before its turn: %v", err, ctx.Err() == nil, early)
	}
}

// deltaOf makes a 2-bit delta of one value in a round and gives its id.
func (b *codedBench) deltaOf(t *testing.T, e MakeDelta, local float32) (domain.Digest, []byte, error) {
	t.Helper()
	e.Codec, e.Run, e.Base = run.CodecTwoBit, "r-1", b.from
	var out bytes.Buffer
	err := b.encode(e, 12, bytes.NewReader(weightsFile(t, 0, 0)), bytes.NewReader(weightsFile(t, 0.1, local)), &out)
	if err != nil {
		return "", nil, err
	}
	id := domain.Digest(strings.Repeat("0", 63) + string(rune('a'+e.Number)))
	b.loss.written(id)
	return id, out.Bytes(), nil
}

// What a delta lost goes into the next one if and only if the hub says that the delta counts, and not after a round
// without a delta; there are never more files than two.
func TestLossesFollowWhatCounts(t *testing.T) {
	b := newCodedBench(t)
	first, plain, err := b.deltaOf(t, MakeDelta{Round: 1, Number: 1, Samples: 10}, 0.9)
	if err != nil {
		t.Fatal(err)
	}
	same := func(e MakeDelta) bool {
		_, got, err := b.deltaOf(t, e, 0.9)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Equal(got, plain)
	}
	if same(MakeDelta{Round: 1, Number: 2, Samples: 10, Fed: first}) {
		t.Error("what the first delta lost is not in the second")
	}
	if same(MakeDelta{Round: 2, Number: 3, Samples: 10, Fed: first}) {
		t.Error("made again in the next round, after a cut, the loss of the one that counts is gone")
	}
	if n := len(b.loss.kept); n != 2 {
		t.Errorf("%d losses are kept", n)
	}
	if !same(MakeDelta{Round: 3, Number: 4, Samples: 10, Fed: first}) {
		t.Error("a loss of two rounds ago is used")
	}
	if !same(MakeDelta{Round: 3, Number: 5, Samples: 10}) {
		t.Error("a loss is used although no delta counts")
	}
	if files := b.losses(t); len(files) != 1 {
		t.Errorf("files %v", files)
	}
}

// losses lists the files that are kept.
func (b *codedBench) losses(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(b.dir, "slots", "0-losses", "*.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A damaged file of losses is a failure of the disk once, and the next try does without it.
func TestDamagedLossIsDropped(t *testing.T) {
	b := newCodedBench(t)
	first, plain, err := b.deltaOf(t, MakeDelta{Round: 1, Number: 1, Samples: 10}, 0.9)
	if err != nil {
		t.Fatal(err)
	}
	files := b.losses(t)
	if len(files) != 1 {
		t.Fatal(files)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-1] ^= 1
	if err := os.WriteFile(files[0], raw, 0o600); err != nil {
		t.Fatal(err)
	}
	e := MakeDelta{Round: 2, Number: 2, Samples: 10, Fed: first}
	_, _, err = b.deltaOf(t, e, 0.9)
	var torn *transferFailure
	if !errors.As(err, &torn) {
		t.Fatalf("damaged: %v", err)
	}
	if _, got, err := b.deltaOf(t, e, 0.9); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("the next try: %v", err)
	}
}
