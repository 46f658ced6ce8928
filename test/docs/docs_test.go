package docs

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tensorturn/test/kit"
)

//go:embed prelude.sh
var prelude string

var binary string // what every block runs; TestMain builds it once

func TestMain(m *testing.M) { os.Exit(kit.Main(m, &binary)) }

// patience bounds one block.
const patience = 3 * time.Minute

// reader is somebody who types a document's blocks into one terminal.
type reader struct {
	t     testing.TB
	home  string
	state string
	hub   string // address
}

func newReader(t testing.TB) *reader {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, home: t.TempDir(), state: t.TempDir(), hub: l.Addr().String()}
	l.Close()
	for name, text := range map[string]string{"cwd": filepath.Join(r.home, "tensorturn-src"), "env": "", "token": ""} {
		if err := os.WriteFile(filepath.Join(r.state, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.checkout()
	return r
}

// checkout gives the reader the repository's files, as somebody has them who cloned it.
func (r *reader) checkout() {
	r.t.Helper()
	c := exec.Command("bash", "-c", `git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -cf - -T - 2>/dev/null | tar -xf - -C "$1"`, "sh", r.home+"/tensorturn-src")
	c.Dir = filepath.Join("..", "..")
	if err := os.Mkdir(filepath.Join(r.home, "tensorturn-src"), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if out, err := c.CombinedOutput(); err != nil {
		r.t.Fatalf("%v\n%s", err, out)
	}
}

// run types a block. What it leaves running ends with the test.
func (r *reader) run(text string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	text = strings.ReplaceAll(text, "hub.example.org:7443", r.hub)
	c := exec.Command("bash", "-c", prelude+"\n"+text)
	c.Env = []string{"HOME=" + r.home, "PATH=" + filepath.Dir(binary) + ":" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "TERM=dumb",
		"DOCS_STATE=" + r.state, "DOCS_HUB=" + r.hub, "GOCACHE=" + goEnv(r.t, "GOCACHE"), "GOMODCACHE=" + goEnv(r.t, "GOMODCACHE")}
	var out bytes.Buffer
	file, err := os.CreateTemp(r.state, "said")
	if err != nil {
		r.t.Fatal(err)
	}
	defer file.Close()
	c.Stdout, c.Stderr = file, file // a file: what goes on in the background must not hold a pipe open
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	stop := context.AfterFunc(ctx, func() { syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	defer stop()
	err = c.Wait()
	if said, no := os.ReadFile(file.Name()); no == nil {
		out.Write(said)
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("it did not end within %s", patience)
	}
	return out.String(), err
}

func goEnv(t testing.TB, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestDocuments runs every shell block of every document.
func TestDocuments(t *testing.T) {
	out, err := exec.Command("git", "-C", filepath.Join("..", ".."), "ls-files", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	ran, left := 0, 0
	for _, file := range strings.Fields(string(out)) {
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		bs, err := blocks(file, string(text))
		if err != nil {
			t.Error(err)
		}
		a, b := runAll(t, bs)
		ran, left = ran+a, left+b
	}
	if t.Logf("%d blocks were run, %d say that they need another place", ran, left); left > maxElsewhere {
		t.Errorf("%d blocks are not run, at most %d may be", left, maxElsewhere)
	}
	if ran < 5 {
		t.Errorf("only %d blocks were found: are they marked sh?", ran)
	}
}

// runAll types the blocks of one document.
func runAll(t *testing.T, bs []block) (ran, left int) {
	t.Helper()
	var r *reader
	for _, b := range bs {
		isShell, err := b.shell()
		if err != nil {
			t.Error(err)
		}
		if isShell && b.reason() != "" {
			t.Logf("%s:%d is not run: %s", b.file, b.line, b.reason())
			left++
			continue
		}
		if r == nil && (isShell || b.named() != "") {
			r = newReader(t)
		}
		if name := b.named(); name != "" {
			if err := r.write(name, b.text); err != nil {
				t.Fatal(err)
			}
		}
		if !isShell {
			continue
		}
		ran++
		began := time.Now()
		if said, err := r.run(b.text); err != nil {
			t.Fatalf("%s:%d: %v\n%s\nsaid:\n%s", b.file, b.line, err, b.text, said)
		}
		t.Logf("%s:%d took %s", b.file, b.line, time.Since(began).Round(time.Millisecond))
	}
	return ran, left
}

// write makes a file in the reader's present folder; one that the repository has is already there.
func (r *reader) write(name, text string) error {
	dir, err := os.ReadFile(filepath.Join(r.state, "cwd"))
	if err != nil {
		return err
	}
	path := filepath.Join(strings.TrimSpace(string(dir)), name)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return os.WriteFile(path, []byte(text), 0o600)
}
