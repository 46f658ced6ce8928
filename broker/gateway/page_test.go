package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tensorturn/broker/gateway"
	"tensorturn/broker/webhook"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
	"tensorturn/projections/fleet"
	"tensorturn/projections/usage"
)

// Every list by pages of every size gives the list, in order, whole and once; what is made meanwhile comes at its end.
func TestPages(t *testing.T) {
	r := newRig(t, nil)
	for i := range 7 {
		r.token(gateway.CreateToken{Uses: i + 1})
	}
	var all []fleet.Token
	r.api(http.MethodGet, "/api/v1/tokens", nil, &all)
	for limit := 1; limit <= 8; limit++ {
		var got []fleet.Token
		path, n := fmt.Sprintf("/api/v1/tokens?limit=%d", limit), 0
		for path != "" {
			a := r.call(http.MethodGet, path, r.key, nil)
			var page []fleet.Token
			r.must(json.Unmarshal(a.body, &page))
			if len(page) > limit || len(page) == 0 {
				t.Fatalf("%s: %d items", path, len(page))
			}
			got = append(got, page...)
			link := a.header.Get("Link")
			if path = ""; link != "" {
				path = strings.TrimSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
			}
			if n++; n > 7 {
				t.Fatal("the pages have no end")
			}
		}
		if want := (7 + limit - 1) / limit; n != want {
			t.Errorf("limit %d: %d pages, want %d", limit, n, want)
		}
		for i := range all {
			if len(got) != 7 || got[i].ID != all[i].ID {
				t.Fatalf("limit %d: %d tokens", limit, len(got))
			}
		}
	}
	r.token(gateway.CreateToken{})
	var late []fleet.Token
	if r.api(http.MethodGet, "/api/v1/tokens?after="+string(all[6].ID), nil, &late); len(late) != 1 {
		t.Errorf("%d made since", len(late))
	}
}

// plainLists are the lists that are empty on a fresh hub.
var plainLists = []string{"runs", "machines", "tokens", "observers", "webhooks", "keys", "models"}

// Each list says its limits, and refuses what is not in it.
func TestPageRefusals(t *testing.T) {
	r := newRig(t, func(c *gateway.Config) { c.Webhooks = noHooks{} })
	for _, list := range plainLists {
		path := "/api/v1/" + list
		r.call("GET", path+"?limit=1001", r.key, nil).refused(t, 422, domain.KindInvalid, "query.limit")
		r.call("GET", path+"?limit=-1", r.key, nil).refused(t, 422, domain.KindInvalid, "query.limit")
		r.call("GET", path+"?after=nobody", r.key, nil).refused(t, 400, domain.KindInvalid, "holds no nobody")
		r.call("GET", path+"?page=2", r.key, nil).refused(t, 422, domain.KindInvalid, "page")
		if a := r.call("GET", path+"?limit=1000", r.key, nil); a.status != 200 || string(a.body) != "[]\n" || a.header.Get("Link") != "" {
			t.Errorf("%s: %d %s %s", path, a.status, a.body, a.header.Get("Link"))
		}
	}
}

// A run's timeline comes by pages too.
func TestPagesOfARunsEvents(t *testing.T) {
	r := newRig(t, nil)
	r.api("POST", "/api/v1/runs", r.submission("r-1"), nil)
	for range 3 {
		r.api("POST", "/api/v1/runs/r-1/pause", gateway.Reasoned{Reason: "x"}, nil)
		r.api("POST", "/api/v1/runs/r-1/resume", nil, nil)
	}
	a := r.call("GET", "/api/v1/runs/r-1/events?limit=3", r.key, nil)
	var page gateway.RunEvents
	r.must(json.Unmarshal(a.body, &page))
	want := fmt.Sprintf(`</api/v1/runs/r-1/events?after=%d&limit=3>; rel="next"`, page.Last)
	if len(page.Lines) != 3 || a.header.Get("Link") != want {
		t.Errorf("%d lines, link %s, want %s", len(page.Lines), a.header.Get("Link"), want)
	}
	a = r.call("GET", fmt.Sprintf("/api/v1/runs/r-1/events?limit=4&after=%d", page.Last), r.key, nil)
	r.must(json.Unmarshal(a.body, &page))
	if len(page.Lines) != 4 || a.header.Get("Link") != "" {
		t.Errorf("the last page: %d lines, link %q", len(page.Lines), a.header.Get("Link"))
	}
}

