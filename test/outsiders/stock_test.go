package outsiders

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

// fenced gives the code in the README's first block of the language.
func fenced(t *testing.T, o observer, language string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(o.Dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "```"+language+"\n")
	code, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatalf("no %s in %s", language, b)
	}
	return code
}

// program is another system's process.
type program struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	out bytes.Buffer
}

func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *program) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func start(t *testing.T, dir string, argv ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(argv[0], argv[1:]...)}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a shell's children end with it
	p.cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

func (p *program) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	_ = p.cmd.Wait()
}

// TestPythonReadsDurably runs the README's lines as they are: over a restart of the hub and one of their own.
func TestPythonReadsDurably(t *testing.T) {
	if *python == "" {
		t.Skip("no -python: make test-outsiders brings one")
	}
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	p.StartAgent("a", "--throttle", "0.004")
	id := p.Submit(spec(t, 4))
	o := newObserver(t, p, "--run", string(id))
	code := fenced(t, o, "python")
	if n := strings.Count(code, "\n"); n > 12 {
		t.Errorf("the README's program has %d lines", n)
	}
	// What is read is written down with its id instead of its summary, and nothing else is changed.
	script := filepath.Join(o.Dir, "read.py")
	if err := os.WriteFile(script, []byte(strings.Replace(code, `["summary"]`, `["id"]`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	one := start(t, o.Dir, *python, script)
	p.AwaitRun(id, "some chunks", func(r runs.Run) bool { return trained(r) >= 12 })
	p.Hub.Kill()
	p.StartHub()
	p.AwaitRun(id, "more chunks", func(r runs.Run) bool { return trained(r) >= 24 })
	one.kill()
	p.AwaitEnd(id)
	want := truth(t, p, "--run", string(id))
	two := start(t, o.Dir, *python, script)
	missing := func() (ids []string) { // what else the client prints, such as a link that was reset, is not counted
		said := strings.Fields(one.String() + "\n" + two.String())
		for _, e := range want {
			if !slices.Contains(said, e.ID) {
				ids = append(ids, e.ID)
			}
		}
		return ids
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%d of %d are missing: %v; the first program said\n%s\nthe second\n%s", len(missing()), len(want), missing(), one, two)
		}
	})
	p.Await("Python to read the rest", func() bool { return len(missing()) == 0 })
	if a, b := len(strings.Fields(one.String())), len(strings.Fields(two.String())); a == 0 || b == 0 {
		t.Errorf("the first program read %d events, the second %d", a, b)
	}
	t.Logf("%d events", len(want))
}

func trained(r runs.Run) int {
	n := 0
	for _, s := range r.Slots {
		n += s.Chunks
	}
	return n
}

// TestNatsToolFollows runs the README's command as it is.
func TestNatsToolFollows(t *testing.T) {
	if *tool == "" {
		t.Skip("no -nats: make test-outsiders brings one")
	}
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	o := newObserver(t, p)
	t.Setenv("PATH", filepath.Dir(*tool)+string(os.PathListSeparator)+os.Getenv("PATH"))
	follow := start(t, o.Dir, "bash", "-c", "exec 2>&1; "+fenced(t, o, "sh"))
	p.StartAgent("a")
	id := p.Submit(spec(t, 1))
	p.AwaitEnd(id)
	began := time.Now()
	p.Await("the nats tool to show the end", func() bool {
		return strings.Contains(follow.String(), "tt.v1.events.run."+string(id)+".run_completed")
	})
	t.Logf("seen %s after the end", time.Since(began).Round(time.Millisecond))
	for _, e := range truth(t, p) {
		if !strings.Contains(follow.String(), `"`+e.ID+`"`) {
			t.Errorf("%s was not shown", e.ID)
		}
	}
}
