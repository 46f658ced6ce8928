// Package gpu tests the script of the GPU checks where there is no GPU: what it says, and with which code it ends. The checks themselves
// need a GPU: run.sh.
package gpu

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	listed  = "echo 'GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-11111111-2222)'"
	passing = `case "$1" in -c) echo "$0";; *) echo '{"ok":true,"gpu":"x","checks":[]}';; esac`
	failing = `case "$1" in -c) echo "$0";; *) echo '{"ok":false,"gpu":"x","checks":[]}'; exit 1;; esac`
)

// TestRunScript: every ending prints one line of JSON on standard output and nothing else there.
func TestRunScript(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash")
	}
	for _, c := range []struct {
		name, smi, python string
		code              int
		ok                bool
		why               string
	}{
		{"no nvidia-smi", "", passing, 3, false, "no GPU"},
		{"a driver that is not loaded", "echo 'NVIDIA-SMI has failed' >&2; exit 9", passing, 3, false, "no GPU"},
		{"a driver that knows no GPU", "echo 'No devices were found'; exit 6", passing, 3, false, "no GPU"},
		{"no python", listed, "", 2, false, "no Python"},
		{"a python that does not start", listed, "exit 127", 2, false, "does not start"},
		{"all checks pass", listed, passing, 0, true, ""},
		{"a check fails", listed, failing, 1, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, script := range map[string]string{"nvidia-smi": c.smi, "pytest3": c.python, "tensorturn": "exit 1"} {
				if script == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if c.smi == "" { // one of this machine's own must not be found
				if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\nexit 127\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("bash", "run.sh")
			cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "PYTHON=pytest3", "TENSORTURN="+filepath.Join(dir, "tensorturn"), "TMPDIR="+dir)
			out, err := cmd.Output()
			code := 0
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				code = exit.ExitCode()
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			var said struct {
				OK  *bool  `json:"ok"`
				Why string `json:"why"`
			}
			if len(lines) != 1 || json.Unmarshal([]byte(lines[0]), &said) != nil || said.OK == nil {
				t.Fatalf("code %d, standard output %q", code, out)
			}
			if code != c.code || *said.OK != c.ok || !strings.Contains(said.Why, c.why) {
				t.Errorf("code %d, %s", code, out)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "tmp.*")); len(left) != 0 {
				t.Errorf("%v stays", left)
			}
		})
	}
}
