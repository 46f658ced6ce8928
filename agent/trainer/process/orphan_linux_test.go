package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tensorturn/agent/trainer/process/sandbox"
	"tensorturn/domain/run"
)

// alive lists the processes that carry the mark in their environment, by reading /proc on its own.
func alive(t *testing.T, mark string) (pids []string) {
	t.Helper()
	envs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range envs {
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(mark)) {
			pids = append(pids, strings.Split(path, "/")[2])
		}
	}
	return pids
}

func gone(t *testing.T, unit string) {
	t.Helper()
	if pids := alive(t, "TENSORTURN_UNIT_ID="+unit); len(pids) > 0 {
		t.Errorf("processes %v live on", pids)
	}
}

// A process that left its group and its session is found all the same.
func TestOrphansEnd(t *testing.T) {
	o := newOpener(t, nil)
	tr := opened(t, o, "orphans")
	unit := tr.(*Trainer).unit
	if _, err := tr.Train(t.Context(), 0, nil); err == nil {
		t.Fatal("the script did not end")
	}
	if len(alive(t, "TENSORTURN_UNIT_ID="+unit)) == 0 {
		t.Fatal("there is no orphan: the test shows nothing")
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	gone(t, unit)
}

// What an agent left behind that was killed is ended by the next one, and its folders are removed.
func TestNextAgentSweeps(t *testing.T) {
	root := t.TempDir()
	o := newOpener(t, func(o *Options) { o.Root = root })
	dir := filepath.Join(o.opts.Root, "work", "r-0-0-abc", "x")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1000")
	cmd.Env = append(os.Environ(), "TENSORTURN_WORK_DIR="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	newOpener(t, func(o *Options) { o.Root = root })
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("it ended with %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(root, "work")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// The child dies with the agent, even when that is killed.
func TestTrainerDiesWithItsAgent(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	agent := exec.Command(exe, "-test.run=^TestAgentInAChild$", "-test.v")
	agent.Env = append(os.Environ(), "PROCESS_TEST_AGENT=1")
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	unit := ""
	buf := make([]byte, 1<<16)
	for n := 0; unit == "" && err == nil; {
		var k int
		k, err = out.Read(buf[n:])
		n += k
		if _, rest, ok := strings.Cut(string(buf[:n]), "unit="); ok {
			if u, _, ok := strings.Cut(rest, "\n"); ok {
				unit = u
			}
		}
	}
	if len(alive(t, "TENSORTURN_UNIT_ID="+unit)) != 1 {
		t.Errorf("no trainer runs for %q", unit)
	}
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()
	for i := 0; i < 1000 && len(alive(t, "TENSORTURN_UNIT_ID="+unit)) > 0; i++ { // the kernel sends the signal as the last thread ends
	}
	gone(t, unit)
}

// TestAgentInAChild is the agent of the test above; by itself it does nothing.
func TestAgentInAChild(t *testing.T) {
	if os.Getenv("PROCESS_TEST_AGENT") == "" {
		t.Skip("runs as the child of another test")
	}
	tr, err := newOpener(t, nil).Open(t.Context(), jobFor(t, "good"))
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString("unit=" + tr.(*Trainer).unit + "\n")
	select {}
}

// A process that has thrown away the unit's mark as well, with its group and its session, is known by its parent.
func TestOrphanWithoutAMarkEnds(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("no setsid here")
	}
	for _, b := range []sandbox.Backend{sandbox.None, sandbox.Landlock, sandbox.Bubblewrap} {
		t.Run(string(b), func(t *testing.T) {
			edit := held(t, b)
			o := newOpener(t, func(o *Options) {
				edit(o)
				o.WatchEvery = 20 * time.Millisecond
			})
			long := fmt.Sprintf("86400.%d", os.Getpid())
			tr, err := o.Open(t.Context(), memberJob(t, "alone", func(s *run.Spec) {
				s.Command = []string{"sh", "-c", "env -i setsid -f sleep " + long + "; sleep 1; exit 1"}
			}))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tr.Train(t.Context(), 0, nil); err == nil {
				t.Error("the script did not end")
			}
			if b != sandbox.Bubblewrap && len(sleeping(t, long)) == 0 {
				t.Error("there is no orphan: the test shows nothing")
			}
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
			if left := sleeping(t, long); len(left) > 0 {
				t.Errorf("%v live on", left)
			}
		})
	}
}

// sleeping lists the processes that are sleep for so long.
func sleeping(t *testing.T, long string) (found []string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		if b, err := os.ReadFile(path); err == nil && string(b) == "sleep\x00"+long+"\x00" {
			found = append(found, path)
		}
	}
	return found
}
