package replay

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

func TestReplayIsBitExact(t *testing.T) {
	w := newWorld(t, nil)
	var told []string
	l, err := w.replay(allChecks)
	w.must(err)
	got, err := l.Verify(context.Background(), w.blobs.get, &scratch{}, func(done, all int) { told = append(told, fmt.Sprintf("%d/%d", done, all)) })
	w.must(err)
	want := Report{Run: theRun, Phase: run.PhaseCompleted, Records: uint64(len(w.records)), Head: event.Digest(w.records[len(w.records)-1]),
		Expected: 20 * rounds, Counted: 20 * rounds, Rounds: rounds, Recomputed: rounds, HashOnly: []int{}, Model: w.state.Base, Verdict: "bit-exact"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if len(told) != rounds || told[rounds-1] != "6/6" {
		t.Errorf("told %v", told)
	}
	if len(l.Story()) != len(w.facts) {
		t.Errorf("the story has %d lines of %d facts", len(l.Story()), len(w.facts))
	}
}

// A base that the keep policy dropped is made again from the one before it, for any number of rounds.
func TestPrunedBasesAreRecomputed(t *testing.T) {
	w := newWorld(t, nil)
	if n := w.prune(); n < 2 {
		t.Fatalf("only %d rounds are pruned", n)
	}
	r, err := w.verify(allChecks)
	w.must(err)
	if r.Verdict != "bit-exact" || r.Recomputed != rounds {
		t.Errorf("%+v", r)
	}
	l, err := w.replay(allChecks)
	w.must(err)
	if _, err := l.Verify(context.Background(), w.blobs.get, noScratch{}, nil); domain.KindOf(err) != domain.KindIntegrity {
		t.Errorf("without scratch: %v", err)
	}
}

// noScratch keeps nothing.
type noScratch struct{}

func (noScratch) Put(context.Context, domain.Digest, []byte) error { return nil }
func (noScratch) Get(_ context.Context, d domain.Digest) ([]byte, error) {
	return nil, domain.NotFound("get "+string(d), "nothing is kept", "")
}
func (noScratch) Forget() {}

// One flipped bit anywhere is found and named.
func TestDamageIsNamed(t *testing.T) {
	for name, damage := range map[string]func(*world) domain.Digest{
		"delta part":     func(w *world) domain.Digest { return w.flip(w.part(w.merges()[2].Inputs[1].Blob)) },
		"delta manifest": func(w *world) domain.Digest { return w.flip(w.merges()[2].Inputs[1].Blob) },
		"first base":     func(w *world) domain.Digest { return w.flip(w.part(w.merges()[0].Base)) },
		"base part":      func(w *world) domain.Digest { return w.flip(w.part(w.merges()[3].Base)) },
		"base manifest":  func(w *world) domain.Digest { return w.flip(w.merges()[3].Base) },
		"momentum":       func(w *world) domain.Digest { return w.flip(w.part(w.merges()[3].Momentum)) },
		"last momentum":  func(w *world) domain.Digest { return w.flip(w.part(w.state.Momentum)) },
		"model":          func(w *world) domain.Digest { return w.flip(w.part(w.state.Base)) },
		"data set":       func(w *world) domain.Digest { return w.flip(w.part(w.state.Data.Blob)) },
		"lost delta":     func(w *world) domain.Digest { d := w.merges()[2].Inputs[1].Blob; w.drop(d); return d },
		"lost part": func(w *world) domain.Digest {
			d := w.part(w.merges()[2].Inputs[1].Blob)
			delete(w.blobs, d)
			return d
		},
		"lost model":    func(w *world) domain.Digest { w.drop(w.state.Base); return w.state.Base },
		"lost data set": func(w *world) domain.Digest { w.drop(w.state.Data.Blob); return w.state.Data.Blob },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			bad := damage(w)
			_, err := w.verify(allChecks)
			if domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), string(bad)) {
				t.Errorf("%v, want an integrity error that names %s", err, bad)
			}
		})
	}
}

// A bit flipped in any record is found at that record, and stays found.
func TestFlippedRecordIsNamed(t *testing.T) {
	w := newWorld(t, nil)
	for i := range w.records {
		whole := w.records[i]
		w.records[i] = bytes.Clone(whole)
		w.records[i][len(whole)/2] ^= 4
		l, err := w.replay(allChecks)
		if seq, ok := event.FirstBad(err); !ok || seq != uint64(i+1) || domain.KindOf(err) != domain.KindIntegrity {
			t.Fatalf("record %d: %v", i+1, err)
		}
		if _, verr := l.Verify(context.Background(), w.blobs.get, &scratch{}, nil); verr != err || l.Add(uint64(i+2), whole) != err {
			t.Fatalf("record %d: the failure does not stay", i+1)
		}
		w.records[i] = whole
	}
}

