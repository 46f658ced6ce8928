package gateway_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"tensorturn/broker/feed"
	"tensorturn/broker/gateway"
	"tensorturn/domain/event"
	render "tensorturn/projections/feed"
)

// withEvents is a rig whose front streams its log.
func withEvents(t *testing.T) *rig {
	t.Helper()
	return newRig(t, func(c *gateway.Config) {
		s := feed.NewSource(c.Log, registry(), render.NewFormat(registry(), "h"))
		c.Hub.(interface {
			OnCommitted(func([]event.Envelope))
		}).OnCommitted(s.Note)
		c.Events = s
	})
}

// open begins a stream; its body is closed with the test.
func (r *rig) open(query string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodGet, "https://"+r.addr+"/api/v1/events?"+query, nil)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	resp, err := r.http.Do(req)
	if err == nil {
		r.t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

// streamed gives the ids of a stream that ends at the present end.
func (r *rig) streamed(t *testing.T, query string, header http.Header) string {
	t.Helper()
	resp, err := r.open("follow=false&"+query, header)
	r.must(err)
	b, err := io.ReadAll(resp.Body)
	r.must(err)
	var out []string
	for line := range strings.Lines(string(b)) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "id: "); ok {
			out = append(out, id)
		}
	}
	return strings.Join(out, " ")
}

func TestEventStreamParameters(t *testing.T) {
	r := withEvents(t)
	for query, want := range map[string]string{
		"": "1", "after=0": "1", "after=1": "", "after=99": "", "after=latest": "", "kind=pool": "1", "kind=run": "",
		"since=2000-01-01T00:00:00Z": "1", "since=2100-01-01T00:00:00Z": "",
	} {
		if got := r.streamed(t, query, nil); got != want {
			t.Errorf("%q gives events %q, want %q", query, got, want)
		}
	}
	if got := r.streamed(t, "after=0", http.Header{"Last-Event-ID": {"1"}}); got != "" {
		t.Errorf("Last-Event-ID does not win: %q", got)
	}
	for _, query := range []string{"kind=machines", "after=x", "after=-1", "since=yesterday", "follow=perhaps", "runs=r-1"} {
		resp, err := r.open(query, nil)
		r.must(err)
		if resp.StatusCode != http.StatusBadRequest || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%q is answered %s", query, resp.Status)
		}
	}
	if resp, err := r.open("run=nobody", nil); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("a run that is not there: %v %v", resp, err)
	}
}

// TestEventStreamsAreLimited opens as many as one address may, one more, and one when another has been closed. All end with
// the front.
func TestEventStreamsAreLimited(t *testing.T) {
	r := withEvents(t)
	var open []*http.Response
	for range gateway.MaxStreamsByIP {
		resp, err := r.open("", nil)
		r.must(err)
		first, err := bufio.NewReader(resp.Body).ReadString('\n')
		if err != nil || !strings.HasPrefix(first, ": tensorturn events") {
			t.Fatalf("stream %d: %q %v", len(open), first, err)
		}
		open = append(open, resp)
	}
	more, err := r.open("", nil)
	r.must(err)
	if more.StatusCode != http.StatusServiceUnavailable {
		t.Fatalf("one more is answered %s", more.Status)
	}
	r.must(open[0].Body.Close())
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for { // the front notices the closed connection a moment later
		resp, err := r.open("", nil)
		r.must(err)
		if resp.StatusCode == http.StatusOK {
			break
		}
		select {
		case <-again.C:
		case <-deadline.C:
			t.Fatal("a closed stream still counts")
		}
	}
}

// TestEventDescriptions serves what outsiders make their readers from.
func TestEventDescriptions(t *testing.T) {
	r := withEvents(t)
	for path, want := range map[string]string{"/api/v1/events/schemas": `"tensorturn.run.submitted.v1"`, "/api/v1/events/asyncapi.json": `"asyncapi":"3.0.0"`} {
		a, err := r.send(http.MethodGet, path, r.key, nil)
		r.must(err)
		if a.status != 200 || !strings.Contains(string(a.body), want) {
			t.Errorf("%s: %d without %s", path, a.status, want)
		}
		if a, err = r.send(http.MethodGet, path, "", nil); err != nil || a.status != 401 {
			t.Errorf("%s without a key: %d %v", path, a.status, err)
		}
	}
}