// What was used comes by pages of rows, with the same total on each; the query's own part is kept.
func TestPagesOfUsage(t *testing.T) {
	var facts []event.Event
	for _, id := range []domain.KeyID{"k-1", "k-2", "k-3"} {
		facts = append(facts, event.Event{Kind: event.KindPool, ID: pool.ID, Data: &pool.InferenceCounted{Key: id, Model: "digits", Version: 1, Run: "r-1", Minute: time.Now().UnixMicro(), Requests: 2, Rows: 5}})
	}
	r := newRig(t, func(c *gateway.Config) { past(t, c.Log, facts...) })
	var all usage.Report
	r.api("GET", "/api/v1/usage", nil, &all)
	var got usage.Report
	n := 0
	for path := "/api/v1/usage?since=2020-01-01T00:00:00Z&limit=1"; path != ""; n++ {
		a := r.call("GET", path, r.key, nil)
		var page usage.Report
		r.must(json.Unmarshal(a.body, &page))
		if len(page.Runs)+len(page.Machines)+len(page.Keys) != 1 || page.Total != all.Total || page.Since == nil {
			t.Fatalf("%s: %+v", path, page)
		}
		got.Runs, got.Keys = append(got.Runs, page.Runs...), append(got.Keys, page.Keys...)
		path = strings.TrimSuffix(strings.TrimPrefix(a.header.Get("Link"), "<"), `>; rel="next"`)
	}
	if n != 4 || len(got.Keys) != 3 || cmp.Diff(got.Keys, all.Keys)+cmp.Diff(got.Runs, all.Runs) != "" {
		t.Errorf("%d pages: %+v, want %+v", n, got, all)
	}
	r.call("GET", "/api/v1/usage?after=k-1", r.key, nil).refused(t, 400, domain.KindInvalid, "holds no k-1")
}

// A run's story and the merges behind its model come by pages.
func TestPagesOfReplay(t *testing.T) {
	r := newRig(t, nil)
	r.api("POST", "/api/v1/runs", r.submission("r-1"), nil)
	r.api("POST", "/api/v1/runs/r-1/pause", gateway.Reasoned{Reason: "x"}, nil)
	a := r.call("GET", "/api/v1/runs/r-1/replay?limit=1", r.key, nil)
	var page gateway.Replayed
	r.must(json.Unmarshal(a.body, &page))
	if want := fmt.Sprintf(`</api/v1/runs/r-1/replay?after=%d&limit=1>; rel="next"`, page.Story[0].Seq); len(page.Story) != 1 || a.header.Get("Link") != want {
		t.Fatalf("%+v, link %s, want %s", page, a.header.Get("Link"), want)
	}
	a = r.call("GET", "/api/v1/runs/r-1/replay?limit=1&after="+itoa(page.Story[0].Seq), r.key, nil)
	r.must(json.Unmarshal(a.body, &page))
	if len(page.Story) != 1 || page.Story[0].Name != run.NamePaused || a.header.Get("Link") != "" {
		t.Errorf("%+v, link %s", page, a.header.Get("Link"))
	}
	r.call("GET", "/api/v1/runs/r-1/lineage?after=7", r.key, nil).refused(t, 400, domain.KindInvalid, "holds no 7")
	r.call("GET", "/api/v1/runs/r-1/lineage?limit=1001", r.key, nil).refused(t, 422, domain.KindInvalid, "query.limit")
}

// noHooks is a hub without webhooks.
type noHooks struct{ gateway.Webhooks }

func (noHooks) List() []webhook.Hook { return nil }
