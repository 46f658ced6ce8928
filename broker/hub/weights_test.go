package hub

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"tensorturn/broker/memory"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/merge"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

var testLayout = []safetensors.Tensor{{Name: "b", DType: safetensors.F32, Shape: []int64{3}}, {Name: "w", DType: safetensors.F32, Shape: []int64{2, 3}}}

// store is a blob store in memory with helpers to fill it.
type store struct {
	t *testing.T
	*memory.Blobs
}

func newStore(t *testing.T) store {
	return store{t, memory.NewBlobs(func() time.Time { return time.Unix(1e9, 0) }, nil)}
}

func (s store) put(data []byte) domain.Digest {
	s.t.Helper()
	w := blob.NewWriter(context.Background(), s.Put)
	if _, err := w.Write(data); err != nil {
		s.t.Fatal(err)
	}
	id, err := w.Close()
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

func (s store) get(id domain.Digest) []byte {
	s.t.Helper()
	r, err := blob.Open(context.Background(), id, s.Get)
	if err != nil {
		s.t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		s.t.Fatal(err)
	}
	return b.Bytes()
}

// weightsOf writes nine values as a safetensors file of testLayout.
func weightsOf(t *testing.T, values ...float32) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := safetensors.NewWriter(&b, testLayout, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		bits := math.Float32bits(v)
		if _, err := w.Write([]byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (s store) delta(base domain.Digest, local []byte) domain.Digest {
	s.t.Helper()
	var b bytes.Buffer
	if _, err := merge.EncodeDelta(merge.CodecFP32, bytes.NewReader(s.get(base)), bytes.NewReader(local), base, &b); err != nil {
		s.t.Fatal(err)
	}
	return s.put(b.Bytes())
}

var zeros = []float32{0, 0, 0, 0, 0, 0, 0, 0, 0}

func job(base, delta domain.Digest) InspectJob {
	return InspectJob{Run: "r-1", Slot: "a/0", Epoch: 7, Number: 1, Base: base, Layout: safetensors.LayoutDigest(testLayout),
		Offer: wire.Offer{Blob: delta, Codec: run.CodecFP32, Chunks: []domain.ChunkID{0}, Steps: 1}}
}

func TestInspect(t *testing.T) {
	local := weightsOf(t, 3, 0, 0, 4, 0, 0, 0, 0, 0)
	cases := map[string]struct {
		damage func(s store, base, delta domain.Digest) domain.Digest // gives the blob that is offered
		why    run.Refusal
		kind   domain.Kind
	}{
		"good":  {func(_ store, _, d domain.Digest) domain.Digest { return d }, "", ""},
		"wrong": {func(s store, _, _ domain.Digest) domain.Digest { return s.put([]byte("no weights at all")) }, run.RefusedUnreadable, ""},
		"truncated": {func(s store, _, d domain.Digest) domain.Digest {
			b := s.get(d)
			return s.put(b[:len(b)-4])
		}, run.RefusedUnreadable, ""},
		"not a blob": {func(s store, _, _ domain.Digest) domain.Digest {
			raw := []byte("just an object")
			if err := s.Put(context.Background(), blob.Sum(raw), raw); err != nil {
				s.t.Fatal(err)
			}
			return blob.Sum(raw)
		}, run.RefusedUnreadable, ""},
		"a part too short": {func(s store, _, d domain.Digest) domain.Digest {
			m, err := blob.Open(context.Background(), d, s.Get)
			if err != nil {
				s.t.Fatal(err)
			}
			lie := m.Manifest()
			lie.Size++
			if err := s.Put(context.Background(), lie.Digest(), lie.Encode()); err != nil {
				s.t.Fatal(err)
			}
			return lie.Digest()
		}, run.RefusedUnreadable, ""},
		"other base": {func(s store, _, _ domain.Digest) domain.Digest {
			return s.delta(s.put(weightsOf(s.t, 1, 1, 1, 1, 1, 1, 1, 1, 1)), local)
		}, run.RefusedBase, ""},
		"missing": {func(s store, _, d domain.Digest) domain.Digest {
			if err := s.Delete(context.Background(), d); err != nil {
				s.t.Fatal(err)
			}
			return d
		}, "", domain.KindNotFound},
		"a part is missing": {func(s store, _, d domain.Digest) domain.Digest {
			m, err := blob.Open(context.Background(), d, s.Get)
			if err != nil {
				s.t.Fatal(err)
			}
			if err := s.Delete(context.Background(), m.Manifest().Parts[0]); err != nil {
				s.t.Fatal(err)
			}
			return d
		}, "", domain.KindNotFound},
		"base is missing": {func(s store, base, d domain.Digest) domain.Digest {
			if err := s.Delete(context.Background(), base); err != nil {
				s.t.Fatal(err)
			}
			return d
		}, "", domain.KindUnavailable},
		"store is down": {func(s store, _, d domain.Digest) domain.Digest {
			s.SetFault(func(memory.Op) memory.Fault { return memory.FailBefore })
			return d
		}, "", domain.KindUnavailable},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			base := s.put(weightsOf(t, zeros...))
			offered := c.damage(s, base, s.delta(base, local))
			got := weights{s}.inspect(context.Background(), job(base, offered))
			if got.Found.Why != c.why || domain.KindOf(got.Err) != c.kind {
				t.Fatalf("found %+v, error %v; want %q and kind %q", got.Found, got.Err, c.why, c.kind)
			}
			if name == "good" && got.Found.Norm != 5 {
				t.Errorf("norm %v, want 5", got.Found.Norm)
			}
		})
	}
}

// A part that the store has damaged is removed, so that the agent's second upload is stored and not taken for granted.
func TestInspectRemovesDamagedParts(t *testing.T) {
	s := newStore(t)
	base := s.put(weightsOf(t, zeros...))
	local := weightsOf(t, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	d := s.delta(base, local)
	m, err := blob.Open(context.Background(), d, s.Get)
	if err != nil {
		t.Fatal(err)
	}
	s.Corrupt(m.Manifest().Parts[0], func(b []byte) []byte { b[20] ^= 1; return b })
	if got := (weights{s}).inspect(context.Background(), job(base, d)); domain.KindOf(got.Err) != domain.KindNotFound {
		t.Fatalf("damaged: %+v, %v", got.Found, got.Err)
	}
	s.delta(base, local) // the agent sends it again
	if got := (weights{s}).inspect(context.Background(), job(base, d)); got.Err != nil || got.Found.Why != "" {
		t.Errorf("sent again: %+v, %v", got.Found, got.Err)
	}
}

func TestMergeWorker(t *testing.T) {
	s := newStore(t)
	base := s.put(weightsOf(t, zeros...))
	one := s.delta(base, weightsOf(t, 4, 0, 0, 0, 0, 0, 0, 0, 0))
	two := s.delta(base, weightsOf(t, 0, 8, 0, 0, 0, 0, 0, 0, 0))
	j := MergeJob{Run: "r-1", Round: 1, Base: base, Eta: 1, Inputs: []run.MergeInput{
		{Slot: "a/0", Number: 1, Blob: one, Codec: run.CodecFP32, Samples: 10}, {Slot: "b/0", Number: 1, Blob: two, Codec: run.CodecFP32, Samples: 30}}}
	got := weights{s}.merge(context.Background(), j)
	if got.Err != nil || len(got.Unreadable) > 0 {
		t.Fatalf("merge: %v, unreadable %v", got.Err, got.Unreadable)
	}
	if want := weightsOf(t, 1, 6, 0, 0, 0, 0, 0, 0, 0); !bytes.Equal(s.get(got.Base), want) {
		t.Error("the next base is not the weighted mean")
	}
	if got.StepNorm != math.Sqrt(37) {
		t.Errorf("step norm %v", got.StepNorm)
	}
	again := weights{s}.merge(context.Background(), j)
	if again.Base != got.Base || again.Momentum != got.Momentum {
		t.Error("a merge that is repeated gives other blobs")
	}
	j.Round, j.Base, j.Momentum, j.Mu = 2, got.Base, got.Momentum, 0.5
	j.Inputs[0].Blob = s.delta(got.Base, weightsOf(t, 1, 6, 0, 0, 0, 0, 0, 0, 1))
	j.Inputs = j.Inputs[:1]
	if next := (weights{s}).merge(context.Background(), j); next.Err != nil || next.Base == got.Base {
		t.Errorf("second round: %+v", next)
	}
}

func TestMergeWorkerNamesWhatItCannotRead(t *testing.T) {
	cases := map[string]func(s store, d domain.Digest) domain.Digest{
		"missing": func(s store, d domain.Digest) domain.Digest {
			if err := s.Delete(context.Background(), d); err != nil {
				s.t.Fatal(err)
			}
			return d
		},
		"a damaged part": func(s store, d domain.Digest) domain.Digest {
			m, err := blob.Open(context.Background(), d, s.Get)
			if err != nil {
				s.t.Fatal(err)
			}
			s.Corrupt(m.Manifest().Parts[0], func(b []byte) []byte { b[0] ^= 1; return b })
			return d
		},
		"not a delta": func(s store, _ domain.Digest) domain.Digest { return s.put([]byte("nothing")) },
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			base := s.put(weightsOf(t, zeros...))
			good := s.delta(base, weightsOf(t, 4, 0, 0, 0, 0, 0, 0, 0, 0))
			bad := damage(s, s.delta(base, weightsOf(t, 0, 8, 0, 0, 0, 0, 0, 0, 0)))
			got := weights{s}.merge(context.Background(), MergeJob{Run: "r-1", Round: 1, Base: base, Eta: 1, Inputs: []run.MergeInput{
				{Slot: "a/0", Number: 1, Blob: good, Codec: run.CodecFP32, Samples: 10}, {Slot: "b/0", Number: 1, Blob: bad, Codec: run.CodecFP32, Samples: 30}}})
			if len(got.Unreadable) != 1 || got.Unreadable[0].Slot != "b/0" || got.Err != nil {
				t.Errorf("unreadable %v, error %v", got.Unreadable, got.Err)
			}
		})
	}
}

// The store's passing trouble is nobody's loss.
func TestMergeWorkerStoreDown(t *testing.T) {
	s := newStore(t)
	base := s.put(weightsOf(t, zeros...))
	d := s.delta(base, weightsOf(t, 4, 0, 0, 0, 0, 0, 0, 0, 0))
	gets := 0
	s.SetFault(func(op memory.Op) memory.Fault {
		if op == memory.OpGet {
			gets++
		}
		if op == memory.OpGet && gets > 3 {
			return memory.FailBefore
		}
		return memory.None
	})
	got := weights{s}.merge(context.Background(), MergeJob{Run: "r-1", Round: 1, Base: base, Eta: 1,
		Inputs: []run.MergeInput{{Slot: "a/0", Number: 1, Blob: d, Codec: run.CodecFP32, Samples: 10}}})
	if domain.KindOf(got.Err) != domain.KindUnavailable || len(got.Unreadable) != 0 {
		t.Errorf("unreadable %v, error %v", got.Unreadable, got.Err)
	}
	if got.Err != nil && !strings.Contains(got.Err.Error(), "lost") {
		t.Errorf("the cause is gone from %v", errors.Unwrap(got.Err))
	}
}
