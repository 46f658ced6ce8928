package gateway_test

import (
	"testing"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/projections/fleet"
	"tensorturn/projections/runs"
)

// A run is found by its id, its name when no other has it, or the beginning of its id; the refusal speaks of what was
// asked for and names the candidates.
func TestRunsAreFound(t *testing.T) {
	r := newRig(t, nil)
	r.api("POST", "/api/v1/runs", r.submission("first-11"), nil)
	for _, key := range []string{"first-11", "digits", "fir"} {
		var got runs.Run
		r.api("GET", "/api/v1/runs/"+key, nil, &got)
		if got.ID != "first-11" {
			t.Errorf("%s: %q", key, got.ID)
		}
	}
	if e, err := r.events("fir", 0, 0); err != nil || len(e.Lines) == 0 {
		t.Errorf("the events of fir: %+v %v", e, err)
	}
	r.api("POST", "/api/v1/runs", r.submission("first-12"), nil)
	r.call("GET", "/api/v1/runs/digits", r.key, nil).refused(t, 409, domain.KindConflict, "show run digits: 2 runs may be meant: first-11, first-12")
	r.call("POST", "/api/v1/runs/first/cancel", r.key, nil).refused(t, 409, domain.KindConflict, "cancel run first: 2 runs may be meant")
	r.call("POST", "/api/v1/runs/nope/pause", r.key, nil).refused(t, 404, domain.KindNotFound, "pause run nope: there is no such run")
	r.call("GET", "/api/v1/events?follow=false&run=nope", r.key, nil).refused(t, 404, domain.KindNotFound, "read events of run nope: there is no such run")
	r.api("POST", "/api/v1/runs/first-12/cancel", gateway.Reasoned{}, nil)
	r.call("GET", "/api/v1/runs/digits", r.key, nil).refused(t, 409, domain.KindConflict, "first-12") // an ended run keeps its name
	for range 9 {
		r.api("POST", "/api/v1/runs", r.submission(""), nil)
	}
	r.call("GET", "/api/v1/runs/digits", r.key, nil).refused(t, 409, domain.KindConflict, "and 3 more")
}

func TestMachinesAreFound(t *testing.T) {
	r := newRig(t, nil)
	_, id := r.enrol("laptop")
	var m fleet.Machine
	r.api("GET", "/api/v1/machines/lap", nil, &m)
	if m.ID != id {
		t.Errorf("lap is %q", m.ID)
	}
	r.call("POST", "/api/v1/machines/nobody/drain", r.key, nil).refused(t, 404, domain.KindNotFound, "drain machine nobody: there is no such machine")
	r.api("POST", "/api/v1/machines/"+string(id)+"/revoke", nil, nil)
	r.call("GET", "/api/v1/machines/lap", r.key, nil).refused(t, 404, domain.KindNotFound, "there is no such machine")
}
