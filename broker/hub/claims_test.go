package hub

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker/memory"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/run"
)

// keep stores a blob of one part and gives its name.
func keep(t *testing.T, blobs *memory.Blobs, data []byte) domain.Digest {
	t.Helper()
	m := blob.Manifest{Size: int64(len(data)), Parts: []domain.Digest{blob.Sum(data)}}
	for _, b := range [][]byte{data, m.Encode()} {
		if err := blobs.Put(t.Context(), blob.Sum(b), b); err != nil {
			t.Fatal(err)
		}
	}
	return m.Digest()
}

// Only what is in the store, whole, reaches the log; of one report some claims may stand and others fall.
func TestClaimsAreProven(t *testing.T) {
	blobs := memory.NewBlobs(time.Now, nil)
	whole, cut := keep(t, blobs, []byte("weights")), keep(t, blobs, []byte("other weights"))
	if err := blobs.Delete(t.Context(), blob.Sum([]byte("other weights"))); err != nil {
		t.Fatal(err)
	}
	s := NewService(ServiceConfig{Blobs: blobs, Logger: zerolog.New(io.Discard)})
	for _, c := range []struct {
		what  string
		blob  domain.Digest
		stays bool
	}{{"whole", whole, true}, {"a part is missing", cut, false}, {"never stored", digest("phantom"), false}, {"no manifest", blob.Sum([]byte("weights")), false}} {
		in := &incoming{machine: "m", request: wire.SyncRequest{Slots: []wire.SlotReport{
			{Init: &wire.Init{Base: c.blob}},
			{Member: &wire.Member{Checkpoint: &wire.Checkpoint{Blob: c.blob}, Trained: &wire.TrainedMember{Weights: c.blob}, Outputs: &run.MemberOutputs{Blob: c.blob}}},
			{Member: &wire.Member{Checkpoint: &wire.Checkpoint{}, Trained: &wire.TrainedMember{Weights: whole}}}, // an empty checkpoint claims nothing
		}}}
		if err := s.prove(t.Context(), in); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		m, other := in.request.Slots[1].Member, in.request.Slots[2].Member
		for what, stays := range map[string]bool{"base": in.request.Slots[0].Init != nil, "checkpoint": m.Checkpoint != nil, "weights": m.Trained != nil, "outputs": m.Outputs != nil} {
			if stays != c.stays {
				t.Errorf("%s: the claim of a %s stands: %v", c.what, what, stays)
			}
		}
		if other.Checkpoint == nil || other.Trained == nil {
			t.Errorf("%s: claims of another slot fell too", c.what)
		}
		if s.claims.known(&in.request) == false && c.stays {
			t.Errorf("%s: what was proven is asked again", c.what)
		}
	}
}

// A store that cannot tell leaves the report for later, as it was.
func TestClaimsOfAStoreThatCannotTell(t *testing.T) {
	s := NewService(ServiceConfig{Blobs: memory.NewBlobs(time.Now, func(memory.Op) memory.Fault { return memory.FailBefore }), Logger: zerolog.New(io.Discard)})
	in := &incoming{machine: "m", request: wire.SyncRequest{Slots: []wire.SlotReport{{Init: &wire.Init{Base: digest("base")}}}}}
	if err := s.prove(t.Context(), in); domain.KindOf(err) != domain.KindUnavailable || in.request.Slots[0].Init == nil {
		t.Errorf("%v, claim %v", err, in.request.Slots[0].Init)
	}
}

