package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/projections/fleet"
)

// A machine is told about itself, of a second process with its key too, and so is the operator.
func TestSelf(t *testing.T) {
	r := newRig(t, nil)
	key, id := r.enrol("box")
	_, other := r.enrol("other")
	look := func() (s gateway.SelfReply) {
		t.Helper()
		a := r.call("GET", "/api/v1/self", r.proof(key, identity.AudienceSelf, time.Now()), nil)
		if a.status != http.StatusOK || json.Unmarshal(a.body, &s) != nil {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return s
	}
	if s := look(); s.Machine != id || s.Contested || s.Standing == "" {
		t.Errorf("%+v", s)
	}
	speak := func(inc string, n uint64) {
		_, _ = r.service.Sync(context.Background(), id, wire.SyncRequest{Version: wire.Version, Incarnation: domain.Incarnation(inc), Counter: n, Slots: make([]wire.SlotReport, 1)})
	}
	speak("first", 1)
	speak("second", 1)
	for n := range uint64(3) {
		speak("first", n+2)
	}
	if s := look(); !s.Contested {
		t.Errorf("two processes speak: %+v", s)
	}
	for _, m := range r.machines() {
		if m.Contested != (m.ID == id) || m.ID != id && m.ID != other {
			t.Errorf("machine %s: contested %v", m.ID, m.Contested)
		}
	}
	r.api(http.MethodPost, "/api/v1/machines/"+string(id)+"/revoke", gateway.Reasoned{}, nil)
	if a := r.call("GET", "/api/v1/self", r.proof(key, identity.AudienceSelf, time.Now()), nil); a.status != http.StatusForbidden || !strings.Contains(string(a.body), "revoked") {
		t.Errorf("a revoked machine is told %d %s", a.status, a.body)
	}
}

// Asking about a token uses nothing of it, and tells what enrolling would.
func TestCheckToken(t *testing.T) {
	r := newRig(t, nil)
	good := r.token(gateway.CreateToken{})
	check := func(token string) answer {
		return r.call("POST", "/api/v1/enrol/check", "", gateway.TokenCheck{Token: token})
	}
	for range 3 {
		if a := check(good.Token); a.status != http.StatusNoContent {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	q := gateway.EnrolRequest{Token: good.Token, Name: "box", Slots: 1, Proof: r.proof(r.nkey(), identity.AudienceEnrol, time.Now())}
	if a := r.call("POST", "/api/v1/enrol", "", q); a.status != http.StatusOK {
		t.Fatalf("a token that was asked about enrols nobody: %d %s", a.status, a.body)
	}
	real, err := identity.ParseToken(good.Token)
	r.must(err)
	forged, err := identity.NewToken(strings.NewReader(strings.Repeat("forged", 20)), real.Pin())
	r.must(err)
	for name, c := range map[string]struct{ token, why string }{
		"used up": {good.Token, "used up"}, "unknown": {forged.Plain(), "not known"}, "cut": {good.Token[:50], "truncated"},
	} {
		if a := check(c.token); a.status < 400 || a.status >= 500 || !strings.Contains(string(a.body), c.why) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

// telling has every machine say the same of itself.
type telling struct {
	gateway.Agents
	said *wire.Telemetry
}

func (a telling) Telemetry(domain.MachineID) (wire.Telemetry, bool) { return *a.said, true }

// One GPU of a machine is paused by what the machine has said of its cards.
func TestPauseOfOneGPU(t *testing.T) {
	said := &wire.Telemetry{}
	r := newRig(t, func(c *gateway.Config) { c.Agents = telling{c.Agents, said} })
	_, id := r.enrol("box")
	_, err := r.service.Sync(t.Context(), id, wire.SyncRequest{Version: wire.Version, Incarnation: "first", Counter: 1, Slots: make([]wire.SlotReport, 1)})
	r.must(err)
	pause := func(gpu int) answer {
		return r.call(http.MethodPost, "/api/v1/machines/box/pause", r.key, gateway.PauseRequest{GPU: &gpu})
	}
	pause(3).refused(t, http.StatusNotFound, domain.KindNotFound, "as far as the machine has said")
	said.Vitals = &machine.Vitals{GPUs: []machine.GPU{{UUID: "GPU-a", Index: 3}}, SlotGPUs: []string{"GPU-a"}}
	pause(0).refused(t, http.StatusNotFound, domain.KindNotFound, "gpu 0")
	var m fleet.Machine
	if a := pause(3); a.status != http.StatusOK || json.Unmarshal(a.body, &m) != nil || len(m.Slots) != 1 || m.Slots[0].Paused == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
}
