package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/pool"
	"tensorturn/projections/keys"
	"tensorturn/projections/runs"
)

// A key is shown once, found by its hash, listed without its secret, and worthless from the moment its revocation is answered.
func TestKeyLife(t *testing.T) {
	r := newRig(t, nil)
	k := r.newKey(gateway.CreateKey{Role: pool.RoleOperator, Name: "ci"})
	if !strings.HasPrefix(k.Secret, "tto_") || !strings.HasSuffix(k.Secret, k.Tail) || k.Name != "ci" || k.Expires.Sub(k.Created) < 89*24*time.Hour {
		t.Errorf("%+v", k)
	}
	list := r.call("GET", "/api/v1/keys", k.Secret, nil)
	var ks []keys.Key
	r.must(json.Unmarshal(list.body, &ks))
	if len(ks) != 1 || ks[0].ID != k.ID || strings.Contains(string(list.body), k.Secret[4:30]) || strings.Contains(string(list.body), "hash") {
		t.Errorf("%s", list.body)
	}
	r.clock.Store(int64(91 * 24 * time.Hour))
	r.call("GET", "/api/v1/runs", k.Secret, nil).refused(t, 401, domain.KindDenied, "expired")
	r.clock.Store(0)
	r.api("DELETE", "/api/v1/keys/"+string(k.ID), nil, nil)
	r.call("GET", "/api/v1/runs", k.Secret, nil).refused(t, 401, domain.KindDenied, "was revoked")
	wrong := k.Secret[:10] + "zzz" + k.Secret[13:]
	r.call("GET", "/api/v1/runs", wrong, nil).refused(t, 401, domain.KindDenied, "not known")
	r.call("GET", "/api/v1/runs", "letmein", nil).refused(t, 401, domain.KindDenied, "not a key")
	r.call("GET", "/api/v1/runs", "", nil).refused(t, 401, domain.KindDenied, "missing")
	for _, why := range []string{"expired", "revoked", "unknown", "form", "missing"} {
		if n := r.failed.of(why); n != 1 {
			t.Errorf("%d refusals are counted as %s", n, why)
		}
	}
	r.call("POST", "/api/v1/keys", r.key, gateway.CreateKey{Model: "nothing"}).refused(t, 404, domain.KindNotFound, "no model")
	r.call("POST", "/api/v1/keys", r.key, gateway.CreateKey{Role: pool.RoleObserver, Run: "nothing"}).refused(t, 404, domain.KindNotFound, "no such run")
}

// What a key did stands in the log under its own name.
func TestKeyIsTheActor(t *testing.T) {
	r := newRig(t, nil)
	k := r.newKey(gateway.CreateKey{Role: pool.RoleOperator})
	if a := r.call("POST", "/api/v1/runs", k.Secret, r.submission("r-1")); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	log := string(r.call("GET", "/api/v1/log", r.key, nil).body)
	found := false
	for line := range strings.Lines(log) {
		var rec gateway.LogRecord
		r.must(json.Unmarshal([]byte(line), &rec))
		found = found || strings.Contains(string(rec.Data), "key:"+string(k.ID))
	}
	if !found {
		t.Error("no record names the key")
	}
}

// An observer of one run lists that run alone, and its stream tells of it alone.
func TestObserverOfOneRun(t *testing.T) {
	r := withEvents(t)
	r.api("POST", "/api/v1/runs", r.submission("r-1"), nil)
	r.api("POST", "/api/v1/runs", r.submission("r-2"), nil)
	k := r.newKey(gateway.CreateKey{Role: pool.RoleObserver, Run: "r-1"})
	stream := string(r.call("GET", "/api/v1/events?follow=false", k.Secret, nil).body)
	if !strings.Contains(stream, "r-1") || strings.Contains(stream, "r-2") || strings.Contains(stream, "pool") {
		t.Errorf("streams %s", stream)
	}
	r.call("GET", "/api/v1/events?follow=false&run=r-2", k.Secret, nil).refused(t, 404, domain.KindNotFound, "no such run")
	var all []runs.Run
	r.must(json.Unmarshal(r.call("GET", "/api/v1/runs", k.Secret, nil).body, &all))
	if len(all) != 1 || all[0].ID != "r-1" {
		t.Errorf("lists %+v", all)
	}
}

// A stream ends soon after its reader's key: revocation reaches open connections too.
func TestRevocationEndsStreams(t *testing.T) {
	w := withEvents(t)
	k := w.newKey(gateway.CreateKey{Role: pool.RoleObserver})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "https://"+w.addr+"/api/v1/events", nil)
	w.must(err)
	req.Header.Set("Authorization", "Bearer "+k.Secret)
	resp, err := w.http.Do(req)
	w.must(err)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || resp.StatusCode != 200 {
		t.Fatalf("the stream does not begin: %d", resp.StatusCode)
	}
	w.api("DELETE", "/api/v1/keys/"+string(k.ID), nil, nil)
	began := time.Now()
	for lines.Scan() {
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the stream did not end but: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("ended %s after the revocation", took)
	}
}
