package replay

import (
	"context"
	"strings"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// coded is a run whose next bases go out as increments.
func coded(w *world) { w.down = run.CodecE3M0 }

// Increments and residuals are recomputed with the merge, from what is kept and from what is made again.
func TestWayDownIsRecomputed(t *testing.T) {
	for _, prune := range []bool{false, true} {
		w := newWorld(t, coded)
		if prune {
			w.prune()
		}
		if r, err := w.verify(allChecks); err != nil || r.Verdict != "bit-exact" || r.Recomputed != rounds {
			t.Errorf("pruned %v: %+v, %v", prune, r, err)
		}
		l, err := w.replay(allChecks)
		w.must(err)
		got, err := l.Without(context.Background(), 3, "a", w.blobs.get, &scratch{})
		if err != nil || got.Model == got.Actual || got.Model == "" {
			t.Errorf("pruned %v: without a machine: %+v, %v", prune, got, err)
		}
	}
	w := newWorld(t, func(w *world) { coded(w); w.revoke = 3 })
	if r, err := w.verify(allChecks); err != nil || r.Verdict != "bit-exact" {
		t.Errorf("a round without a contribution: %+v, %v", r, err)
	}
}

// What is damaged, or is not what the log says, is found.
func TestWayDownDamaged(t *testing.T) {
	for name, damage := range map[string]func(*world) domain.Digest{
		"residual":      func(w *world) domain.Digest { return w.flip(w.part(w.merges()[3].Residual)) },
		"last residual": func(w *world) domain.Digest { return w.flip(w.part(w.state.Residual)) },
		"lost residual": func(w *world) domain.Digest { w.drop(w.state.Residual); return w.state.Residual },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, coded)
			bad := damage(w)
			if _, err := w.verify(allChecks); domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), string(bad)) {
				t.Errorf("%v, want an integrity error that names %s", err, bad)
			}
		})
	}
	another := event.Digest([]byte("another"))
	for name, c := range map[string]struct {
		forge func(*run.RoundMerged)
		why   string
	}{
		"another residual before": {func(d *run.RoundMerged) { d.Residual = another }, "codec and residual"},
		"another codec":           {func(d *run.RoundMerged) { d.Down = run.CodecInt8 }, "codec and residual"},
		"another increment":       {func(d *run.RoundMerged) { d.Increment = another }, "increment"},
		"another residual behind": {func(d *run.RoundMerged) { d.NextResidual = another }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			honest := newWorld(t, coded)
			for _, f := range honest.facts {
				if d, ok := f.(*run.RoundMerged); ok && d.Round == 3 {
					c.forge(d)
				}
			}
			w := &world{t: t, blobs: honest.blobs}
			w.seal(honest.facts)
			if _, err := w.verify(allChecks); domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%v, want %q", err, c.why)
			}
		})
	}
}
