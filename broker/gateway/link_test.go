package gateway_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"tensorturn/agent"
	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/projections/fleet"
)

func TestLinkMovesBytesThatNobodyKeeps(t *testing.T) {
	r := newRig(t, nil)
	key, _ := r.enrol("box")
	blobs, err := agent.NewHTTPBlobs("https://"+r.addr, r.http, func() (string, error) { return r.proof(key, identity.AudienceBlobs, time.Now()), nil })
	r.must(err)
	l := agent.NewLink(blobs)
	r.must(l.Trip(t.Context()))
	for _, n := range []int{1, 64<<10 + 1, domain.MaxPartBytes} {
		r.must(l.Send(t.Context(), n))
		r.must(l.Fetch(t.Context(), n))
	}
	proof := r.proof(key, identity.AudienceBlobs, time.Now())
	for _, ask := range []string{"", "?bytes=-1", "?bytes=x", "?bytes=8388609"} {
		if a := r.call(http.MethodGet, "/link"+ask, proof, ""); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d", ask, a.status)
		}
	}
	if a := r.call(http.MethodPut, "/link", proof, strings.Repeat("x", domain.MaxPartBytes+1)); a.status != http.StatusBadRequest {
		t.Errorf("too many bytes: %d", a.status)
	}
}

// Two machines measure at a time; a third is told to come again, and may when one has ended.
func TestFewMeasureAtATime(t *testing.T) {
	r := newRig(t, nil)
	key, _ := r.enrol("box")
	proof := r.proof(key, identity.AudienceBlobs, time.Now())
	var ends []func()
	for range 2 {
		from, to := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://"+r.addr+"/link", from)
		r.must(err)
		req.ContentLength = 2
		req.Header.Set("Authorization", "Bearer "+proof)
		over := make(chan error, 1)
		go func() {
			resp, err := r.http.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			over <- err
		}()
		_, err = to.Write([]byte("a"))
		r.must(err)
		ends = append(ends, func() { to.Write([]byte("b")); to.Close(); r.must(<-over) })
	}
	full := func() bool {
		return r.call(http.MethodHead, "/link", proof, "").status == http.StatusServiceUnavailable
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for !full() { // the requests above are on their way
		r.must(ctx.Err())
	}
	ends[0]()
	for full() {
		r.must(ctx.Err())
	}
	ends[1]()
}

func TestAMachineIsMeasuredOnDemand(t *testing.T) {
	r := newRig(t, nil)
	r.enrol("box")
	var m fleet.Machine
	r.api(http.MethodPost, "/api/v1/machines/box/bench", gateway.BenchRequest{Reason: "new cooler", Anew: true}, &m)
	if m.BenchWanted != 0 || m.Bench != nil {
		t.Errorf("a machine that was never online: %+v", m)
	}
	all := r.stream("")
	newest := all[len(all)-1]
	e, err := event.Decode(registry(), newest.Seq, newest.Data)
	r.must(err)
	if asked, ok := e.Data.(*machine.BenchAsked); !ok || !asked.Anew || asked.Number != 2 || asked.Reason != "new cooler" || e.Actor != "operator" {
		t.Errorf("%+v", e)
	}
}
