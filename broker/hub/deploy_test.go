package hub

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

// What is deployed is filled from the run as the log has it, whatever the command says; what has changed since the caller
// looked is refused.
func TestDeploymentIsFilledFromTheRun(t *testing.T) {
	w := newWorld(t)
	w.must(w.do(event.KindPool, pool.ID, pool.Found{At: w.now}))
	deploy := func(c pool.DeployModel) error { return w.do(event.KindPool, pool.ID, c) }
	refused := func(what string, err error, kind domain.Kind, text string) {
		t.Helper()
		if domain.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %s and %q", what, err, kind, text)
		}
	}
	c := pool.DeployModel{Model: "digits", Run: "r-1", Where: pool.WhereHub}
	refused("no run", deploy(c), domain.KindNotFound, "no such run")
	w.enrol("a", 1, 10)
	w.submit("r-1", nil)
	w.pass(5 * time.Second)
	refused("under way", deploy(c), domain.KindConflict, "has not ended")
	w.submit("r-2", nil)
	w.must(w.do(event.KindRun, "r-2", run.Cancel{Reason: "not wanted"}))
	refused("nothing merged", deploy(pool.DeployModel{Model: "digits", Run: "r-2", Where: pool.WhereHub}), domain.KindConflict, "merged no round")
	w.until("the run completes", func() bool { return w.state("r-1").Phase == run.PhaseCompleted })
	stale := c
	stale.Weights = digest("another")
	refused("another model by now", deploy(stale), domain.KindConflict, "another one by now")
	c.Kind, c.Layout, c.Data = "king", digest("lie"), digest("lie") // what a caller says of the run counts for nothing
	w.must(deploy(c))
	s := w.state("r-1")
	d := find[*pool.ModelDeployed](w)[0]
	if d.Version != 1 || d.Kind != "mlp" || d.Weights != s.Base || d.Layout != s.Layout || d.Data != s.Data.Blob || len(d.Members) != 0 {
		t.Errorf("deployed %+v", d)
	}
}

// An ensemble is deployed with the members that voted, their weights in the vote, its rule and temperature; the blobs of what is
// deployed stay.
func TestEnsembleIsDeployedAsItVoted(t *testing.T) {
	p := newPolls(t, 3, nil)
	p.must(p.do(event.KindPool, pool.ID, pool.Found{At: p.now}))
	p.must(p.do(event.KindPool, pool.ID, pool.DeployModel{Model: "votes", Run: "r-1", Where: pool.WhereHub}))
	s := p.state("r-1")
	d := find[*pool.ModelDeployed](p.world)[0]
	v := s.Ensemble.Vote.Result
	if d.Kind != KindEnsemble || d.Rule != v.Rule || d.Temperature != v.Temperature || len(d.Members) != 3 {
		t.Fatalf("deployed %+v", d)
	}
	refs := p.core.References()
	for i, m := range d.Members {
		if m.Number != i+1 || m.Weights != s.Member(i+1).Weights || m.Layout != s.Member(i+1).Layout || m.Weight != v.Weights[i] {
			t.Errorf("member %d: %+v", i+1, m)
		}
		if !slices.Contains(refs, m.Weights) {
			t.Errorf("the weights of member %d may be collected", i+1)
		}
	}
	// The same again is nothing; retired and back is the next version.
	n := len(p.events)
	p.must(p.do(event.KindPool, pool.ID, pool.DeployModel{Model: "votes", Run: "r-1", Where: pool.WhereHub}))
	if len(p.events) != n {
		t.Errorf("the same deployment again wrote %s", p.tail(1))
	}
}

// A version's blobs are referred to by the pool itself: they stay whatever becomes of the run's own references.
func TestDeployedBlobsStay(t *testing.T) {
	f := newFold()
	f.apply(event.Envelope{Seq: 1, Kind: event.KindPool, Agg: pool.ID, Data: &pool.ModelDeployed{Model: "b", Version: 1, Weights: "w-b", Data: "d-b"}})
	f.apply(event.Envelope{Seq: 2, Kind: event.KindPool, Agg: pool.ID, Data: &pool.ModelDeployed{Model: "a", Version: 1, Weights: "list", Data: "d-a",
		Members: []pool.Member{{Number: 1, Weights: "w-1"}, {Number: 2, Weights: "w-2"}}}})
	want := []domain.Digest{"d-a", "w-1", "w-2", "d-b", "w-b"}
	if got := f.deployed(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for range pool.MaxVersions {
		f.apply(event.Envelope{Seq: 3, Kind: event.KindPool, Agg: pool.ID, Data: &pool.ModelDeployed{Model: "b", Version: 2, Weights: "new", Data: "d-b"}})
	}
	if slices.Contains(f.deployed(), "w-b") {
		t.Error("a forgotten version keeps its weights")
	}
}
