package gateway_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"tensorturn/broker"
	"tensorturn/broker/gateway"
	"tensorturn/broker/health"
	"tensorturn/broker/hub"
	"tensorturn/broker/identity"
	"tensorturn/broker/inference"
	"tensorturn/broker/memory"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a front on a loopback port over a real hub service on a log in memory.
type rig struct {
	t       testing.TB
	keys    *identity.Keys
	log     *memory.Log
	blobs   *memory.Blobs
	service *hub.Service
	front   *gateway.Gateway
	addr    string
	key     string // the operator's
	http    *http.Client
	ids     atomic.Int64
	made    atomic.Int64 // accounts
	clock   atomic.Int64 // nanoseconds that the front's clock runs ahead
	logged  *lines
	failed  counted
	backend inference.Backend // of tests about models
	health  room
}

// counted counts refused callers by reason.
type counted struct {
	mu sync.Mutex
	by map[string]int
}

func (c *counted) AuthFailed(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]int{}
	}
	c.by[reason]++
}

func (c *counted) Inferred(domain.ModelID, int, time.Duration) {}

func (c *counted) of(reason string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[reason]
}

// room is a store whose room the test sets.
type room struct{ state atomic.Value }

func (m *room) Room() health.Room {
	s, _ := m.state.Load().(health.State)
	if s == "" {
		s = health.Ready
	}
	return health.Room{State: s, Shares: []health.Share{}}
}

func (m *room) NewWork() error { return m.refuse(health.Low, health.Full) }
func (m *room) Bytes() error   { return m.refuse(health.Full) }

func (m *room) refuse(in ...health.State) error {
	if slices.Contains(in, m.Room().State) {
		return domain.Unavailable("store", "the store is "+string(m.Room().State), "make room", nil)
	}
	return nil
}

// lines collects log lines.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func registry() *event.Registry {
	r := event.NewRegistry()
	run.Register(r)
	machine.Register(r)
	pool.Register(r)
	return r
}

func newRig(t testing.TB, change func(*gateway.Config), tune ...func(*gateway.Gateway)) *rig {
	t.Helper()
	r := &rig{t: t, log: memory.NewLog(nil), blobs: memory.NewBlobs(time.Now, nil), logged: &lines{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	r.addr = l.Addr().String()
	r.keys, err = identity.Create(filepath.Join(t.TempDir(), "keys"), identity.Options{PublicURL: "https://" + r.addr, Now: time.Now()})
	r.must(err)
	key, err := identity.NewOperatorKey(bytes.NewReader(bytes.Repeat([]byte("operator"), 64)))
	r.must(err)
	r.key = key.Plain()
	r.start(l, change, tune...)
	r.must(r.service.Do(context.Background(), hub.Do{Command: "c-found", Actor: "hub", Targets: []hub.Target{{Kind: event.KindPool, ID: pool.ID, Command: pool.Found{At: time.Now()}}}}))
	trust, err := identity.TrustTLS(r.keys.CA())
	r.must(err)
	r.http = &http.Client{Transport: &http.Transport{TLSClientConfig: trust, MaxIdleConnsPerHost: 64}}
	t.Cleanup(r.close)
	return r
}

// restart ends the hub and begins another one with the same log, keys and address.
func (r *rig) restart(change func(*gateway.Config)) {
	r.t.Helper()
	r.close()
	l, err := net.Listen("tcp", r.addr)
	r.must(err)
	r.start(l, change)
}

// start brings a service and a front up on the listener.
func (r *rig) start(l net.Listener, change func(*gateway.Config), tune ...func(*gateway.Gateway)) {
	r.t.Helper()
	r.service = hub.NewService(hub.ServiceConfig{Core: hub.Config{Timing: domain.TimingOf(24 * time.Second), Process: "p"}, Log: r.log, Registry: registry(),
		Blobs: r.blobs, Logger: zerolog.Nop()})
	cfg := gateway.Config{Hub: r.service, Agents: r.service, Explain: r.service, Views: gateway.NewViews(), Log: r.log, Blobs: r.blobs, Registry: registry(),
		Operator: func(k string) bool { return k == r.key }, Enrol: r, Websocket: "127.0.0.1:1", PublicURL: "https://" + r.addr, CA: r.keys.CA(), Pin: r.keys.Pin(), Secret: r.keys.RepeatSecret(),
		Counts: &r.failed, Inference: func(pool.Where) inference.Backend { return r.backend }, Health: &r.health, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("up 1\n")) }),
		Export: r.keys.Exports(), HeadKey: []byte("head"), Binary: "/dev/null", Version: "v1 $(rm -rf /)", Now: r.now, NewID: r.newID, Logger: zerolog.New(r.logged)}
	r.service.OnCommitted(func(es []event.Envelope) {
		if err := cfg.Views.Engine.Apply(es...); err != nil {
			r.t.Error(err)
		}
	})
	if change != nil {
		change(&cfg)
	}
	r.front = gateway.New(cfg)
	for _, f := range tune {
		f(r.front)
	}
	r.must(r.service.Start(context.Background()))
	r.front.Start(l, &tls.Config{Certificates: []tls.Certificate{r.keys.ServerCertificate()}})
}

