package serving

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/test/kit"
)

var (
	binary string // what every test runs; TestMain builds it once
	python = flag.String("python", "", "a Python with tritonclient[http]")
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m, &binary)) }

const lease = 3 * time.Second

// digitsFile is the demo's data: 64 pixels and a label in each row.
const digitsFile = "../../cmd/tensorturn/demo/digits.csv.gz"

// spec is a run on the digits that takes a moment; more adds settings.
func spec(t *testing.T, seed int, more string) string {
	t.Helper()
	data, err := filepath.Abs(digitsFile)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("name: small-%d\nseed: %d\ndata: {path: %s}\nmodel: {kind: mlp, hidden: [32]}\nbatch: 32\nepochs: 5\nchunk: 128\n%s", seed, seed, data, more)
}

// trained is a pool with one machine and finished runs of the seeds.
func trained(t *testing.T, seeds ...int) (*kit.Pool, []domain.RunID) {
	t.Helper()
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	p.StartAgent("box")
	var ids []domain.RunID
	for _, s := range seeds {
		ids = append(ids, p.Submit(spec(t, s, "round: {chunks: 24}\n")))
	}
	for _, id := range ids {
		p.AwaitEnd(id)
	}
	return p, ids
}

// rows gives the first n rows of the digits and their labels.
func rows(t *testing.T, n int) (x [][]float32, labels []string) {
	t.Helper()
	f, err := os.Open(digitsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all, err := csv.NewReader(z).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all[1 : n+1] {
		row := make([]float32, len(r)-1)
		for i := range row {
			v, err := strconv.ParseFloat(r[i], 32)
			if err != nil {
				t.Fatal(err)
			}
			row[i] = float32(v)
		}
		x, labels = append(x, row), append(labels, r[len(r)-1])
	}
	return x, labels
}

// asker asks a deployed model with a key.
type asker struct {
	client *http.Client
	url    string
	key    string
}

// newKey makes a key for a model.
func newKey(t *testing.T, p *kit.Pool, model string, flags ...string) (id, secret string) {
	t.Helper()
	var k struct{ ID, Key string }
	p.JSON(&k, append([]string{"key", "create", "--model", model}, flags...)...)
	return k.ID, k.Key
}

func newAsker(t *testing.T, p *kit.Pool, key string) *asker {
	t.Helper()
	b, err := os.ReadFile(p.Context())
	if err != nil {
		t.Fatal(err)
	}
	var c struct{ CA string }
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(c.CA))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &asker{&http.Client{Transport: transport, Timeout: kit.Patience}, p.URL, key}
}

// said is an answer.
type said struct {
	Code       int
	Error      string
	Model      string         `json:"model_name"`
	Version    string         `json:"model_version"`
	Parameters map[string]any `json:"parameters"`
	Outputs    []struct {
		Name string
		Data []any
	}
}

// label is what it names in row i.
func (s said) label(i int) string {
	for _, o := range s.Outputs {
		if o.Name == "label" && i < len(o.Data) {
			return fmt.Sprint(o.Data[i])
		}
	}
	return ""
}

func (a *asker) infer(model string, x [][]float32) (s said, err error) {
	body, err := json.Marshal(map[string]any{"inputs": []any{map[string]any{"name": "input", "shape": []int{len(x), len(x[0])}, "datatype": "FP32", "data": x}}})
	if err != nil {
		return s, err
	}
	return a.send(http.MethodPost, "/v2/models/"+model+"/infer", body)
}

func (a *asker) send(method, path string, body []byte) (s said, err error) {
	req, err := http.NewRequest(method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return s, err
	}
	req.Header.Set("Authorization", "Bearer "+a.key)
	resp, err := a.client.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("%w in %s", err, b)
	}
	s.Code = resp.StatusCode
	return s, nil
}
