package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tensorturn/domain"
	"tensorturn/test/kit"
)

// Sizes of the serving section.
const (
	servingClients = 4           // ask at the same time, each over a connection of its own
	servingTime    = time.Second // of one measurement
	servingTurns   = 9           // the two servers take turns, so that a busy moment of the machine meets both
	servingGoal    = 0.5         // of the bare handler's requests a second
)

// serving measures single-row predictions of the digits MLP over HTTPS with a key, beside a bare Go handler over HTTPS that
// reads the same request and answers with the same constant bytes; and counts what is lost or let through while versions are
// swapped and a key is revoked under that load.
func (b *bench) serving(d *bed) {
	took, turns := servingTime, servingTurns
	if b.quick {
		took, turns = 100*time.Millisecond, 1
	}
	p := b.pool(d)
	p.StartAgent("box")
	data, err := filepath.Abs("cmd/tensorturn/demo/digits.csv.gz")
	d.Must(err)
	spec := "name: digits\ndata: {path: " + data + "}\nmodel: {kind: mlp, hidden: [64]}\nbatch: 32\nepochs: 3\nchunk: 128\nround: {chunks: 24}\n"
	first, second := p.Submit(spec), p.Submit(spec+"seed: 2\n")
	awaitEnd(d, p, first)
	awaitEnd(d, p, second)
	p.Must("model", "deploy", string(first), "--name", "digits")
	o := operatorOf(d, p)
	l := &loader{d: d, tls: o.tls, body: digitsRequest(), key: modelKey(d, p).Secret}
	url := o.URL + "/v2/models/digits/infer"
	answer := l.once(url)
	bare := startBare(d, answer)
	var ours, theirs tally
	l.measure(url, took/10) // connections, caches, the model
	hubCPU, bareCPU := processCPU(p.Hub.PID()), processCPU(bare.pid)
	for range turns {
		theirs.add(l.other(bare).measure(bare.url, took))
		ours.add(l.measure(url, took))
	}
	hubCPU, bareCPU = (processCPU(p.Hub.PID())-hubCPU)/float64(len(ours.codes)), (processCPU(bare.pid)-bareCPU)/float64(len(theirs.codes))
	b.report.add(
		row{Section: "serving", What: "bare HTTPS handler, constant answer", Value: theirs.rate(), Unit: "requests/s"},
		row{Section: "serving", What: "bare handler, half of the answers within", Value: theirs.quantile(0.5), Unit: "ms"},
		row{Section: "serving", What: "predictions of one row over HTTPS with a key", Value: ours.rate(), Unit: "requests/s", Ratio: ours.rate() / theirs.rate(), Of: "the bare handler", Least: servingGoal},
		row{Section: "serving", What: "predictions, p50", Value: ours.quantile(0.5), Unit: "ms", Ratio: ours.quantile(0.5) / theirs.quantile(0.5), Of: "the bare handler"},
		row{Section: "serving", What: "predictions, p99", Value: ours.quantile(0.99), Unit: "ms", Ratio: ours.quantile(0.99) / theirs.quantile(0.99), Of: "the bare handler"})
	if hubCPU > 0 {
		b.report.note("serving: a prediction takes %.0f µs of the hub's processor time, a constant %.0f µs of the bare handler's", 1e6*hubCPU, 1e6*bareCPU)
	}
	b.report.note("serving: %d clients, a request of %d bytes, an answer of %d; clients and both servers share the machine's processors", servingClients, len(l.body), len(answer))
	b.swaps(d, p, l, url, second, took)
}

// swaps counts under load: requests of a good key that failed while versions came and went, and requests that came through with a key
// after its revocation was answered.
func (b *bench) swaps(d *bed, p *kit.Pool, l *loader, url string, second domain.RunID, took time.Duration) {
	other := modelKey(d, p)
	doomed := *l
	doomed.key = other.Secret
	var good, bad tally
	var all sync.WaitGroup
	var ended atomic.Bool
	wanted := func() bool { return !ended.Load() }
	all.Go(func() { good = l.while(url, wanted) })
	all.Go(func() { bad = doomed.while(url, wanted) })
	time.Sleep(took) // both keys are in use
	p.Must("model", "deploy", string(second), "--name", "digits")
	p.Must("model", "rollback", "digits")
	p.Must("model", "rollback", "digits", "--to", "2")
	p.Must("key", "revoke", other.ID)
	revoked := time.Now()
	time.Sleep(took)
	ended.Store(true)
	all.Wait()
	through := 0
	for i, at := range bad.began {
		if at.After(revoked) && bad.codes[i] == http.StatusOK {
			through++
		}
	}
	b.report.add(
		row{Section: "serving", What: fmt.Sprintf("lost of %d requests while versions were swapped", len(good.codes)), Value: float64(good.failed()), Unit: "requests", Zero: true},
		row{Section: "serving", What: fmt.Sprintf("let through of %d with a revoked key", len(bad.codes)-bad.before(revoked)), Value: float64(through), Unit: "requests", Zero: true})
	if bad.before(revoked) == 0 || len(bad.codes) == bad.before(revoked) {
		d.Fatalf("nobody asked before, or nobody after the key was revoked")
	}
}