// rewrite changes a record in the middle and seals it again, as somebody with the disk in his hands could.
func rewrite(w *world, i int) {
	e, err := event.Decode(registry(), uint64(i+1), w.records[i])
	w.must(err)
	e.Actor = "operator"
	w.records[i], err = event.Encode(e)
	w.must(err)
}

func TestRewrittenRecordBreaksTheChain(t *testing.T) {
	w := newWorld(t, nil)
	const i = 20
	rewrite(w, i)
	_, err := w.replay(allChecks)
	if seq, ok := event.FirstBad(err); !ok || seq != i+2 {
		t.Errorf("%v, want the record behind the rewritten one", err)
	}
	without := allChecks
	without.chain = false
	if r, err := w.verify(without); err != nil || r.Verdict != "bit-exact" {
		t.Errorf("the guard cannot fail: without it %v", err)
	}
}

// A log whose chain holds and whose facts do not add up: written by a hub that lies, or by its defect.
func TestContradictionsAreNamed(t *testing.T) {
	merged := func(round int, change func(*run.RoundMerged)) func(event.Data) bool {
		return func(f event.Data) bool {
			d, ok := f.(*run.RoundMerged)
			if !ok || d.Round != round {
				return false
			}
			change(d)
			return true
		}
	}
	for name, c := range map[string]struct {
		forge func(event.Data) bool
		why   string
	}{
		"an input less":      {merged(2, func(d *run.RoundMerged) { d.Inputs = d.Inputs[:1] }), "inputs"},
		"no inputs":          {merged(2, func(d *run.RoundMerged) { d.Inputs = nil }), "inputs"},
		"another weight":     {merged(2, func(d *run.RoundMerged) { d.Inputs = slices.Clone(d.Inputs); d.Inputs[0].Samples++ }), "inputs"},
		"inputs exchanged":   {merged(2, func(d *run.RoundMerged) { d.Inputs = slices.Clone(d.Inputs); slices.Reverse(d.Inputs) }), "inputs"},
		"another first base": {merged(1, func(d *run.RoundMerged) { d.Base = d.Inputs[0].Blob }), "does not begin where"},
		"another base":       {merged(3, func(d *run.RoundMerged) { d.Base = d.Inputs[0].Blob }), "does not begin where"},
		"another momentum":   {merged(3, func(d *run.RoundMerged) { d.Momentum = "" }), "does not begin where"},
		"another step":       {merged(3, func(d *run.RoundMerged) { d.Eta /= 2 }), "another outer step"},
		"another round":      {merged(3, func(d *run.RoundMerged) { d.Round = 2 }), "not closed"},
		"heavier": {func(f event.Data) bool {
			d, ok := f.(*run.ContributionAccepted)
			if ok {
				d.Samples += 5
			}
			return ok
		}, "weighs"},
		"another model": {func(f event.Data) bool {
			d, ok := f.(*run.Completed)
			if ok {
				d.Model = event.Digest([]byte("another"))
			}
			return ok
		}, "completes with"},
	} {
		t.Run(name, func(t *testing.T) {
			honest := newWorld(t, nil)
			w := &world{t: t, blobs: honest.blobs}
			at := uint64(0)
			for i, f := range honest.facts {
				if at == 0 && c.forge(f) {
					at = uint64(i + 1)
				}
			}
			if at == 0 {
				t.Fatal("nothing was forged")
			}
			w.state = nil
			w.seal(honest.facts)
			_, err := w.replay(allChecks)
			if seq, ok := event.FirstBad(err); !ok || seq != at || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%v, want %q at %d", err, c.why, at)
			}
			without := allChecks
			without.links = false
			if _, err := w.replay(without); err != nil {
				t.Errorf("the guard cannot fail: without it %v", err)
			}
		})
	}
}

// seal writes facts as a log whose chain holds, whatever they say.
func (w *world) seal(facts []event.Data) {
	for _, f := range facts {
		w.write(f)
	}
}