func (r *rig) close() {
	r.http.CloseIdleConnections()
	if err := r.front.Stop(); err != nil {
		r.t.Errorf("stop: %v", err)
	}
	r.service.Stop()
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) now() time.Time { return time.Now().Add(time.Duration(r.clock.Load())) }

func (r *rig) newID(prefix string) string { return fmt.Sprintf("%s-%08d", prefix, r.ids.Add(1)) }

// NewAccount and Credential make rig a gateway.Enroller.
func (r *rig) NewAccount(m domain.MachineID) (string, error) {
	r.made.Add(1)
	id, err := r.keys.Machine(m)
	return id.Account, err
}

func (r *rig) Credential(m domain.MachineID, nkey string) (string, error) {
	id, err := r.keys.KnownMachine(m)
	if err != nil {
		return "", err
	}
	return id.Credential(nkey, identity.CredentialLife, time.Now())
}

// answer is a response, read whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// problem is the body of a refusal as a client sees it.
type problem struct {
	Status int         `json:"status"`
	Title  string      `json:"title"`
	Detail string      `json:"detail"`
	Kind   domain.Kind `json:"kind"`
	Next   string      `json:"next"`
}

func (r *rig) send(method, path, key string, body any) (answer, error) {
	return r.sendAs(method, path, key, "", body)
}

// sendAs sends under an idempotency key, none when it is empty.
func (r *rig) sendAs(method, path, key, once string, body any) (answer, error) {
	var b []byte
	switch v := body.(type) {
	case nil:
	case []byte:
		b = v
	case string:
		b = []byte(v)
	default:
		var err error
		if b, err = json.Marshal(v); err != nil {
			return answer{}, err
		}
	}
	req, err := http.NewRequest(method, "https://"+r.addr+path, bytes.NewReader(b))
	if err != nil {
		return answer{}, err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if once != "" {
		req.Header.Set("Idempotency-Key", once)
	}
	if len(b) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, got}, err
}

func (r *rig) call(method, path, key string, body any) answer {
	r.t.Helper()
	a, err := r.send(method, path, key, body)
	r.must(err)
	return a
}

// api is a call by the operator that must go well.
func (r *rig) api(method, path string, in, out any) {
	r.t.Helper()
	a := r.call(method, path, r.key, in)
	if a.status >= 300 {
		r.t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
	}
	if out != nil {
		r.must(json.Unmarshal(a.body, out))
	}
}

// refused checks that an answer is a whole problem body of the kind, and that it says text.
func (a answer) refused(t testing.TB, status int, kind domain.Kind, text string) problem {
	t.Helper()
	var p problem
	err := json.Unmarshal(a.body, &p)
	if a.status != status || a.header.Get("Content-Type") != "application/problem+json" || err != nil || p.Status != status || p.Kind != kind || p.Title == "" ||
		!strings.Contains(p.Detail, text) {
		t.Errorf("got %d %s %s, want %d, kind %s, %q", a.status, a.header.Get("Content-Type"), a.body, status, kind, text)
	}
	return p
}

// token makes a join token.
func (r *rig) token(in gateway.CreateToken) gateway.CreatedToken {
	r.t.Helper()
	var t gateway.CreatedToken
	r.api(http.MethodPost, "/api/v1/tokens", in, &t)
	return t
}

