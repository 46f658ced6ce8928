package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tensorturn/agent/doctor"
	"tensorturn/broker/identity"
)

// contents is the text of all files of an archive.
func contents(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("== " + h.Name + "\n")
		if _, err := io.Copy(&out, r); err != nil {
			t.Fatal(err)
		}
	}
}

// Secrets of the folder, of the environment and of the command line, planted in config, logs and variables, do not leave with the support
// archive of an agent or a hub; what helps does.
func TestPlantedSecretsStay(t *testing.T) {
	c := newClinic(t)
	const variable, told, long = "plain-words-of-a-variable", "kept-in-a-script", "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4"
	t.Setenv("DATABASE_URL", "postgres://u:"+variable+"@db/x")
	t.Setenv("MY_OWN_SETTING", variable)
	t.Setenv("LANG", "C.UTF-8")
	keys, err := identity.LoadAgentKeys(filepath.Join(c.agent, agentKeysFile))
	c.must(err)
	seed, err := keys.Key().Seed()
	c.must(err)
	token := c.token()
	operator, err := loadContext(c.hub.contextFile())
	c.must(err)
	secrets := map[string]string{"variable": variable, "seed": string(seed), "credential": keys.Credential, "token": token, "operator key": operator.Key, "said by name": told, "a line of a private key": long}
	everywhere := len(secrets) // these no folder's archive holds; the lines of the hub's keys are known on the hub alone
	inKeys := map[string]string{}
	c.must(filepath.WalkDir(filepath.Join(c.hub.opts.dir, "keys"), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasSuffix(path, ".crt") {
			b, err := os.ReadFile(path)
			c.must(err)
			for line := range strings.Lines(string(b)) {
				if line = strings.TrimSpace(line); len(line) > 20 && !strings.HasPrefix(line, "-----") {
					inKeys[path] = line
				}
			}
		}
		return err
	}))
	if everywhere != 7 || len(inKeys) < 8 {
		t.Fatalf("only %d and %d secrets are planted", everywhere, len(inKeys))
	}
	var lines strings.Builder
	for _, planted := range []map[string]string{secrets, inKeys} {
		for _, s := range planted {
			lines.WriteString("it uses " + s + " here\n")
		}
	}
	text := strings.ReplaceAll(lines.String(), "it uses "+told+" here", "password="+told)
	text = strings.ReplaceAll(text, "it uses "+long+" here", "-----BEGIN PRIVATE KEY-----\n"+long+"\n-----END PRIVATE KEY-----") + "a line that helps\n"
	log := filepath.Join(t.TempDir(), "hub.log")
	c.must(os.WriteFile(log, []byte(text), 0o600))
	c.must(os.MkdirAll(filepath.Join(c.agent, "trainers", "logs"), 0o700))
	c.must(os.WriteFile(filepath.Join(c.agent, "trainers", "logs", "r-1-0.0"), []byte(text+"loss 0.5\n"), 0o600))
	damaged := t.TempDir() // its seed is still one
	b, err := os.ReadFile(filepath.Join(c.agent, agentKeysFile))
	c.must(err)
	c.must(os.WriteFile(filepath.Join(damaged, agentKeysFile), b[:len(b)-5], 0o600))
	for name, p := range map[string]struct {
		dir   string
		helps []string
	}{
		"agent":         {c.agent, []string{`"nkey": "` + keys.NKey(), c.hub.url, "loss 0.5", string(keys.Machine), "LANG=C.UTF-8", "DATABASE_URL=(set)", "a line that helps"}},
		"damaged agent": {damaged, []string{string(doctor.KeysDamaged), "a line that helps"}},
		"hub":           {c.hub.opts.dir, []string{c.hub.url, "the hub is ready", "operator.json", "a line that helps"}},
	} {
		file := filepath.Join(t.TempDir(), name+".tar.gz")
		x, out, code := c.diagnoseOnce(nil, "--dir", p.dir, "--bundle", file, "--log", log, "--token", token)
		if code > 1 || x.Bundle != file {
			t.Fatalf("%s: exit code %d\n%s", name, code, out)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: others may read it: %v %v", name, info.Mode(), err)
		}
		all := contents(t, file)
		for _, planted := range []map[string]string{secrets, inKeys} {
			for what, s := range planted {
				if strings.Contains(all, s) && (secrets[what] != "" || name == "hub") {
					t.Errorf("%s: the %s has left", name, what)
				}
			}
		}
		for _, h := range p.helps {
			if !strings.Contains(all, h) {
				t.Errorf("%s: %q is missing", name, h)
			}
		}
		if _, _, code := c.diagnoseOnce(nil, "--dir", p.dir, "--bundle", file); code != exitConflict {
			t.Errorf("%s: written over the archive that was there: exit code %d", name, code)
		}
	}
}

// diagnoseOnce runs the command once, as programs do.
func (c *clinic) diagnoseOnce(change func(*doctor.Probes), words ...string) (found examined, text string, code int) {
	c.t.Helper()
	var out bytes.Buffer
	a := quietApp(&out)
	a.examine = well
	root := newRoot(a)
	root.SetArgs(append(append([]string{"doctor"}, words...), "--json"))
	code = exitCode(root.ExecuteContext(c.t.Context()))
	_ = json.Unmarshal(out.Bytes(), &found) // a refusal prints nothing here
	return found, out.String(), code
}