// A round that lost all its contributions may not change the model.
func TestEmptyRound(t *testing.T) {
	w := newWorld(t, func(w *world) { w.revoke = 3 })
	empty := w.merges()[2]
	if len(empty.Inputs) != 0 {
		t.Fatalf("round 3 has inputs: %+v", empty)
	}
	r, err := w.verify(allChecks)
	w.must(err)
	if r.Verdict != "bit-exact" || r.Rounds != rounds || r.Counted != r.Expected {
		t.Errorf("%+v", r)
	}
	empty.NextBase = w.merges()[0].Base
	forged := &world{t: t, blobs: w.blobs}
	forged.seal(w.facts)
	if _, err := forged.replay(allChecks); err == nil || !strings.Contains(err.Error(), "changes the model") {
		t.Errorf("an empty round exchanged the model: %v", err)
	}
}

// Weights that nobody computed are found, though every digest and every link holds.
func TestWrongMergeIsFound(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.lie = func(round int, theta []byte) {
			if round == 4 {
				theta[len(theta)-4] ^= 1 // the last bit of one weight
			}
		}
	})
	_, err := w.verify(allChecks)
	if domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), "round 4") || !strings.Contains(err.Error(), string(w.merges()[3].NextBase)) {
		t.Errorf("%v", err)
	}
	without := allChecks
	without.bits = false
	if _, err := w.verify(without); err != nil {
		t.Errorf("the guard cannot fail: without it %v", err)
	}
}

// A cancelled run's deltas are collected, some at a time: its rounds are proven by digests alone, and damage still shows.
func TestCancelledRun(t *testing.T) {
	w := newWorld(t, func(w *world) { w.cancel = 4 })
	r, err := w.verify(allChecks)
	w.must(err)
	if r.Verdict != "bit-exact" || r.Rounds != 4 || r.Phase != run.PhaseCancelled {
		t.Errorf("nothing collected yet: %+v", r)
	}
	delete(w.blobs, w.part(w.merges()[1].Inputs[0].Blob)) // the collection is half done
	w.drop(w.merges()[2].Inputs[0].Blob)
	r, err = w.verify(allChecks)
	w.must(err)
	if want := []int{2, 3}; r.Verdict != "partial" || !slices.Equal(r.HashOnly, want) || r.Recomputed != 2 {
		t.Errorf("%+v, want rounds %v by digests alone", r, want)
	}
	bad := w.flip(w.part(w.merges()[3].Inputs[0].Blob))
	if _, err := w.verify(allChecks); domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), string(bad)) {
		t.Errorf("damage: %v", err)
	}
}

// A store in trouble is not damage: the caller tries again.
func TestTroubleIsNotDamage(t *testing.T) {
	w := newWorld(t, nil)
	l, err := w.replay(allChecks)
	w.must(err)
	for _, d := range []domain.Digest{w.part(w.merges()[2].Base), w.state.Data.Blob} {
		get := func(ctx context.Context, id domain.Digest) ([]byte, error) {
			if id == d {
				return nil, domain.Unavailable("get", "the link is cut", "try again", nil)
			}
			return w.blobs.get(ctx, id)
		}
		if _, err := l.Verify(context.Background(), get, &scratch{}, nil); domain.KindOf(err) != domain.KindUnavailable {
			t.Errorf("%v", err)
		}
	}
}

// Facts that Evolve cannot take end a replay with a sentence, not the process.
func TestImpossibleFacts(t *testing.T) {
	w := newWorld(t, nil)
	for name, f := range map[string]event.Data{
		"chunk beyond the run":  &run.RoundOpened{Round: rounds + 1, Base: w.state.Base, Chunks: []domain.ChunkID{1 << 30}},
		"no open round":         &run.ContributionRevoked{Slot: "a/0", Number: 1},
		"contribution of chunk": &run.ContributionAccepted{Slot: "a/0", Chunks: []domain.ChunkID{-1}},
		"second beginning":      w.facts[0],
	} {
		l, err := w.replay(allChecks)
		w.must(err)
		seq := uint64(len(w.records) + 1)
		b, err := event.Encode(event.Envelope{Seq: seq, ID: "c-x.0", Kind: event.KindRun, Agg: string(theRun), Time: w.time(), Actor: "hub", Cause: "c-x",
			Prev: event.Digest(w.records[seq-2]), Data: f, Version: 1})
		w.must(err)
		if got, ok := event.FirstBad(l.Add(seq, b)); !ok || got != seq {
			t.Errorf("%s: first bad %d %v", name, got, ok)
		}
	}
	l := New(registry(), "r-2")
	for i, b := range w.records {
		w.must(l.Add(uint64(i+1), b))
	}
	if _, err := l.Verify(context.Background(), w.blobs.get, &scratch{}, nil); domain.KindOf(err) != domain.KindNotFound || l.State() != nil {
		t.Errorf("a run that is not there: %v", err)
	}
}
