package outsiders

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"tensorturn/test/kit"
)

// receiver is another system's endpoint, written from the Standard Webhooks specification alone.
type receiver struct {
	t      *testing.T
	secret string

	mu     sync.Mutex
	got    []cloudEvent
	forged int
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.secret, "whsec_"))
	m := hmac.New(sha256.New, key)
	io.WriteString(m, q.Header.Get("webhook-id")+"."+q.Header.Get("webhook-timestamp")+"."+string(body))
	want := "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))
	r.mu.Lock()
	defer r.mu.Unlock()
	if !hmac.Equal([]byte(q.Header.Get("webhook-signature")), []byte(want)) {
		r.forged++
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	r.got = append(r.got, parseEvent(r.t, body))
}

func (r *receiver) seen() []cloudEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]cloudEvent(nil), r.got...)
}

// TestWebhookMissesNothing takes the receiver away during a run, and the hub too.
func TestWebhookMissesNothing(t *testing.T) {
	p := kit.NewPool(t, binary, lease)
	p.StartHub("--private-webhooks")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	r := &receiver{t: t}
	r.secret = p.Must("webhook", "create", "http://"+at+"/hook", "--from", "1")
	s := &http.Server{Handler: r}
	go s.Serve(l)
	p.StartAgent("a")
	p.AwaitEnd(p.Submit(spec(t, 1)))
	p.Await("the first events", func() bool { return len(r.seen()) > 20 })
	s.Close() // an outage
	p.AwaitEnd(p.Submit(spec(t, 1)))
	p.Hub.Kill()
	p.StartHub("--private-webhooks")
	if l, err = net.Listen("tcp", at); err != nil {
		t.Fatal(err)
	}
	again := &http.Server{Handler: r}
	go again.Serve(l)
	defer again.Close()
	want := truth(t, p)
	p.Await("the rest", func() bool {
		ids := map[string]bool{}
		for _, e := range r.seen() {
			ids[e.ID] = true
		}
		return len(ids) >= len(want)
	})
	compare(t, "webhook", r.seen(), want)
	if r.forged > 0 {
		t.Errorf("%d requests had a wrong signature", r.forged)
	}
}

// TestWebhookStaysOutside: without leave, a hub sends nothing into its own network.
func TestWebhookStaysOutside(t *testing.T) {
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	for _, url := range []string{"https://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/latest", "https://10.0.0.1/", "http://example.org/"} {
		if s := p.Run("webhook", "create", url); s.Code == 0 || !strings.Contains(s.Err, "hint:") {
			t.Errorf("%s: exit code %d, %s", url, s.Code, s.Err)
		}
	}
}
