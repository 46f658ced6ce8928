package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"tensorturn/broker/feed"
	"tensorturn/broker/gateway"
	"tensorturn/broker/inference"
	"tensorturn/broker/webhook"
	"tensorturn/domain"
	render "tensorturn/projections/feed"
	"tensorturn/projections/observers"
)

// under sends a request of the operator under an idempotency key.
func (r *rig) under(once, path string, body any) answer {
	r.t.Helper()
	a, err := r.sendAs(http.MethodPost, path, r.key, once, body)
	r.must(err)
	return a
}

// repeatedPost is a POST, and another one for the same path.
type repeatedPost struct {
	path        string
	body, other any
}

// repeatedPosts has a row for every POST that makes or changes something, in an order in which each is possible.
func repeatedPosts(r *rig) []repeatedPost {
	type body = map[string]any
	other := r.submission("")
	other["spec"].(body)["epochs"] = 2
	nkey, _ := r.nkey().PublicKey()
	return []repeatedPost{
		{"/api/v1/runs", r.submission(""), other},
		{"/api/v1/runs/r-1/pause", body{"reason": "lunch"}, body{"reason": "tea"}},
		{"/api/v1/runs/r-1/resume", nil, body{"reason": "done"}},
		{"/api/v1/runs/r-1/cancel", nil, body{"reason": "enough"}},
		{"/api/v1/tokens", body{"uses": 3}, body{"uses": 4}},
		{"/api/v1/observers", body{"nkey": nkey, "name": "grafana"}, body{"nkey": nkey, "name": "other"}},
		{"/api/v1/webhooks", body{"url": "http://127.0.0.1:1/x"}, body{"url": "http://127.0.0.1:1/y"}},
		{"/api/v1/machines/box/drain", body{"reason": "noise"}, body{"reason": "heat"}},
		{"/api/v1/machines/box/resume", nil, body{"reason": "cold"}},
		{"/api/v1/machines/box/pause", body{"reason": "a game"}, body{"reason": "a film"}},
		{"/api/v1/machines/box/unpause", nil, body{"reason": "over"}},
		{"/api/v1/machines/box/rest", body{"hours": []string{"08:00-18:00"}}, body{"whileUsed": true}},
		{"/api/v1/machines/box/bench", body{"anew": true}, body{"reason": "heat"}},
		{"/api/v1/machines/box/label", body{"set": body{"site": "home"}}, body{"remove": []string{"site"}}},
		{"/api/v1/machines/box/revoke", body{"reason": "sold"}, body{"reason": "lost"}},
		{"/api/v1/keys", body{"model": "digits", "rate": 5}, body{"model": "digits", "rate": 6}},
		{"/api/v1/models/digits/rollback", body{"to": 1}, body{"to": 2}},
		{"/api/v1/models", body{"run": "r-0", "name": "letters"}, body{"run": "r-0", "name": "words"}},
	}
}

// takesAll has every model.
type takesAll struct{ inference.Backend }

func (takesAll) Check(context.Context, *inference.Version) error { return nil }

// Every POST that makes or changes something, repeated under its key at once, and again after the hub was restarted: one
// effect, the same answer, secrets included. Another request under the same key is a conflict.
func TestRepeatedPosts(t *testing.T) {
	hooks := &hooksOf{dir: t.TempDir()}
	wired := func(c *gateway.Config) {
		c.Observers, c.Events, c.Webhooks = keeper{}, noEvents{}, hooks.open(t)
	}
	r := newRig(t, func(c *gateway.Config) {
		past(t, c.Log, append(trained(t, "r-0"), deployed("digits", 1, "r-0"), deployed("digits", 2, "r-0"))...)
		wired(c)
	})
	r.backend = takesAll{}
	t.Cleanup(hooks.close)
	r.enrol("box")
	r.api("POST", "/api/v1/runs", r.submission("r-1"), nil)
	posts := repeatedPosts(r)
	first := make([]answer, len(posts))
	for i, p := range posts {
		once := fmt.Sprint("key ", i)
		first[i] = r.under(once, p.path, p.body)
		if first[i].status != http.StatusOK {
			t.Fatalf("%s: %d %s", p.path, first[i].status, first[i].body)
		}
		end := r.end()
		sameAnswer(t, p.path+" at once", first[i], r.under(once, p.path, p.body))
		r.under(once, p.path, p.other).refused(t, http.StatusConflict, domain.KindConflict, "idempotency key")
		if now := r.end(); now != end {
			t.Errorf("%s: the repetition wrote %d records", p.path, now-end)
		}
	}
	hooks.close()
	r.restart(wired)
	end := r.end()
	for i, p := range posts {
		if moved := strings.HasPrefix(p.path, "/api/v1/runs/") || strings.HasPrefix(p.path, "/api/v1/machines/") && !strings.HasSuffix(p.path, "/revoke"); moved {
			continue // what is told of it is the present state, which has moved on
		}
		sameAnswer(t, p.path+" after a restart", first[i], r.under(fmt.Sprint("key ", i), p.path, p.body))
		r.under(fmt.Sprint("key ", i), posts[i].path, p.other).refused(t, http.StatusConflict, domain.KindConflict, "idempotency key")
	}
	for i, p := range posts {
		if a := r.under(fmt.Sprint("key ", i), p.path, p.body); a.status != http.StatusOK {
			t.Errorf("%s after a restart: %d %s", p.path, a.status, a.body)
		}
	}
	if now := r.end(); now != end {
		t.Errorf("repetitions wrote %d records", now-end)
	}
	if a := r.under("fresh", "/api/v1/tokens", posts[4].body); a.status != http.StatusOK || string(a.body) == string(first[4].body) {
		t.Errorf("a fresh key gives the same token: %s", a.body)
	}
}

