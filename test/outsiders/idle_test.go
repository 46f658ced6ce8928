package outsiders

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"tensorturn/test/kit"
)

const (
	idleObservers = 8
	stalledStream = 8
	idleRounds    = 3
	idleLoad      = 120 // requests of one round, each one event
	idleCallers   = 8
)

// TestReadersThatNeverReadCostNothing measures two hubs in turn under the same load: one alone, one with observers that hold
// a connection and never read, event streams whose reader has stopped, and webhooks whose receiver is gone. What is demanded
// are ratios of medians: the second hub decides as many events a second and grows no more in memory. The bounds are wide,
// since the machine is shared; the figures are printed.
func TestReadersThatNeverReadCostNothing(t *testing.T) {
	alone, watched := newLoaded(t), newLoaded(t)
	watched.stall(t)
	rates, ratios := [2][]float64{}, []float64{}
	before := [2]int64{alone.memory(t), watched.memory(t)}
	for range idleRounds {
		a, b := alone.round(t), watched.round(t)
		rates[0], rates[1] = append(rates[0], a), append(rates[1], b)
		ratios = append(ratios, b/a)
	}
	grown := [2]int64{alone.memory(t) - before[0], watched.memory(t) - before[1]}
	ratio := median(ratios)
	t.Logf("%d observers, %d streams and a webhook that never read: %.0f events/s alone, %.0f with them, ratio %.2f; memory grew by %.1f MiB alone, %.1f MiB with them",
		idleObservers, stalledStream, median(rates[0]), median(rates[1]), ratio, float64(grown[0])/(1<<20), float64(grown[1])/(1<<20))
	if ratio < 0.5 {
		t.Errorf("a hub with idle readers decides %.2f of the events of one without", ratio)
	}
	if extra := grown[1] - grown[0]; extra > 48<<20 {
		t.Errorf("idle readers made the hub grow by %d MiB more", extra>>20)
	}
}

func median(x []float64) float64 {
	s := slices.Clone(x)
	slices.Sort(s)
	return s[len(s)/2]
}

// loaded is a hub whose run is paused and resumed again and again: each request is one synced event.
type loaded struct {
	pool   *kit.Pool
	client *http.Client
	key    string
}

func newLoaded(t *testing.T) *loaded {
	t.Helper()
	l := &loaded{pool: kit.NewPool(t, binary, lease)}
	l.pool.StartHub("--private-webhooks")
	l.client, l.key = operator(t, l.pool)
	l.client.Transport.(*http.Transport).DisableKeepAlives = false
	l.client.Transport.(*http.Transport).MaxIdleConnsPerHost = idleCallers
	t.Cleanup(l.client.CloseIdleConnections)
	l.round(t) // warm
	return l
}

func (l *loaded) post(path string, body any) (int, []byte, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequest(http.MethodPost, l.pool.URL+path, bytes.NewReader(b))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+l.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	return resp.StatusCode, out, err
}

// round makes events and gives how many a second there were. Tokens live for a second, so that the pool has few.
func (l *loaded) round(t *testing.T) float64 {
	t.Helper()
	began := time.Now()
	var wait sync.WaitGroup
	for range idleCallers {
		wait.Go(func() {
			for range idleLoad / idleCallers {
				if code, body, err := l.post("/api/v1/tokens", map[string]any{"seconds": 1}); err != nil || code != http.StatusOK {
					t.Errorf("%d %s %v", code, body, err)
					return
				}
			}
		})
	}
	wait.Wait()
	return idleLoad / time.Since(began).Seconds()
}

// memory is the hub's resident set in bytes.
func (l *loaded) memory(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", l.pool.Hub.PID()))
	var all, resident int64
	if err == nil {
		_, err = fmt.Sscan(string(b), &all, &resident)
	}
	if err != nil {
		t.Skip("there is no /proc")
	}
	return resident * int64(os.Getpagesize())
}

// stall gives the hub readers that never read.
func (l *loaded) stall(t *testing.T) {
	t.Helper()
	for i := range idleObservers {
		o := newObserver(t, l.pool, "--name", fmt.Sprint("idle ", i))
		nc, err := nats.Connect(o.URL, nats.UserCredentials(filepath.Join(o.Dir, "observer.creds")), nats.RootCAs(filepath.Join(o.Dir, "ca.pem")))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		if i%2 == 0 { // and half of them ask for events that they never take
			_, err = nc.SubscribeSync("_INBOX.idle.>")
			if err == nil {
				err = nc.PublishRequest(o.APIPrefix+".CONSUMER.MSG.NEXT."+o.Stream+"."+o.Consumer, "_INBOX.idle.x", []byte(`{"batch":1000,"expires":29000000000}`))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for range stalledStream {
		addr := strings.TrimPrefix(l.pool.URL, "https://")
		raw, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { raw.Close() })
		raw.(*net.TCPConn).SetReadBuffer(4096)
		c := tls.Client(raw, l.client.Transport.(*http.Transport).TLSClientConfig.Clone())
		fmt.Fprintf(c, "GET /api/v1/events HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", addr, l.key) // it is never read
	}
	if code, body, err := l.post("/api/v1/webhooks", map[string]any{"url": "http://127.0.0.1:1/gone", "from": 1}); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s %v", code, body, err)
	}
}
