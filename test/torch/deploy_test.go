package torch

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// maxCommands is how many the README takes from nothing to a prediction.
const maxCommands = 8

// typed is a reader's terminal: what goes on in the background is waited for, until it says that it works.
const typed = `set -euo pipefail
tensorturn() {
	case "$1 ${2-}" in
	"hub start" | "agent start") command tensorturn "$@" >"$SAID.$BASHPID" 2>&1 ;;
	"token create") until command tensorturn "$@" 2>/dev/null; do read -rt 0.2 <> <(:) || :; done ;;
	*) command tensorturn "$@" ;;
	esac
}
`

// block gives the commands of the README's way from a script to a prediction, and how many they are.
func block(t *testing.T) (text string, commands int) {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(b), "```sh\n")[1:] {
		text, _, _ = strings.Cut(part, "```")
		if !strings.Contains(text, "examples/torch/mlp.yaml") {
			continue
		}
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				commands++
			}
		}
		return text, commands
	}
	t.Fatal("the README has no such block")
	return "", 0
}

// The README's block is typed as it stands: three agents, a PyTorch script, a deployment, and one prediction over HTTPS.
func TestWholeWayToAPrediction(t *testing.T) {
	py := python(t)
	text, commands := block(t)
	if commands > maxCommands {
		t.Errorf("%d commands, at most %d", commands, maxCommands)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	home := t.TempDir()
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(home, "examples")); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(home, "bin") // python3 on PATH is the one with torch
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"tensorturn": binary, "python3": py} {
		if err := os.Symlink(to, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	said, err := os.Create(filepath.Join(home, "terminal"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	began := time.Now()
	c := exec.CommandContext(ctx, "bash", "-c", typed+strings.ReplaceAll(text, "127.0.0.1:7443", address))
	c.Dir, c.Stdout, c.Stderr = home, said, said
	c.Env = append(os.Environ(), "HOME="+home, "XDG_DATA_HOME="+home, "PATH="+bin+":"+os.Getenv("PATH"), "SAID="+filepath.Join(home, "said"), "OMP_NUM_THREADS=1")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }) // the hub and the agents
	err = c.Wait()
	out, _ := os.ReadFile(said.Name())
	if err != nil || !regexp.MustCompile(`"name":"label".*"data":\["9"\]`).Match(out) { // the tenth class: ankle boots
		t.Errorf("%v\n%s", err, out)
		logs, _ := filepath.Glob(filepath.Join(home, "said.*"))
		for _, f := range logs {
			b, _ := os.ReadFile(f)
			t.Logf("%s", b)
		}
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	t.Logf("%d commands, %s: %s", commands, time.Since(began).Round(time.Second), lines[len(lines)-1])
}