// sameAnswer compares two answers; a credential is issued anew and differs in its time of issue alone.
func sameAnswer(t *testing.T, what string, was, is answer) {
	t.Helper()
	var a, b map[string]any
	if was.status != is.status || json.Unmarshal(was.body, &a) != nil || json.Unmarshal(is.body, &b) != nil {
		t.Errorf("%s: %d %s, want %d", what, is.status, is.body, was.status)
		return
	}
	if d := cmp.Diff(a, b); d != "" {
		t.Errorf("%s: %s", what, d)
	}
}

// end is the number of records in the log.
func (r *rig) end() uint64 {
	r.t.Helper()
	end, err := r.log.Last(context.Background())
	r.must(err)
	return end
}

// A key belongs to its caller and its path, and must be one short printable text.
func TestKeysOfPosts(t *testing.T) {
	r := newRig(t, nil)
	for name, key := range map[string]string{"control": "a\tb", "long": strings.Repeat("k", 256), "not ASCII": "schlüssel"} {
		r.under(key, "/api/v1/tokens", nil).refused(t, http.StatusBadRequest, domain.KindInvalid, "Idempotency-Key")
		t.Log(name)
	}
	if a := r.under(strings.Repeat("k", 255), "/api/v1/tokens", nil); a.status != http.StatusOK {
		t.Errorf("a key of 255 characters: %d %s", a.status, a.body)
	}
	r.under("k", "/api/v1/tokens", `{"id":"`+strings.Repeat("x", 1<<20)+`"}`).refused(t, 413, domain.KindInvalid, "longer than")
	a, err := r.sendAs(http.MethodGet, "/api/v1/tokens", r.key, "a\tb", nil)
	if r.must(err); a.status != http.StatusOK {
		t.Errorf("a GET reads no key: %d", a.status)
	}
}

// Twenty requests under one key at the same time make one token.
func TestRepeatedAtOnce(t *testing.T) {
	r := newRig(t, nil)
	end := r.end()
	var wait sync.WaitGroup
	bodies := make([]string, 20)
	for i := range bodies {
		wait.Go(func() {
			if a, err := r.sendAs(http.MethodPost, "/api/v1/tokens", r.key, "one", nil); err == nil {
				bodies[i] = string(a.body)
			}
		})
	}
	wait.Wait()
	for _, b := range bodies {
		if b != bodies[0] || !strings.Contains(b, "ttj_") {
			t.Errorf("%s\n%s", b, bodies[0])
		}
	}
	if now := r.end(); now != end+1 {
		t.Errorf("%d records", now-end)
	}
}

// keeper lets observers in without a broker.
type keeper struct{}

func (keeper) NewObserver(id domain.ObserverID) (string, error) { return "A" + string(id), nil }
func (keeper) AdmitObserver(context.Context, observers.Observer) (string, error) {
	return "credential", nil
}
func (keeper) DismissObserver(context.Context, observers.Observer) error { return nil }

// noEvents is a feed at its beginning.
type noEvents struct{ gateway.Events }

func (noEvents) Position() uint64 { return 0 }

// hooksOf are real webhooks in a folder, which outlives each hub.
type hooksOf struct {
	dir  string
	live *webhook.Hooks
}

func (h *hooksOf) open(t *testing.T) *webhook.Hooks {
	t.Helper()
	source := feed.NewSource(nil, registry(), render.NewFormat(registry(), "h"))
	h.live = webhook.New(webhook.Config{Dir: h.dir, Source: source, Private: true, Version: "v1", Now: time.Now, Logger: zerolog.Nop()})
	if err := h.live.Start(); err != nil {
		t.Fatal(err)
	}
	return h.live
}

func (h *hooksOf) close() { h.live.Stop() }