// tally is what one measurement saw.
type tally struct {
	began  []time.Time
	took   []time.Duration
	codes  []int
	passed time.Duration
}

func (t *tally) add(o tally) {
	t.began, t.took, t.codes = append(t.began, o.began...), append(t.took, o.took...), append(t.codes, o.codes...)
	t.passed += o.passed
}

func (t *tally) rate() float64 { return float64(len(t.codes)-t.failed()) / t.passed.Seconds() }

func (t *tally) failed() (n int) {
	for _, c := range t.codes {
		if c != http.StatusOK {
			n++
		}
	}
	return n
}

func (t *tally) before(at time.Time) (n int) {
	for _, b := range t.began {
		if b.Before(at) {
			n++
		}
	}
	return n
}

// quantile is in milliseconds.
func (t *tally) quantile(q float64) float64 {
	sorted := slices.Sorted(slices.Values(t.took))
	return float64(sorted[int(q*float64(len(sorted)-1))]) / 1e6
}

// loader asks as fast as answers come.
type loader struct {
	d    *bed
	tls  *tls.Config
	body []byte
	key  string
}

// other asks another server with the same requests.
func (l *loader) other(s *bareServer) *loader { c := *l; c.tls = s.trust; return &c }

func (l *loader) client() *http.Client {
	return &http.Client{Timeout: kit.Patience, Transport: &http.Transport{TLSClientConfig: l.tls, MaxIdleConnsPerHost: 1}}
}

func (l *loader) ask(c *http.Client, url string) (code int, body []byte) {
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(l.body))
	l.d.Must(err)
	req.Header.Set("Authorization", "Bearer "+l.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil
	}
	return resp.StatusCode, body
}

// once asks once; the answer must be good.
func (l *loader) once(url string) []byte {
	c := l.client()
	defer c.CloseIdleConnections()
	code, body := l.ask(c, url)
	if code != http.StatusOK {
		l.d.Fatalf("asked once: %d %s", code, body)
	}
	return body
}

func (l *loader) measure(url string, took time.Duration) tally {
	start := time.Now()
	return l.while(url, func() bool { return time.Since(start) < took })
}

// while asks as long as it is wanted.
func (l *loader) while(url string, wanted func() bool) tally {
	parts := make([]tally, servingClients)
	var all sync.WaitGroup
	start := time.Now()
	for i := range parts {
		all.Go(func() {
			c := l.client()
			defer c.CloseIdleConnections()
			for t := &parts[i]; wanted(); {
				began := time.Now()
				code, _ := l.ask(c, url)
				t.began, t.took, t.codes = append(t.began, began), append(t.took, time.Since(began)), append(t.codes, code)
			}
		})
	}
	all.Wait()
	var sum tally
	for _, t := range parts {
		sum.add(t)
	}
	sum.passed = time.Since(start)
	return sum
}

// digitsRequest asks for one row of digits: zeros and pixels as a client writes them.
func digitsRequest() []byte {
	row := make([]int, 64)
	for i := range row {
		row[i] = (i * 7) % 17
	}
	b, _ := json.Marshal(map[string]any{"inputs": []any{map[string]any{"name": "input", "shape": []int{1, 64}, "datatype": "FP32", "data": row}}})
	return b
}

type servingKey struct {
	ID     string `json:"id"`
	Secret string `json:"key"`
}

func modelKey(d *bed, p *kit.Pool) (k servingKey) {
	p.JSON(&k, "key", "create", "--model", "digits", "--rate", "100000/s")
	return k
}

// processCPU is the processor time of a process so far in seconds, 0 where the system does not tell. A tick is a hundredth of a
// second on every Linux that Go runs on.
func processCPU(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	var user, system float64
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // a name may hold spaces
	if len(fields) < 13 {
		return 0
	}
	fmt.Sscan(fields[11], &user)
	fmt.Sscan(fields[12], &system)
	return (user + system) / 100
}
