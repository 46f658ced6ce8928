package v2_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	v2 "tensorturn/broker/gateway/v2"
	"tensorturn/broker/inference"
	"tensorturn/domain"
	"tensorturn/domain/dataset"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
	"tensorturn/projections/models"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the API over two deployed models that answer by rule: a row's label is its first feature modulo the classes.
type world struct {
	t       testing.TB
	server  *httptest.Server
	api     *v2.API
	backend *rule

	mu       sync.Mutex
	now      time.Time
	models   map[domain.ModelID]models.Model
	auth     map[string]int
	inferred map[string]int
	recorded []pool.InferenceCounted
	sick     error // of Ready and Record
}

// wild is a table with words and gaps: job, age, zip in the file.
var wild = inference.Facts{Columns: []string{"job = (missing)", "job = admin", "job = tech", "age", "zip = 1", "zip = 2"}, Classes: facts.Classes, Form: wildForm(run.MissingMean)}

func wildForm(missing string) *dataset.Form {
	columns := []string{"job = (missing)", "job = admin", "job = tech", "age", "zip = 1", "zip = 2"}
	return dataset.FormOf(dataset.Facts{Columns: columns, Mean: []float64{.2, .3, .5, 41.5, .5, .5}, Std: make([]float64, 6)},
		run.Data{Categories: []string{"job", "zip"}, Missing: missing})
}

// rule is a model of three features and four classes.
type rule struct {
	mu      sync.Mutex
	facts   inference.Facts
	last    []float32 // what it was asked last
	ensbl   bool
	err     error
	panics  bool
	asked   int
	rows    int
	release chan struct{} // when set, Predict waits for it
	entered chan struct{}
}

var facts = inference.Facts{Columns: []string{"a", "b", "c"}, Classes: []string{"0", "one", `t"wo`, "drei ü"}}

func (m *rule) Describe(context.Context, *inference.Version) (inference.Facts, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.facts, m.err
}

func (m *rule) Check(context.Context, *inference.Version) error { return nil }

func (m *rule) Predict(_ context.Context, _ *inference.Version, x []float32) (inference.Answer, error) {
	m.mu.Lock()
	m.asked++
	width := len(m.facts.Columns)
	m.rows += len(x) / width
	m.last = x
	err, panics, release := m.err, m.panics, m.release
	m.mu.Unlock()
	if release != nil {
		m.entered <- struct{}{}
		<-release
	}
	if panics {
		panic("a bug")
	}
	if err != nil {
		return inference.Answer{}, err
	}
	n := len(x) / width
	a := inference.Answer{Facts: m.facts, Probabilities: make([]float32, 4*n), Class: make([]int, n)}
	for i := range n {
		c := int(x[width*i]) % 4
		a.Class[i] = c
		for k := range 4 {
			a.Probabilities[4*i+k] = 1e-7
		}
		a.Probabilities[4*i+c] = 0.75
	}
	if m.ensbl {
		a.Used, a.Votes, a.Agreement = 3, make([]int, 4*n), make([]float64, n)
		for i := range n {
			a.Votes[4*i+a.Class[i]], a.Votes[4*i+(a.Class[i]+1)%4] = 2, 1
			a.Agreement[i] = 2.0 / 3
		}
	}
	return a, nil
}

const (
	digitsKey   = "digits key"
	slowKey     = "a key of two requests a minute"
	lettersKey  = "letters key"
	ownerKey    = "owner"
	observerKey = "observer"
)

