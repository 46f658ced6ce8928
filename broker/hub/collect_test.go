package hub

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"tensorturn/broker/memory"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// has reports whether an object is stored.
func (r *rig) has(d domain.Digest) bool {
	r.t.Helper()
	got, err := r.blobs.Has(context.Background(), []domain.Digest{d})
	r.must(err)
	return got[0]
}

func (r *rig) store(text string) domain.Digest {
	r.t.Helper()
	w := blob.NewWriter(context.Background(), r.blobs.Put)
	_, err := w.Write([]byte(text))
	r.must(err)
	id, err := w.Close()
	r.must(err)
	return id
}

// Orphans are collected after an hour; what a run refers to stays, manifest and parts; and what a merge under way has
// written stays as long as it runs.
func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		data, orphan := r.store("data"), r.store("orphan")
		part := blob.Sum([]byte("data"))
		r.start()
		defer r.s.Stop()
		r.found()
		s := run.Spec{Name: "r-1", Epochs: 1, Batch: 10, Chunk: 10, Round: run.Round{Chunks: 6}}
		d := run.Dataset{Blob: data, Samples: 120, Heldout: 20, Features: 4, Classes: 2, Block: 120}
		s, err := run.Resolve(s, d)
		r.must(err)
		r.must(r.do(event.KindRun, "r-1", run.Submit{Spec: s, Data: d}))

		pause := func(d time.Duration) { <-time.After(d); synctest.Wait() }
		pause(55 * time.Minute)
		if !r.has(orphan) {
			t.Fatal("an orphan that may be an upload under way is gone")
		}
		r.s.setMerging(time.Now().Add(-time.Hour))
		pause(10 * time.Minute)
		if !r.has(orphan) {
			t.Fatal("what a merge under way may have written is gone")
		}
		r.s.setMerging(time.Time{})
		pause(10 * time.Minute)
		if r.has(orphan) || r.has(blob.Sum([]byte("orphan"))) {
			t.Error("the orphan is still there")
		}
		if !r.has(data) || !r.has(part) {
			t.Error("the data set of a run is gone")
		}
	})
}

// What a collection has taken is not taken for stored, however long ago it was proven.
func TestCollectedBlobsAreNoProof(t *testing.T) {
	r := newRig(t, nil)
	orphan := r.store("orphan")
	r.s.stored = weights{blobs: r.blobs}.stored
	r.start()
	defer r.s.Stop()
	claim := func() *incoming {
		return &incoming{machine: "m", request: wire.SyncRequest{Slots: []wire.SlotReport{{Init: &wire.Init{Base: orphan}}}}}
	}
	in := claim()
	r.must(r.s.prove(t.Context(), in))
	if !r.s.claims.known(&in.request) {
		t.Fatal("what was proven is not known")
	}
	if removed, _, err := r.s.collect(t.Context(), &collector{blobs: r.blobs}, time.Now().Add(2*time.Hour)); err != nil || removed == 0 {
		t.Fatalf("removed %d objects: %v", removed, err)
	}
	if in = claim(); r.s.claims.known(&in.request) {
		t.Error("a blob that was collected is still taken for stored")
	}
	if r.must(r.s.prove(t.Context(), in)); in.request.Slots[0].Init != nil {
		t.Error("the claim of a blob that was collected stands")
	}
}

// When a referenced manifest cannot be read nothing is deleted: what it names must not be taken for garbage.
func TestCollectStopsAtUnreadableManifest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		data, orphan := r.store("data"), r.store("orphan")
		r.start()
		defer r.s.Stop()
		r.found()
		s, err := run.Resolve(run.Spec{Name: "r-1", Epochs: 1, Batch: 10, Chunk: 10}, run.Dataset{Blob: data, Samples: 120, Heldout: 20, Features: 4, Classes: 2, Block: 120})
		r.must(err)
		r.must(r.do(event.KindRun, "r-1", run.Submit{Spec: s, Data: run.Dataset{Blob: data, Samples: 120, Heldout: 20, Features: 4, Classes: 2, Block: 120}}))
		r.blobs.Corrupt(data, func(b []byte) []byte { return append(bytes.Clone(b), 'x') })
		<-time.After(2 * time.Hour)
		if !r.has(orphan) {
			t.Error("something was deleted although not all references are known")
		}
	})
}

func TestCollectReportsTheStore(t *testing.T) {
	r := newRig(t, nil)
	r.store("orphan")
	r.start()
	defer r.s.Stop()
	c := &collector{blobs: r.blobs}
	late := time.Now().Add(2 * time.Hour)
	r.blobs.SetFault(func(op memory.Op) memory.Fault {
		if op == memory.OpDelete {
			return memory.FailBefore
		}
		return memory.None
	})
	if _, _, err := r.s.collect(t.Context(), c, late); domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("a store that cannot delete: %v", err)
	}
	r.blobs.SetFault(nil)
	if removed, bytes, err := r.s.collect(t.Context(), c, late); err != nil || removed != 2 || bytes == 0 {
		t.Errorf("removed %d objects, %d bytes, %v", removed, bytes, err)
	}
}

// What stays of a run: with keep_every 4 and 10 rounds merged, the weights after rounds 4, 8, 9, 10 (the last three
// and every fourth), the first base, and every delta.
func TestReferences(t *testing.T) {
	w := newWorld(t)
	w.enrol("a", 1, 50)
	w.submit("r-1", func(s *run.Spec, d *run.Dataset) { s.KeepEvery, s.Round.Chunks, d.Samples = 4, 1, 100 })
	w.until("the run completes", func() bool { return w.state("r-1").Phase == run.PhaseCompleted })
	refs := map[domain.Digest]bool{}
	for _, d := range w.core.References() {
		refs[d] = true
	}
	for round := 0; round <= 10; round++ {
		want := round == 0 || round%4 == 0 || round >= 8
		if got := refs[digest("base", domain.RunID("r-1"), round)]; got != want {
			t.Errorf("base after round %d: kept %v, want %v", round, got, want)
		}
		if got := refs[digest("momentum", domain.RunID("r-1"), round)]; round > 0 && got != want {
			t.Errorf("momentum after round %d: kept %v, want %v", round, got, want)
		}
	}
	for _, m := range find[*run.RoundMerged](w) {
		if !refs[m.Inputs[0].Blob] {
			t.Errorf("the delta of round %d is not kept", m.Round)
		}
	}
	if !refs[digest("data")] {
		t.Error("the data set is not kept")
	}
}
