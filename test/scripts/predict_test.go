package scripts

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tensorturn/domain"
	"tensorturn/test/kit"
	"tensorturn/test/plain"
)

// prediction asks a deployed model for two rows and gives its parameters.
func prediction(t *testing.T, p *kit.Pool, model string) (parameters map[string]any) {
	t.Helper()
	var k struct{ Key string }
	p.JSON(&k, "key", "create", "--model", model)
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
	client := &http.Client{Timeout: kit.Patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	row := strings.Repeat("0.5,", 2*plain.Features)
	req, err := http.NewRequest(http.MethodPost, p.URL+"/v2/models/"+model+"/infer",
		strings.NewReader(fmt.Sprintf(`{"inputs":[{"name":"input","datatype":"FP32","shape":[2,%d],"data":[%s]}]}`, plain.Features, strings.TrimSuffix(row, ","))))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+k.Key)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var said struct {
		Error      string
		Parameters map[string]any
		Outputs    []struct {
			Name string
			Data []any
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil || resp.StatusCode != 200 || len(said.Outputs) != 2 || len(said.Outputs[0].Data) != 2*plain.Classes {
		t.Fatalf("%d %+v %v", resp.StatusCode, said, err)
	}
	return said.Parameters
}

// What only an owner's program can run is deployed on agents without a word, and the hub refuses it by name.
func TestProgramsPredict(t *testing.T) {
	p, _ := start(t, "a", "b")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "note.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fused := submit(t, p, "good", 240, 2)
	members := fmt.Sprintf("mode: ensemble\ntrainer: process\ncommand: [%q, trainer, alone]\npredict: [%q, trainer, alone]\ncode: %s\nbatch: 8\nepochs: 2\nensemble: {members: 3}\n"+
		"data: {samples: 240, heldout: 40, features: %d, classes: %d}\n", exe, exe, dir, plain.Features, plain.Classes)
	named := p.Submit("name: named\noutput: model.safetensors\n" + members)
	wordless := p.Submit("name: wordless\n" + members)
	for _, id := range []domain.RunID{fused, named, wordless} {
		p.AwaitEnd(id)
	}

	if out := p.Run("model", "deploy", string(fused), "--name", "fused", "--on", "hub"); out.Code == 0 || !strings.Contains(out.Err, "--on agents") {
		t.Errorf("on the hub: %d %s", out.Code, out.Err)
	}
	if out := p.Run("model", "deploy", string(fused), "--name", "fused"); out.Code != 0 || !strings.Contains(out.Err, "on the agents") {
		t.Fatalf("%d %s", out.Code, out.Err)
	}
	prediction(t, p, "fused")
	for name, id := range map[string]domain.RunID{"named": named, "wordless": wordless} {
		if out := p.Run("model", "deploy", string(id), "--name", name); out.Code != 0 {
			t.Errorf("%s: %d %s", name, out.Code, out.Err)
			continue
		}
		if got := prediction(t, p, name); got["members_used"] != 3.0 {
			t.Errorf("%s: parameters %v", name, got)
		}
	}
	if s := p.Must("machine", "list"); strings.Contains(s, "quarantined") {
		t.Errorf("a machine was quarantined\n%s", s)
	}
}