func (r *rig) nkey() nkeys.KeyPair {
	r.t.Helper()
	kp, err := nkeys.CreateUser()
	r.must(err)
	return kp
}

func (r *rig) proof(kp nkeys.KeyPair, a identity.Audience, at time.Time) string {
	r.t.Helper()
	p, err := identity.SignProof(kp, a, "", at)
	r.must(err)
	return p
}

// enrol joins a machine with a fresh token and gives its key and id.
func (r *rig) enrol(name string) (nkeys.KeyPair, domain.MachineID) {
	r.t.Helper()
	kp := r.nkey()
	var reply gateway.EnrolReply
	a := r.call(http.MethodPost, "/api/v1/enrol", "", gateway.EnrolRequest{Token: r.token(gateway.CreateToken{}).Token, Name: name, Slots: 1, Proof: r.proof(kp, identity.AudienceEnrol, time.Now())})
	if a.status != http.StatusOK {
		r.t.Fatalf("enrol: %d %s", a.status, a.body)
	}
	r.must(json.Unmarshal(a.body, &reply))
	return kp, reply.Machine
}

// store puts a blob of one part into the store.
func (r *rig) store(data string) domain.Digest {
	r.t.Helper()
	w := blob.NewWriter(context.Background(), r.blobs.Put)
	_, err := w.Write([]byte(data))
	r.must(err)
	id, err := w.Close()
	r.must(err)
	return id
}

// submission is a run that can be submitted.
func (r *rig) submission(id string) map[string]any {
	return map[string]any{"id": id, "spec": map[string]any{"name": "digits", "epochs": 1, "batch": 10, "chunk": 10},
		"data": run.Dataset{Blob: r.store("rows"), Samples: 100, Heldout: 10, Features: 4, Classes: 2, Block: 100}}
}

// newKey makes an API key.
func (r *rig) newKey(in gateway.CreateKey) gateway.CreatedKey {
	r.t.Helper()
	var k gateway.CreatedKey
	r.api(http.MethodPost, "/api/v1/keys", in, &k)
	return k
}

// past writes facts into a log before a hub reads it: what has happened may be invented.
func past(t testing.TB, log broker.Log, facts ...event.Event) {
	t.Helper()
	c := broker.NewCommitter(log, registry())
	if err := c.Open(t.Context(), func(event.Envelope) error { return nil }); err != nil {
		t.Fatal(err)
	}
	all := append([]event.Event{{Kind: event.KindPool, ID: pool.ID, Data: &pool.Founded{At: time.Now().UnixMicro()}}}, facts...)
	if _, err := c.Commit(t.Context(), time.Now(), []broker.Group{{Command: "c-past", Actor: "hub", Events: all}}); err != nil {
		t.Fatal(err)
	}
}

// deployed is the fact that a run's model was deployed.
func deployed(model domain.ModelID, version int, id domain.RunID) event.Event {
	d := event.Digest([]byte(id))
	return event.Event{Kind: event.KindPool, ID: pool.ID, Data: &pool.ModelDeployed{Model: model, Version: version, Run: id, Kind: "mlp", Weights: d, Layout: d, Data: d, Where: pool.WhereHub}}
}

// trained are the facts of a run that has merged one round and ended.
func trained(t testing.TB, id domain.RunID) []event.Event {
	t.Helper()
	base, model := event.Digest([]byte("base")), event.Digest([]byte(id))
	data := run.Dataset{Blob: base, Samples: 100, Heldout: 10, Features: 4, Classes: 2, Block: 100}
	spec, err := run.Resolve(run.Spec{Name: "past", Epochs: 1, Batch: 10, Chunk: 100}, data)
	if err != nil {
		t.Fatal(err)
	}
	var out []event.Event
	for _, d := range []event.Data{
		&run.Submitted{Spec: spec, Data: data},
		&run.Initialised{Slot: "m.0", Base: base, Layout: base, Params: 1},
		&run.RoundOpened{Round: 1, Base: base, Chunks: []domain.ChunkID{0}, Deadline: 1},
		&run.RoundMerged{Round: 1, Base: base, NextBase: model, NextMomentum: model},
		&run.Completed{Model: model},
	} {
		out = append(out, event.Event{Kind: event.KindRun, ID: string(id), Data: d})
	}
	return out
}
