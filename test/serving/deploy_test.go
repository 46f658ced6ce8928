package serving

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tensorturn/test/kit"
)

// accuracy asks for all rows and gives the fraction named rightly.
func accuracy(t *testing.T, a *asker, model string, x [][]float32, labels []string) (float64, said) {
	t.Helper()
	s, err := a.infer(model, x)
	if err != nil || s.Code != 200 {
		t.Fatalf("%d %s %v", s.Code, s.Error, err)
	}
	right := 0
	for i, l := range labels {
		if s.label(i) == l {
			right++
		}
	}
	return float64(right) / float64(len(labels)), s
}

// A model's life: deployed, asked, deployed again, gone back to, retired, deployed again; over a restart of the hub.
func TestModelLife(t *testing.T) {
	p, ids := trained(t, 1, 2)
	x, labels := rows(t, 300)
	p.Must("model", "deploy", string(ids[0]), "--name", "digits")
	id, key := newKey(t, p, "digits")
	a := newAsker(t, p, key)
	version := func(want string) {
		t.Helper()
		acc, s := accuracy(t, a, "digits", x, labels)
		if s.Version != want || acc < 0.85 {
			t.Errorf("version %s answers with accuracy %.3f, want version %s", s.Version, acc, want)
		}
	}
	version("1")
	p.Must("model", "deploy", string(ids[1]), "--name", "digits")
	version("2")
	p.Must("model", "rollback", "digits")
	version("1")
	if s, err := a.send("POST", "/v2/models/digits/versions/2/infer", oneRow(x)); err != nil || s.Version != "2" {
		t.Errorf("the newer version by its number: %+v %v", s, err)
	}
	p.Must("model", "rollback", "digits", "--to", "2")
	version("2")

	p.Hub.Stop(kit.Patience)
	p.StartHub()
	version("2")
	if list := p.Must("model", "list"); !strings.Contains(list, "serving") || !strings.Contains(list, "kept") {
		t.Errorf("list\n%s", list)
	}
	p.Must("model", "retire", "digits")
	if s, err := a.infer("digits", x[:1]); err != nil || s.Code != 404 || s.Error == "" {
		t.Errorf("retired: %+v %v", s, err)
	}
	p.Must("model", "deploy", string(ids[0]), "--name", "digits")
	version("3")
	p.Must("key", "revoke", id)
	if s, err := a.infer("digits", x[:1]); err != nil || s.Code != 401 || !strings.Contains(s.Error, "revoked") {
		t.Errorf("revoked: %+v %v", s, err)
	}

	// Stopping the hub wrote what was asked; the whole log still verifies.
	p.Hub.Stop(kit.Patience)
	p.StartHub()
	events := p.Must("events", "--kind", "pool")
	if !strings.Contains(events, "key "+id+" asked model digits version 1 2 times for 600 rows") {
		t.Errorf("no digest of usage in\n%s", events)
	}
	if strings.Contains(events, key) {
		t.Error("the key stands in the events")
	}
	p.Must("log", "verify")
}

func oneRow(x [][]float32) []byte {
	b, _ := json.Marshal(map[string]any{"inputs": []any{map[string]any{"name": "input", "shape": []int{1, 64}, "datatype": "FP32", "data": x[0]}}})
	return b
}

// What cannot be deployed is refused with a reason: a run under way, one that is not there, a name that cannot stand in URLs.
func TestDeployRefusals(t *testing.T) {
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	id := string(p.Submit(spec(t, 1, "")))
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{6, "it has not ended", []string{"model", "deploy", id, "--name", "digits"}},
		{3, "no such run", []string{"model", "deploy", "nothing", "--name", "digits"}},
		{2, "--name is missing", []string{"model", "deploy", id}},
		{3, "no model of this name", []string{"model", "rollback", "digits"}},
		{3, "no model of this name", []string{"model", "retire", "digits"}},
		{2, "not an id", []string{"model", "retire", "Digits/x"}},
	} {
		if s := p.Run(c.args...); s.Code != c.code || !strings.Contains(s.Err, c.text) || !strings.Contains(s.Err, "hint: ") {
			t.Errorf("%v: exit code %d\n%s", c.args, s.Code, s.Err)
		}
	}
	p.Must("run", "cancel", id)
	if s := p.Run("model", "deploy", id, "--name", "digits"); s.Code != 6 || !strings.Contains(s.Err, "merged no round") {
		t.Errorf("cancelled: %d %s", s.Code, s.Err)
	}
}

// NVIDIA's client works unmodified: JSON and bytes, every call it has for models like ours, a wrong key refused, and the hub's
// own CA over TLS.
func TestTritonClient(t *testing.T) {
	if *python == "" {
		t.Skip("no Python with tritonclient: make test-v2-client brings one")
	}
	p, ids := trained(t, 1)
	p.Must("model", "deploy", string(ids[0]), "--name", "digits")
	_, key := newKey(t, p, "digits")
	x, labels := rows(t, 200)
	dir := t.TempDir()
	var table strings.Builder
	for i, r := range x {
		for _, v := range r {
			b, _ := json.Marshal(v)
			table.Write(append(b, ','))
		}
		table.WriteString(labels[i] + "\n")
	}
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	resp, err := newAsker(t, p, "").client.Get(p.URL + "/install/ca.pem")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	ca, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(*python, "triton.py", strings.TrimPrefix(p.URL, "https://"), write("ca.pem", string(ca)), "digits", key, write("rows.csv", table.String()))
	var errw strings.Builder
	c.Stderr = &errw
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, errw.String())
	}
	var got map[string]any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for name, want := range map[string]string{
		"live": `true`, "ready": `true`, "model_ready": `true`, "version_ready": `true`, "no_version_ready": `false`, "equal": `true`, "async": `true`,
		"default": `["probabilities","label"]`, "types": `{"FP16":true,"FP64":true,"INT32":true,"INT64":true,"UINT8":true}`, "foreign_ca": `"SSLCertVerificationError"`,
	} {
		if b, _ := json.Marshal(got[name]); string(b) != want {
			t.Errorf("%s is %s, want %s", name, b, want)
		}
	}
	for name, code := range map[string]string{"wrong_key": "401", "no_key": "401", "other_model": "403", "bad_shape": "400"} {
		if l, ok := got[name].([]any); !ok || l[0] != code || l[1] == "" {
			t.Errorf("%s: %v, want %s and a reason", name, got[name], code)
		}
	}
	for _, how := range []string{"text", "bytes", "mixed"} {
		a, _ := got[how].(map[string]any)
		if acc, _ := a["accuracy"].(float64); acc < 0.85 || a["id"] != "42" || a["version"] != "1" || a["sums"] != true {
			t.Errorf("%s: %v", how, a)
		}
	}
	t.Logf("%s", out)
}
