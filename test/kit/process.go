package kit

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Patience bounds every wait for something that should happen at once on an idle machine.
const Patience = 60 * time.Second

// tailLines of each process are printed when a test has failed.
const tailLines = 40

// Process is a running copy of the binary. Its output goes to a file, appended to over restarts.
type Process struct {
	Name string
	Log  string // file
	tb   testing.TB
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait, behind done
}

// Spawn starts the binary with args. The process is killed when the test ends.
func (p *Pool) Spawn(name string, args ...string) *Process {
	p.tb.Helper()
	return p.SpawnWith(name, nil, args...)
}

// SpawnWith is Spawn with variables added to the environment.
func (p *Pool) SpawnWith(name string, env []string, args ...string) *Process {
	p.tb.Helper()
	pr := &Process{Name: name, Log: filepath.Join(p.Dir, name+".log"), tb: p.tb, done: make(chan struct{})}
	out, err := os.OpenFile(pr.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.tb.Fatal(err)
	}
	defer out.Close()
	words := append(append(slices.Clone(p.Under), p.Bin), args...)
	pr.cmd = exec.Command(words[0], words[1:]...)
	pr.cmd.Env = append(append(p.env(), p.Env...), env...)
	pr.cmd.Stdout, pr.cmd.Stderr = out, out
	if err := pr.cmd.Start(); err != nil {
		p.tb.Fatal(err)
	}
	go func() {
		pr.err = pr.cmd.Wait()
		close(pr.done)
	}()
	if !p.told[name] {
		p.told[name] = true
		p.tb.Cleanup(pr.tail) // after every process of the name was ended
	}
	p.tb.Cleanup(pr.Kill)
	return pr
}

// tail prints the end of the process's output when the test has failed.
func (pr *Process) tail() {
	if !pr.tb.Failed() {
		return
	}
	lines := strings.Split(strings.TrimSpace(pr.Output()), "\n")
	pr.tb.Logf("last lines of %s:\n%s", pr.Name, strings.Join(lines[max(0, len(lines)-tailLines):], "\n"))
}

// Output is everything the process has printed so far.
func (pr *Process) Output() string {
	b, err := os.ReadFile(pr.Log)
	if err != nil {
		pr.tb.Errorf("read output of %s: %v", pr.Name, err)
	}
	return string(bytes.ToValidUTF8(b, []byte("?")))
}

// Signal sends a signal to the process; one that has ended is left alone.
func (pr *Process) Signal(s syscall.Signal) {
	if err := pr.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		pr.tb.Errorf("signal %s: %v", pr.Name, err)
	}
}

// Kill ends the process as a crash does, and waits for its end.
func (pr *Process) Kill() {
	pr.Signal(syscall.SIGKILL)
	<-pr.done
}

// PID is the process's number.
func (pr *Process) PID() int { return pr.cmd.Process.Pid }

// Ended gives a channel that is closed when the process has ended.
func (pr *Process) Ended() <-chan struct{} { return pr.done }

// Exit waits for the process to end by itself and gives its exit code.
func (pr *Process) Exit(limit time.Duration) int {
	pr.tb.Helper()
	select {
	case <-pr.done:
	case <-time.After(limit):
		pr.tb.Fatalf("%s has not ended within %s", pr.Name, limit)
	}
	return exitCode(pr.err)
}

// Stop ends the process as its owner does, with SIGTERM, and gives its exit code.
func (pr *Process) Stop(limit time.Duration) int {
	pr.tb.Helper()
	pr.Signal(syscall.SIGTERM)
	return pr.Exit(limit)
}

// exitCode is 0 for nil and -1 for an end by a signal.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}
