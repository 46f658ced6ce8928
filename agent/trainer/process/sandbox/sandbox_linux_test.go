package sandbox

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == HelperWord {
		os.Exit(Main(os.Args[1:]))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("os/signal.loop"), goleak.IgnoreTopFunction("os/signal.signal_recv"))
}

// Each thing a program must not do, with the sandbox and without: what is refused within succeeds outside, so that the
// table can fail.
func TestProof(t *testing.T) {
	found, _, why := available()
	if len(found) == 0 {
		t.Skipf("this machine has no sandbox: %s", strings.Join(why, "; "))
	}
	for _, w := range why {
		t.Logf("not tried: %s", w)
	}
	for _, b := range append(found, None) {
		t.Run(string(b), func(t *testing.T) {
			r := Only(t.Context(), b, t.TempDir()).Report()
			t.Log(r)
			if len(r.Tries) != len(needed)+1 {
				t.Fatalf("%d things were tried: %s", len(r.Tries), r.Why)
			}
			for _, try := range r.Tries {
				t.Logf("%-38s refused %-5v %s", try.What, try.Refused, try.Note)
				want := b != None
				if try.What == TryUnix && b == Landlock && landlockVersion() < 9 {
					want = false // older versions do not know named sockets; the report says "partial"
				}
				if try.Refused != want {
					t.Errorf("%s: refused is %v: %s", try.What, try.Refused, try.Note)
				}
			}
		})
	}
}

// What the policy names is given: the network, a tree to read. What it hides within such a tree is not, where the backend can.
func TestPolicyIsGiven(t *testing.T) {
	found, _, why := available()
	if len(found) == 0 {
		t.Skipf("this machine has no sandbox: %s", strings.Join(why, "; "))
	}
	for _, b := range found {
		t.Run(string(b), func(t *testing.T) {
			s := Only(t.Context(), b, t.TempDir())
			got := tried(t, s, func(p *Policy, st *stage) { p.Network, p.Read, p.Hide = true, append(p.Read, st.dir), nil })
			for _, what := range []string{TryTCP, TryUDP, TrySecret} {
				if got[what] {
					t.Errorf("%s is refused", what)
				}
			}
			for _, what := range []string{TryWrite, TrySignal, TryEnviron} {
				if !got[what] {
					t.Errorf("%s is not refused", what)
				}
			}
			hidden := tried(t, s, func(p *Policy, st *stage) { p.Read, p.Hide = append(p.Read, st.dir), []string{st.dir} })
			if hidden[TrySecret] != (b == Bubblewrap) {
				t.Errorf("a hidden secret is refused: %v", hidden[TrySecret])
			}
		})
	}
}

// tried lets the helper try everything under an edited policy and says what was refused.
func tried(t *testing.T, s *Sandbox, edit func(*Policy, *stage)) map[string]bool {
	t.Helper()
	st, err := newStage(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.close()
	p := System()
	p.Read, p.Write, p.Dir = append(p.Read, s.exe), []string{st.inside}, st.inside
	edit(&p, st)
	words := s.Wrap(p, line(s.exe, errand{Proof: &st.attempt}, nil))
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var o outcome
	if err != nil || json.Unmarshal(out, &o) != nil {
		t.Fatalf("%v: %s", err, out)
	}
	refused := map[string]bool{}
	for _, try := range st.judge(o) {
		refused[try.What] = try.Refused
	}
	return refused
}

// The limits of a process hold, with and without a sandbox.
func TestLimits(t *testing.T) {
	for _, b := range []Backend{None, Landlock, Bubblewrap} {
		t.Run(string(b), func(t *testing.T) {
			s := Only(t.Context(), b, t.TempDir())
			if b != None && !s.Holds() {
				t.Skip(s.Report())
			}
			dir := t.TempDir()
			p := System()
			p.Write, p.Dir, p.Data, p.File = []string{dir}, dir, 256<<20, 1<<20
			for script, want := range map[string]string{
				"ulimit -d; ulimit -f; ulimit -c":                           "262144\n2048\n0\n",
				"head -c 2000000 /dev/zero > big; stat -c %s big":           "1048576\n",
				"awk 'BEGIN{s=\"x\"; while(length(s)<1e9) s=s s; print 1}'": "",
			} {
				words := s.Wrap(p, []string{"sh", "-c", script})
				cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
				cmd.Dir = dir
				var said bytes.Buffer
				cmd.Stderr = &said
				out, err := cmd.Output()
				if string(out) != want {
					t.Errorf("%s: %q, %v, %s", script, out, err, said.Bytes())
				}
			}
		})
	}
}

func TestHomeIsNoInterpreter(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for path, want := range map[string]bool{"/": false, home: false, filepath.Dir(home): false, filepath.Join(home, "venv", "lib"): true, "relative": false} {
		if got := len(appendReal(nil, path)) > 0; got != want {
			t.Errorf("%s is taken: %v", path, got)
		}
	}
	if p := Interpreter(t.Context(), "/usr/bin/env"); !slices.Contains(p, "/usr/bin/env") {
		t.Errorf("%v", p)
	}
}

func TestChooseTakesTheStrongest(t *testing.T) {
	s := Choose(t.Context(), t.TempDir())
	t.Log(s.Report())
	if _, err := exec.LookPath("bwrap"); err == nil && s.backend != Bubblewrap {
		t.Errorf("it takes %s: %s", s.backend, s.Report())
	}
	if s.Holds() != (s.backend != None) {
		t.Error("a sandbox was chosen that does not hold")
	}
}

// A program has three files and none that the agent was started with.
func TestNoInheritedFiles(t *testing.T) {
	secret, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	for _, b := range []Backend{None, Landlock, Bubblewrap} {
		t.Run(string(b), func(t *testing.T) {
			s := Only(t.Context(), b, t.TempDir())
			if b != None && !s.Holds() {
				t.Skipf("this machine cannot: %s", s.Report())
			}
			words := s.Wrap(System(), []string{"/bin/sh", "-c", "test ! -e /proc/$$/fd/9"})
			cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
			cmd.ExtraFiles = slices.Repeat([]*os.File{secret}, 7) // 3 to 9
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