func newWorld(t testing.TB, tune ...func(*v2.Config)) *world {
	w := &world{t: t, backend: &rule{facts: facts}, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), auth: map[string]int{}, inferred: map[string]int{}}
	version := func(n int) models.Version {
		return models.Version{Version: n, Run: "r-1", Kind: "mlp", Where: pool.WhereHub}
	}
	w.models = map[domain.ModelID]models.Model{
		"digits":  {Name: "digits", Serving: 3, Versions: []models.Version{version(2), version(3)}},
		"letters": {Name: "letters", Serving: 1, Retired: true, Versions: []models.Version{version(1)}},
		"away":    {Name: "away", Serving: 1, Versions: []models.Version{{Version: 1, Where: pool.WhereAgents}}},
	}
	cfg := v2.Config{Identify: w.identify, Model: w.model, Counts: w, Server: "v1", Now: w.clock, Logger: zerolog.Nop(), Ready: w.ready, Record: w.record,
		Version: func(m models.Model, v models.Version) (*inference.Version, error) {
			return &inference.Version{Model: m.Name, Number: v.Version, Run: v.Run}, nil
		},
		Backend: func(p pool.Where) inference.Backend {
			if p == pool.WhereAgents {
				return nil
			}
			return w.backend
		}}
	for _, f := range tune {
		f(&cfg)
	}
	w.api = v2.New(cfg)
	w.server = httptest.NewServer(w.api)
	t.Cleanup(func() {
		w.server.Close()
		w.api.Stop()
	})
	return w
}

func (w *world) identify(secret string) (v2.Caller, *v2.Fault) {
	switch secret {
	case digitsKey:
		return v2.Caller{Role: pool.RoleModel, Key: "k-digits", Model: "digits", Rate: 1000, Per: 1}, nil
	case slowKey:
		return v2.Caller{Role: pool.RoleModel, Key: "k-slow", Model: "digits", Rate: 2, Per: 60}, nil
	case lettersKey:
		return v2.Caller{Role: pool.RoleModel, Key: "k-letters", Model: "letters", Rate: 10, Per: 1}, nil
	case "away":
		return v2.Caller{Role: pool.RoleModel, Key: "k-away", Model: "away", Rate: 10, Per: 1}, nil
	case ownerKey:
		return v2.Caller{Role: pool.RoleOperator}, nil
	case observerKey:
		return v2.Caller{Role: pool.RoleObserver, Key: "k-obs"}, nil
	case "":
		return v2.Caller{}, &v2.Fault{Reason: "missing", Why: "a key is missing"}
	}
	return v2.Caller{}, &v2.Fault{Reason: "unknown", Why: "the key is not known"}
}

func (w *world) model(name domain.ModelID) (models.Model, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, ok := w.models[name]
	return m, ok
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) later(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sick
}

func (w *world) record(_ context.Context, counts []pool.InferenceCounted) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sick != nil {
		return w.sick
	}
	w.recorded = append(w.recorded, counts...)
	return nil
}

func (w *world) AuthFailed(reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.auth[reason]++
}

func (w *world) Inferred(m domain.ModelID, code int, _ time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inferred[string(m)+" "+http.StatusText(code)]++
}

// answer is a response, read whole.
type answer struct {
	code   int
	header http.Header
	body   string
}

func (w *world) send(method, path, key, body string, headers ...string) answer {
	w.t.Helper()
	req, err := http.NewRequest(method, w.server.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := w.server.Client().Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

func (w *world) infer(body string, headers ...string) answer {
	w.t.Helper()
	return w.send("POST", "/v2/models/digits/infer", digitsKey, body, headers...)
}

// refused checks that an answer is the protocol's error, and that it says text.
func (a answer) refused(t testing.TB, code int, text string) {
	t.Helper()
	var m map[string]string
	err := json.Unmarshal([]byte(a.body), &m)
	if a.code != code || err != nil || len(m) != 1 || m["error"] == "" || !strings.Contains(m["error"], text) || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("got %d %s %q, want %d and an error that says %q", a.code, a.header.Get("Content-Type"), a.body, code, text)
	}
}

// decoded is a JSON answer of an inference.
type decoded struct {
	ModelName    string         `json:"model_name"`
	ModelVersion string         `json:"model_version"`
	ID           *string        `json:"id"`
	Parameters   map[string]any `json:"parameters"`
	Outputs      []struct {
		Name       string         `json:"name"`
		Datatype   string         `json:"datatype"`
		Shape      []int          `json:"shape"`
		Data       []any          `json:"data"`
		Parameters map[string]any `json:"parameters"`
	} `json:"outputs"`
}

func (a answer) decode(t testing.TB) (d decoded) {
	t.Helper()
	if a.code != 200 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	dec := json.NewDecoder(strings.NewReader(a.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return d
}
