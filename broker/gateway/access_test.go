package gateway_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/pool"
)

// Every route with every caller: who gets in, and what the others are told.
func TestWhoReachesWhat(t *testing.T) {
	r := newRig(t, func(c *gateway.Config) { past(t, c.Log, deployed("digits", 1, "r-0")) })
	part := []byte("part")
	d := string(blob.Sum(part))
	live, _ := r.enrol("live")
	gone, goneID := r.enrol("gone")
	r.api(http.MethodPost, "/api/v1/machines/"+string(goneID)+"/revoke", gateway.Reasoned{Reason: "sold"}, nil)
	callers := []struct{ name, key string }{
		{"nobody", ""}, {"wrong key", strings.Repeat("x", len(r.key))}, {"operator", r.key},
		{"machine", r.proof(live, identity.AudienceBlobs, time.Now())},
		{"expired", r.proof(live, identity.AudienceBlobs, time.Now().Add(-identity.ProofLife-2*identity.ProofSkew))},
		{"other purpose", r.proof(live, identity.AudienceEnrol, time.Now())},
		{"stranger", r.proof(r.nkey(), identity.AudienceBlobs, time.Now())},
		{"revoked", r.proof(gone, identity.AudienceBlobs, time.Now())},
	}
	callers = append(callers, struct{ name, key string }{"renewer", r.proof(live, identity.AudienceRenew, time.Now())},
		struct{ name, key string }{"looker", r.proof(live, identity.AudienceSelf, time.Now())})
	r.api("POST", "/api/v1/runs", r.submission("r-1"), nil)
	r.api("POST", "/api/v1/runs", r.submission("r-2"), nil)
	sly := r.submission("r-3")
	sly["spec"].(map[string]any)["name"] = "r-1/x" // found by a name that begins as another's id does
	r.api("POST", "/api/v1/runs", sly, nil)
	for name, in := range map[string]gateway.CreateKey{"operator's key": {Role: pool.RoleOperator}, "observer": {Role: pool.RoleObserver},
		"observer of r-1": {Role: pool.RoleObserver, Run: "r-1"}, "model key": {Model: "digits"}, "revoked key": {Role: pool.RoleOperator}} {
		k := r.newKey(in)
		if name == "revoked key" {
			r.api("DELETE", "/api/v1/keys/"+string(k.ID), nil, nil)
		}
		callers = append(callers, struct{ name, key string }{name, k.Secret})
	}
	const open, blobs, own, renew, self, read, readRun, readAny = "open", "blobs", "operator", "renew", "self", "observer", "observer of r-1", "observers of anything"
	for _, route := range []struct{ who, method, path, body string }{
		{open, "GET", "/healthz", ""}, {open, "GET", "/install", ""}, {open, "GET", "/install/tensorturn", ""}, {open, "GET", "/install/ca.pem", ""},
		{open, "POST", "/api/v1/enrol", "{}"}, {open, "GET", "/nats", ""}, {open, "GET", "/nats/leafnode", ""}, {open, "GET", "/nothing", ""}, {open, "POST", "/healthz", ""},
		{open, "POST", "/api/v1/enrol/check", "{}"}, {renew, "POST", "/api/v1/renew", ""}, {self, "GET", "/api/v1/self", ""},
		{blobs, "POST", "/blobs/missing", `{"digests":[]}`}, {blobs, "HEAD", "/blobs/" + d, ""}, {blobs, "GET", "/blobs/" + d, ""}, {blobs, "PUT", "/blobs/" + d, string(part)},
		{blobs, "HEAD", "/link", ""}, {blobs, "GET", "/link?bytes=9", ""}, {blobs, "PUT", "/link", "bytes"},
		{readAny, "GET", "/api/v1/runs", ""}, {own, "POST", "/api/v1/runs", "{}"}, {readAny, "GET", "/api/v1/runs/r-1", ""}, {readAny, "GET", "/api/v1/runs/r-1/events", ""},
		{read, "GET", "/api/v1/runs/r-2", ""}, {read, "GET", "/api/v1/runs/r-2/events", ""}, {read, "GET", "/api/v1/runs/r", ""}, {read, "GET", "/api/v1/runs/none", ""},
		{read, "GET", "/api/v1/runs/r-1%2f..%2fr-2", ""}, {read, "GET", "/api/v1/runs/r-1%2fx", ""}, {read, "GET", "/api/v1/runs/r-1%2fx/events", ""},
		{own, "POST", "/api/v1/runs/explain", "{}"}, {own, "GET", "/api/v1/runs/r-1/explain", ""}, {own, "GET", "/api/v1/runs/r-2/explain?hub_up=1e6", ""}, {own, "GET", "/api/v1/runs/r-1/logs", ""}, {own, "GET", "/api/v1/runs/r-2/logs", ""}, {own, "GET", "/api/v1/runs/r-1/logs?bytes=99999", ""},
		{own, "GET", "/api/v1/keys", ""}, {own, "POST", "/api/v1/keys", `{"role":"king"}`}, {own, "DELETE", "/api/v1/keys/k-1", ""},
		{read, "GET", "/api/v1/models", ""}, {read, "GET", "/api/v1/models/digits", ""}, {own, "POST", "/api/v1/models", `{"run":"none","name":"x"}`},
		{own, "POST", "/api/v1/models/none/rollback", ""}, {own, "DELETE", "/api/v1/models/none", ""},
		{own, "POST", "/api/v1/runs/r-1/cancel", ""}, {own, "POST", "/api/v1/runs/r-1/pause", ""}, {own, "POST", "/api/v1/runs/r-1/resume", ""},
		{read, "GET", "/api/v1/machines", ""}, {read, "GET", "/api/v1/machines/m", ""}, {own, "POST", "/api/v1/machines/m/drain", ""},
		{own, "POST", "/api/v1/machines/m/pause", ""}, {own, "POST", "/api/v1/machines/m/unpause", ""}, {own, "POST", "/api/v1/machines/m/label", "{}"}, {own, "POST", "/api/v1/machines/m/bench", ""}, {own, "POST", "/api/v1/machines/m/rest", "{}"},
		{own, "POST", "/api/v1/machines/m/resume", ""}, {own, "POST", "/api/v1/machines/m/revoke", ""},
		{own, "GET", "/api/v1/tokens", ""}, {own, "POST", "/api/v1/tokens", `{"uses":-1}`}, {own, "DELETE", "/api/v1/tokens/t-1", ""},
		{own, "GET", "/api/v1/observers", ""}, {own, "POST", "/api/v1/observers", "{}"}, {own, "DELETE", "/api/v1/observers/o-1", ""},
		{readAny, "GET", "/api/v1/events?after=x", ""}, {read, "GET", "/api/v1/events?after=x&run=r-2", ""},
		{readAny, "GET", "/api/v1/events/schemas", ""}, {readAny, "GET", "/api/v1/events/asyncapi.json", ""}, {read, "GET", "/metrics", ""},
		{read, "GET", "/api/v1/usage", ""}, {readAny, "GET", "/api/v1/runs/r-1/replay", ""}, {readAny, "GET", "/api/v1/runs/r-1/lineage", ""}, {readAny, "GET", "/api/v1/runs/r-1/members", ""}, {read, "GET", "/api/v1/runs/r-2/members", ""}, {read, "GET", "/api/v1/runs/r-2/replay", ""}, {own, "GET", "/api/v1/log", ""}, {own, "GET", "/api/v1/runs/none/export", ""}, {own, "GET", "/api/v1/runs/r-2/export", ""}, {own, "GET", "/api/v1/hub", ""}, {own, "POST", "/api/v1/log/verify", ""}, {readAny, "GET", "/api/v1/openapi.json", ""}, {readAny, "GET", "/api/v1/schemas/RunSpec.json", ""},
	} {
		for _, c := range callers {
			a := r.call(route.method, route.path, c.key, route.body)
			what := route.method + " " + route.path + " by " + c.name
			in := route.who == open || (c.name == "operator" || c.name == "operator's key") && route.who != renew && route.who != self || route.who == blobs && c.name == "machine" ||
				route.who == renew && c.name == "renewer" || route.who == self && c.name == "looker" || (route.who == read || route.who == readAny) && c.name == read || route.who == readAny && c.name == readRun
			// A good key for something else is told so; a run that its observer may not know looks like one that is not there.
			good := c.name == read || c.name == readRun || c.name == "model key"
			hidden := c.name == readRun && route.who == read && (strings.HasPrefix(route.path, "/api/v1/runs/") || strings.Contains(route.path, "run=r-2"))
			switch {
			case in && (a.status == http.StatusUnauthorized || a.status == http.StatusForbidden):
				t.Errorf("%s: %d %s", what, a.status, a.body)
			case !in && hidden && a.status != http.StatusNotFound:
				t.Errorf("%s: %d %s", what, a.status, a.body)
			case !in && !hidden && good && route.who != renew && route.who != self && a.status != http.StatusForbidden:
				t.Errorf("%s: %d %s", what, a.status, a.body)
			case !in && (!good || route.who == renew || route.who == self) && a.status != http.StatusUnauthorized:
				t.Errorf("%s: %d %s", what, a.status, a.body)
			}
			if a.status >= 500 && !strings.HasPrefix(route.path, "/nats") {
				t.Errorf("%s: %d %s", what, a.status, a.body)
			}
			if a.status == http.StatusUnauthorized && a.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s: no challenge", what)
			}
			if a.status >= 400 && route.method != "HEAD" {
				if p := a.refused(t, a.status, kindOf(a.status), ""); !in && p.Next == "" {
					t.Errorf("%s: no hint", what)
				}
			}
			if a.header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: a browser may guess its type", what)
			}
		}
	}
}

// kindOf is the table of statuses as a client reads it.
func kindOf(status int) domain.Kind {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return domain.KindDenied
	case http.StatusNotFound:
		return domain.KindNotFound
	case http.StatusConflict:
		return domain.KindConflict
	}
	return domain.KindInvalid
}

func TestHealthAndInstall(t *testing.T) {
	r := newRig(t, nil)
	if a := r.call("GET", "/healthz", "", nil); string(a.body) != "ready\n" {
		t.Errorf("health: %s", a.body)
	}
	script := string(r.call("GET", "/install", "", nil).body)
	if strings.Contains(script, "$(rm") || !strings.Contains(script, "https://"+r.addr+"/install/tensorturn") ||
		!strings.Contains(script, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855") {
		t.Errorf("script:\n%s", script)
	}
	if ca := r.call("GET", "/install/ca.pem", "", nil); string(ca.body) != string(r.keys.CA()) {
		t.Errorf("CA: %s", ca.body)
	}
	r.log.Corrupt(1, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	var v gateway.Verified
	r.api("POST", "/api/v1/log/verify", nil, &v)
	if v.OK || v.FirstBad != 1 || v.Reason == "" {
		t.Errorf("verify: %+v", v)
	}
}
