package hub

import (
	"bytes"
	"io"
	"strings"
	"testing"
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