// A machine that goes on naming what is not stored is complained of once, and not with every report.
func TestAStandingClaimIsSaidOnce(t *testing.T) {
	var said bytes.Buffer
	s := NewService(ServiceConfig{Blobs: memory.NewBlobs(time.Now, nil), Logger: zerolog.New(&said)})
	for range 5 {
		in := &incoming{machine: "m", request: wire.SyncRequest{Slots: []wire.SlotReport{{Init: &wire.Init{Base: digest("phantom")}}}}}
		if err := s.prove(t.Context(), in); err != nil || in.request.Slots[0].Init != nil {
			t.Fatalf("%v, claim %v", err, in.request.Slots[0].Init)
		}
	}
	if n := strings.Count(said.String(), "not stored"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

func TestProvenClaimsAreBounded(t *testing.T) {
	c := newClaims()
	for i := range maxProven + 1 {
		c.remember(digest("blob", i))
	}
	if len(c.proven) > maxProven {
		t.Errorf("%d are remembered, at most %d", len(c.proven), maxProven)
	}
}

// The store is asked for what a lease makes a fact of, and for nothing else: a machine without one costs nobody a look, and hears
// that it may forget its result.
func TestClaimsWithoutALeaseAreNotLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		var looked []domain.Digest
		r.s.stored = func(_ context.Context, d domain.Digest) (bool, error) {
			looked = append(looked, d)
			return true, nil
		}
		r.start()
		defer r.s.Stop()
		r.found("a")
		a := newFakeAgent("a", 1, 10)
		idle := a.request()
		idle.Slots[0].Run, idle.Slots[0].Epoch = "r-old", 3
		idle.Slots[0].Init = &wire.Init{Base: digest("phantom"), Layout: digest("layout")}
		idle.Slots[0].Member = &wire.Member{Checkpoint: &wire.Checkpoint{Blob: digest("ghost")}, Trained: &wire.TrainedMember{Weights: digest("ghost"), Layout: digest("layout")}}
		reply := r.request("Aa", idle)
		if len(looked) > 0 || !reply.Slots[0].Done {
			t.Errorf("without a lease: looked at %v, done %v", looked, reply.Slots[0].Done)
		}
		r.submit("r-1")
		for len(looked) == 0 {
			time.Sleep(time.Second) // of the bubble
			a.work(1)
			a.hear(r.request("Aa", a.request()))
			synctest.Wait()
		}
		if s := r.state("r-1"); s.Base == "" || looked[0] != s.Base {
			t.Errorf("with a lease: looked at %v, the base is %q", looked, s.Base)
		}
	})
}

// state reads a run.
func (r *rig) state(id string) (s *run.State) {
	r.t.Helper()
	r.must(r.s.Read(r.t.Context(), func(c *Core) { s = c.Run(domain.RunID(id)) }))
	return s
}

// One report holds the store for a few looks, whatever it claims; the rest comes with the next ones, where what was not there is not
// looked for again so soon. What another machine claims is its own.
func TestAReportHasAFewLooks(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := NewService(ServiceConfig{Blobs: memory.NewBlobs(time.Now, nil), Logger: zerolog.New(io.Discard), Now: func() time.Time { return now }})
	const last = domain.MaxSlotsPerMachine - 1
	looks := 0
	s.stored = func(_ context.Context, d domain.Digest) (bool, error) {
		looks++
		return d == digest("base", last), nil
	}
	report := func(m domain.MachineID) *wire.SyncRequest {
		in := &incoming{machine: m}
		for i := range domain.MaxSlotsPerMachine {
			in.request.Slots = append(in.request.Slots, wire.SlotReport{Index: i, Init: &wire.Init{Base: digest("base", i)}})
		}
		looks = 0
		if err := s.prove(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		return &in.request
	}
	for n := range domain.MaxSlotsPerMachine / maxLooks {
		r := report("m")
		if looks != maxLooks || r.Slots[0].Init != nil {
			t.Fatalf("report %d: %d looks, the first claim stands: %v", n, looks, r.Slots[0].Init != nil)
		}
		if n == domain.MaxSlotsPerMachine/maxLooks-1 && r.Slots[last].Init == nil {
			t.Error("the last claim, which is true, was not reached")
		}
	}
	if r := report("m"); looks != 0 || r.Slots[last].Init == nil {
		t.Errorf("all is known: %d looks", looks)
	}
	if report("n"); looks != maxLooks {
		t.Errorf("another machine's report: %d looks", looks)
	}
	now = now.Add(absentFor)
	if report("m"); looks != maxLooks {
		t.Errorf("after a while: %d looks", looks)
	}
}

func TestAbsentClaimsAreBounded(t *testing.T) {
	c := newClaims()
	for i := range maxAbsent + 1 {
		c.miss(claim{"m", digest("blob", i)}, time.Unix(1e9, 0))
	}
	if len(c.absent) > maxAbsent {
		t.Errorf("%d are remembered, at most %d", len(c.absent), maxAbsent)
	}
}
