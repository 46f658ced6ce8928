package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"tensorturn/domain/machine"
	"tensorturn/projections/fleet"
)

// Whoever waits for figures hears what the machine waits for, once for each reason, and how it stands at the end. A machine that was never
// online is waited for too.
func TestBenchWaits(t *testing.T) {
	const loaded = "other programs use 93 % of the CPU"
	states := []fleet.Machine{{}, {BenchWanted: 1}, {BenchWanted: 1, Unmeasured: loaded}, {BenchWanted: 1, Unmeasured: loaded}, {Bench: &machine.Bench{}}}
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		m := states[min(asked, len(states)-1)]
		m.ID, m.Name = "box-1", "box"
		asked++
		if err := json.NewEncoder(w).Encode(m); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	cl := &client{ctx: operatorContext{URL: s.URL}, http: s.Client()}
	var said bytes.Buffer
	a := &app{terminal: &terminal{out: &bytes.Buffer{}, err: &said, size: func() int { return 80 }}}
	m, err := a.awaitBench(t.Context(), cl, fleet.Machine{ID: "box-1", Name: "box"}, time.Minute, time.Millisecond)
	if err != nil || m.Bench == nil || asked != len(states) {
		t.Fatalf("%+v after %d looks, %v", m, asked, err)
	}
	if want := "box (box-1) waits: " + loaded + "\n"; said.String() != want {
		t.Errorf("said %q, want %q", said.String(), want)
	}
	if got := benchWaits(states[2]); got != "later, tried again every minute: "+loaded {
		t.Errorf("a machine that has tried is measured %q", got)
	}
}
