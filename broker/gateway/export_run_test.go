package gateway_test

import (
	"bytes"
	"crypto/ed25519"
	"testing"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/projections/archive"
)

// TestExport: what the hub streams is verified by its public key alone, and holds the run and nothing of another.
func TestExport(t *testing.T) {
	r := newRig(t, nil)
	public := r.keys.Head().Public().(ed25519.PublicKey)
	r.api("POST", "/api/v1/runs", r.submission("r-1"), nil)
	r.api("POST", "/api/v1/runs", r.submission("r-2"), nil)
	for _, id := range []string{"r-1", "r-2", "r-1"} {
		r.api("POST", "/api/v1/runs/"+id+"/pause", gateway.Reasoned{Reason: "because of " + id}, nil)
		r.api("POST", "/api/v1/runs/"+id+"/resume", gateway.Reasoned{}, nil)
	}
	a := r.call("GET", "/api/v1/runs/r-1/export", r.key, "")
	if a.status != 200 || a.header.Get(gateway.HeaderKey) == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	f, err := archive.Open(bytes.NewReader([]byte(a.body)), public, registry())
	r.must(err)
	if f.Run != "r-1" || f.Records != 5 || f.Hidden == 0 || f.Log.State() == nil || f.EventsOnly {
		t.Errorf("%+v", f.Summary)
	}
	if bytes.Contains([]byte(a.body), []byte("because of r-2")) || !bytes.Contains([]byte(a.body), []byte("because of r-1")) {
		t.Error("the file holds another run's records, or not its own")
	}
	if _, err := archive.Open(bytes.NewReader([]byte(a.body)), make(ed25519.PublicKey, 32), registry()); domain.KindOf(err) != domain.KindIntegrity {
		t.Errorf("by another key: %v", err)
	}
	a = r.call("GET", "/api/v1/runs/r-1/export?events_only=true", r.key, "")
	f, err = archive.Open(bytes.NewReader([]byte(a.body)), public, registry())
	r.must(err)
	if !f.EventsOnly || f.Objects != 0 {
		t.Errorf("events only: %+v", f.Summary)
	}
	r.call("GET", "/api/v1/runs/none/export", r.key, "").refused(t, 404, domain.KindNotFound, "")
}
