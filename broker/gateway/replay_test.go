package gateway_test

import (
	"strconv"
	"testing"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/projections/replay"
)

// The story of a run, the run at a point, and what changed between two, as the command line tells them from the same log.
func TestReplay(t *testing.T) {
	r := newRig(t, nil)
	r.api("POST", "/api/v1/runs", r.submission("r-1"), nil)
	submitted := r.end()
	r.api("POST", "/api/v1/runs/r-1/pause", gateway.Reasoned{Reason: "lunch"}, nil)
	r.api("POST", "/api/v1/runs", r.submission("r-2"), nil)
	r.api("POST", "/api/v1/runs/r-1/cancel", nil, nil)
	var story, point, change gateway.Replayed
	if r.api("GET", "/api/v1/runs/r-1/replay", nil, &story); len(story.Story) != 3 || story.Story[0].Seq != submitted || story.Story[1].Name != run.NamePaused || story.At != nil {
		t.Errorf("%+v", story)
	}
	if r.api("GET", "/api/v1/runs/r-1/replay?at="+itoa(submitted), nil, &point); point.At == nil || point.At.Seq != submitted || point.Story != nil {
		t.Errorf("%+v", point)
	}
	r.api("GET", "/api/v1/runs/r-1/replay?at="+itoa(submitted)+"&diff="+itoa(r.end()), nil, &change)
	if change.To == nil || len(change.Changes) == 0 {
		t.Errorf("%+v", change)
	}
	var lineage []replay.Ancestor
	if r.api("GET", "/api/v1/runs/r-1/lineage", nil, &lineage); lineage == nil || len(lineage) != 0 {
		t.Errorf("%+v", lineage)
	}
	r.call("GET", "/api/v1/runs/r-1/replay?diff=3", r.key, nil).refused(t, 400, domain.KindInvalid, "nothing to differ from")
	r.call("GET", "/api/v1/runs/r-1/replay?at=99", r.key, nil).refused(t, 404, domain.KindNotFound, "")
	r.call("GET", "/api/v1/runs/none/replay", r.key, nil).refused(t, 404, domain.KindNotFound, "no such run")
	r.log.Corrupt(2, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	r.call("GET", "/api/v1/runs/r-1/replay", r.key, nil).refused(t, 502, domain.KindIntegrity, "2")
}

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }
