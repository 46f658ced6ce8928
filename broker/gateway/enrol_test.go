package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/projections/fleet"
)

func (r *rig) machines() []fleet.Machine {
	r.t.Helper()
	var ms []fleet.Machine
	r.api("GET", "/api/v1/machines", nil, &ms)
	return ms
}

// join asks n times at once, each with the request that ask makes, and sorts the answers.
func (r *rig) join(n int, ask func(i int) gateway.EnrolRequest) (joined []gateway.EnrolReply, refused []answer) {
	r.t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range n {
		q := ask(i)
		wg.Go(func() {
			a, err := r.send("POST", "/api/v1/enrol", "", q)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				r.t.Error(err)
			} else if a.status != http.StatusOK {
				refused = append(refused, a)
			} else {
				var reply gateway.EnrolReply
				if err := json.Unmarshal(a.body, &reply); err != nil {
					r.t.Error(err)
				}
				joined = append(joined, reply)
			}
		})
	}
	wg.Wait()
	return joined, refused
}

// A token of one use admits one of fifty machines that come at once.
func TestOneUseIsOneMachine(t *testing.T) {
	r := newRig(t, nil)
	token := r.token(gateway.CreateToken{})
	joined, refused := r.join(50, func(i int) gateway.EnrolRequest {
		return gateway.EnrolRequest{Token: token.Token, Name: fmt.Sprint("box", i), Slots: 1, Proof: r.proof(r.nkey(), identity.AudienceEnrol, time.Now())}
	})
	if len(joined) != 1 || len(refused) != 49 || len(r.machines()) != 1 {
		t.Errorf("%d joined, %d refused, %d machines", len(joined), len(refused), len(r.machines()))
	}
	for _, a := range refused {
		a.refused(t, http.StatusForbidden, domain.KindDenied, "used up")
	}
}

// The same machine asking twenty times at once is one machine and one use; so it is when its answer was lost.
func TestSameKeyIsOneMachine(t *testing.T) {
	r := newRig(t, nil)
	token, kp := r.token(gateway.CreateToken{}), r.nkey()
	ask := func(int) gateway.EnrolRequest {
		return gateway.EnrolRequest{Token: token.Token, Name: "box", Slots: 2, Proof: r.proof(kp, identity.AudienceEnrol, time.Now())}
	}
	joined, refused := r.join(20, ask)
	again, _ := r.join(1, ask)
	if len(joined) != 20 || len(refused) != 0 || len(again) != 1 || len(r.machines()) != 1 {
		t.Fatalf("%d joined, %d refused, %d machines", len(joined), len(refused), len(r.machines()))
	}
	m := r.machines()[0]
	for _, reply := range append(joined, again...) {
		if reply.Machine != m.ID || reply.CA != string(r.keys.CA()) || string(reply.HeadKey) != "head" {
			t.Errorf("reply %+v", reply)
		}
		if v, err := identity.ReadValidity(reply.Credential); err != nil || v.Expires.Sub(v.Issued) > identity.CredentialLife+time.Minute {
			t.Errorf("credential: %+v %v", v, err)
		}
	}
	if m.Name != "box" || len(m.Slots) != 2 || m.Standing != machine.Enrolled {
		t.Errorf("machine %+v", m)
	}
}

func TestWhoMayNotEnrol(t *testing.T) {
	r := newRig(t, nil)
	good, kp := r.token(gateway.CreateToken{Uses: 3}), r.nkey()
	revoked, short := r.token(gateway.CreateToken{}), r.token(gateway.CreateToken{Seconds: 60})
	r.api("DELETE", "/api/v1/tokens/"+string(revoked.ID), nil, nil)
	foreign, err := identity.NewToken(strings.NewReader(strings.Repeat("somebody else's ", 16)), r.keys.Pin())
	r.must(err)
	proof := r.proof(kp, identity.AudienceEnrol, time.Now())
	mistyped := good.Token[:10] + string(good.Token[10]^1) + good.Token[11:]
	made := r.made.Load()
	for name, c := range map[string]struct {
		token, name, proof, text string
		slots, status            int
		kind                     domain.Kind
	}{
		"no token":           {"", "box", proof, "not a join token", 1, 400, domain.KindInvalid},
		"mistyped":           {mistyped, "box", proof, "mistyped", 1, 400, domain.KindInvalid},
		"operator key":       {r.key, "box", proof, "it is an operator key", 1, 400, domain.KindInvalid},
		"foreign token":      {foreign.Plain(), "box", proof, "not known", 1, 403, domain.KindDenied},
		"revoked token":      {revoked.Token, "box", proof, "revoked", 1, 403, domain.KindDenied},
		"no proof":           {good.Token, "box", "", "not a proof", 1, 403, domain.KindDenied},
		"proof for blobs":    {good.Token, "box", r.proof(kp, identity.AudienceBlobs, time.Now()), "another purpose", 1, 403, domain.KindDenied},
		"old proof":          {good.Token, "box", r.proof(kp, identity.AudienceEnrol, time.Now().Add(-time.Hour)), "expired", 1, 403, domain.KindDenied},
		"no slots":           {good.Token, "box", proof, "slots", 0, 400, domain.KindInvalid},
		"too many slots":     {good.Token, "box", proof, "slots", domain.MaxSlotsPerMachine + 1, 400, domain.KindInvalid},
		"no name":            {good.Token, "", proof, "name", 1, 400, domain.KindInvalid},
		"long name":          {good.Token, strings.Repeat("x", domain.MaxNameLength+1), proof, "name", 1, 400, domain.KindInvalid},
		"escape in the name": {good.Token, "box\x1b[2J", proof, "name", 1, 400, domain.KindInvalid},
		"C1 in the name":     {good.Token, "box\u009b2J", proof, "name", 1, 400, domain.KindInvalid},
		"bidi in the name":   {good.Token, "box\u202eexe", proof, "name", 1, 400, domain.KindInvalid},
		"line in the name":   {good.Token, "box\nroot", proof, "name", 1, 400, domain.KindInvalid},
	} {
		a := r.call("POST", "/api/v1/enrol", "", gateway.EnrolRequest{Token: c.token, Name: c.name, Slots: c.slots, Proof: c.proof})
		if p := a.refused(t, c.status, c.kind, c.text); c.token != "" && strings.Contains(p.Detail+p.Next, c.token[4:]) {
			t.Errorf("%s: the answer repeats the secret", name)
		}
	}
	r.clock.Store(int64(61 * time.Second))
	r.call("POST", "/api/v1/enrol", "", gateway.EnrolRequest{Token: short.Token, Name: "box", Slots: 1, Proof: proof}).refused(t, 403, domain.KindDenied, "expired")
	if n := r.made.Load() - made; n != 0 || len(r.machines()) != 0 {
		t.Errorf("refused machines left %d accounts and %d machines", n, len(r.machines()))
	}
	if strings.Contains(r.logged.String(), good.Token[4:34]) {
		t.Error("the log holds a token's secret")
	}
}

func TestRevokedKeyStaysOut(t *testing.T) {
	r := newRig(t, nil)
	kp, id := r.enrol("box")
	r.api("POST", "/api/v1/machines/box/revoke", gateway.Reasoned{Reason: "sold"}, nil)
	q := gateway.EnrolRequest{Token: r.token(gateway.CreateToken{}).Token, Name: "box", Slots: 1, Proof: r.proof(kp, identity.AudienceEnrol, time.Now())}
	r.call("POST", "/api/v1/enrol", "", q).refused(t, 403, domain.KindDenied, "revoked")
	if _, other := r.enrol("box"); other == id {
		t.Error("a revoked id is used again")
	}
}

func TestEnrolmentIsPacedAndBounded(t *testing.T) {
	r := newRig(t, nil)
	r.call("POST", "/api/v1/enrol", "", `{"token":"`+strings.Repeat("x", 16<<10)+`"}`).refused(t, 400, domain.KindInvalid, "not what an agent sends")
	r.call("POST", "/api/v1/enrol", "", "not json").refused(t, 400, domain.KindInvalid, "not what an agent sends")
	for range 1000 {
		a := r.call("POST", "/api/v1/enrol", "", "{}")
		if a.status == http.StatusServiceUnavailable {
			a.refused(t, 503, domain.KindUnavailable, "too many enrolments")
			if a.header.Get("Retry-After") == "" {
				t.Error("nobody says when to come again")
			}
			r.enrol("box") // whoever is invited is not kept out
			return
		}
	}
	t.Error("a thousand enrolments in a row are not slowed")
}

// A machine whose credential has expired comes back by proof of its key alone, until it is revoked.
func TestRenewByProof(t *testing.T) {
	r := newRig(t, nil)
	kp, id := r.enrol("box")
	ask := func() answer {
		return r.call("POST", "/api/v1/renew", r.proof(kp, identity.AudienceRenew, time.Now()), nil)
	}
	var reply gateway.RenewReply
	r.must(json.Unmarshal(ask().body, &reply))
	if v, err := identity.ReadValidity(reply.Credential); err != nil || v.Over(time.Now()) || v.HalfOver(time.Now()) {
		t.Errorf("%+v %v", v, err)
	}
	r.api("POST", "/api/v1/machines/"+string(id)+"/revoke", nil, nil)
	ask().refused(t, 403, domain.KindDenied, "revoked") // only who holds the key is told
}

// Whoever joins under a name that another machine has hears of it; a revoked one, or one whose id only begins so, is no namesake.
func TestNamesake(t *testing.T) {
	r := newRig(t, nil)
	join := func(name string) gateway.EnrolReply {
		t.Helper()
		joined, refused := r.join(1, func(int) gateway.EnrolRequest {
			return gateway.EnrolRequest{Token: r.token(gateway.CreateToken{}).Token, Name: name, Slots: 1, Proof: r.proof(r.nkey(), identity.AudienceEnrol, time.Now())}
		})
		if len(joined) != 1 {
			t.Fatalf("%s: %v", name, refused)
		}
		return joined[0]
	}
	join("laptop")
	if first := join("lap"); first.Namesake != "" {
		t.Errorf("lap is told of %s", first.Namesake)
	}
	old := join("box")
	if second := join("box"); second.Namesake != old.Machine {
		t.Errorf("a second box is told of %q, want %q", second.Namesake, old.Machine)
	} else {
		r.api(http.MethodPost, "/api/v1/machines/"+string(second.Machine)+"/revoke", gateway.Reasoned{}, &fleet.Machine{})
	}
	r.api(http.MethodPost, "/api/v1/machines/"+string(old.Machine)+"/revoke", gateway.Reasoned{}, &fleet.Machine{})
	if third := join("box"); third.Namesake != "" {
		t.Errorf("two revoked ones, and it is told of %s", third.Namesake)
	}
}
