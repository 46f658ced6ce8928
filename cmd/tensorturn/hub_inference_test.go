package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/builtin"
	"tensorturn/broker/gateway/v2"
	"tensorturn/broker/identity"
	"tensorturn/broker/inference"
	"tensorturn/broker/memory"
	"tensorturn/broker/metrics"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/dataset"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
	"tensorturn/projections/models"
)

// deployedDigits is the API over the digits MLP, loaded as the hub loads it, with weights as they begin.
func deployedDigits(t testing.TB) (api *v2.API, key string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	blobs := memory.NewBlobs(time.Now, nil)
	store := func(b []byte) domain.Digest {
		w := blob.NewWriter(context.Background(), blobs.Put)
		_, err := w.Write(b)
		must(err)
		id, err := w.Close()
		must(err)
		return id
	}
	table, err := dataset.ParseCSV(bytes.NewReader(digits), dataset.CSVOptions{})
	must(err)
	var packed, weights bytes.Buffer
	facts, err := dataset.Pack(table, 0.2, 1, &packed)
	must(err)
	data := facts.Run(store(packed.Bytes()))
	spec, err := run.Resolve(demoSpec(), data)
	must(err)
	tr, err := builtin.Open(context.Background(), trainer.Job{Run: "r-1", Spec: spec, Dataset: data, Data: bytes.NewReader(packed.Bytes())})
	must(err)
	must(tr.Init(context.Background()))
	must(tr.Save(context.Background(), &weights))
	v := &inference.Version{Model: "digits", Number: 1, Run: "r-1", Spec: spec, Data: data, Weights: store(weights.Bytes()), Layout: safetensors.LayoutDigest(tr.Layout())}
	engine := inference.New(inference.Config{Blobs: blobs, Load: loadBuiltin, Now: time.Now, Logger: zerolog.Nop()})
	t.Cleanup(engine.Stop)
	k, err := identity.NewAPIKey(rand.Reader, pool.RoleModel)
	must(err)
	m := models.Model{Name: "digits", Serving: 1, Versions: []models.Version{{Version: 1, Run: "r-1", Kind: "mlp", Where: pool.WhereHub}}}
	api = v2.New(v2.Config{
		Identify: func(s string) (v2.Caller, *v2.Fault) {
			if identity.HashKey(s) != k.Hash() {
				return v2.Caller{}, &v2.Fault{Reason: "unknown", Why: "unknown"}
			}
			return v2.Caller{Role: pool.RoleModel, Key: k.ID(), Model: "digits", Rate: pool.MaxRate, Per: 1}, nil
		},
		Model:   func(domain.ModelID) (models.Model, bool) { return m, true },
		Version: func(models.Model, models.Version) (*inference.Version, error) { return v, nil },
		Backend: func(pool.Where) inference.Backend { return engine },
		Ready:   func() error { return nil }, Counts: metrics.New("v1", func() metrics.Gauges { return metrics.Gauges{} }),
		Record: func(context.Context, []pool.InferenceCounted) error { return nil }, Server: "v1", Now: time.Now, Logger: zerolog.Nop(), NoRates: true,
	})
	t.Cleanup(api.Stop)
	return api, k.Plain()
}

var digitsAsked = []byte(`{"inputs":[{"name":"input","shape":[1,64],"datatype":"FP32","data":[0,7,14,4,11,1,8,15,5,12,2,9,16,6,13,3,10,0,7,14,4,11,1,8,15,5,12,2,9,16,6,13,3,10,0,7,14,4,11,1,8,15,5,12,2,9,16,6,13,3,10,0,7,14,4,11,1,8,15,5,12,2,9,16]}]}`)

func askDigits(api *v2.API, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/v2/models/digits/infer", bytes.NewReader(digitsAsked))
	r.Header.Set("Authorization", "Bearer "+key)
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	return w
}

// A row of digits costs the hub, apart from TLS and HTTP, few allocations: make bench measures the whole.
func TestPredictionIsLean(t *testing.T) {
	api, key := deployedDigits(t)
	if w := askDigits(api, key); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	empty := testing.AllocsPerRun(100, func() {
		r := httptest.NewRequest(http.MethodPost, "/v2/models/digits/infer", bytes.NewReader(digitsAsked))
		r.Header.Set("Authorization", "Bearer "+key)
		httptest.NewRecorder()
	})
	full := testing.AllocsPerRun(100, func() { askDigits(api, key) })
	t.Logf("%.0f allocations a prediction", full-empty)
	if full-empty > 60 {
		t.Errorf("%.0f allocations a prediction", full-empty)
	}
}

func BenchmarkPrediction(b *testing.B) {
	api, key := deployedDigits(b)
	b.ReportAllocs()
	for b.Loop() {
		if w := askDigits(api, key); w.Code != 200 {
			b.Fatal(w.Code)
		}
	}
}
