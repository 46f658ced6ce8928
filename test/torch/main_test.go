// Package torch tests owners' PyTorch scripts: the helper module by itself, and whole runs of the built binary with
// agents as processes of their own. It needs an interpreter with torch; make test-torch installs one and names it in
// TENSORTURN_TEST_PYTHON. Without that variable every test is skipped and says so.
package torch

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/process"
	"tensorturn/agent/trainer/process/code"
	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/test/kit"
)

// full and small run the long and the short version of what takes minutes.
var (
	full  = flag.Bool("full", false, "three seeds where one is usual")
	small = flag.Bool("small", false, "a sixth of Fashion-MNIST, one seed")
)

// binary is what tests of whole runs use; it is built once, and only where there is torch.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(withBinary(m))
}

func withBinary(m *testing.M) int {
	if os.Getenv("TENSORTURN_TEST_PYTHON") == "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "tensorturn-torch-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binary, err = kit.Build(filepath.Join("..", ".."), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// python is the interpreter with torch.
func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv("TENSORTURN_TEST_PYTHON")
	if path == "" {
		t.Skip("TENSORTURN_TEST_PYTHON names no interpreter with torch; see make test-torch")
	}
	return path
}

const helperDir = "../../agent/trainer/python"

// runScript runs a script without an agent and gives what it prints.
func runScript(t *testing.T, text string, env ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script.py")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	helper, err := filepath.Abs(helperDir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python(t), path)
	cmd.Env = append(os.Environ(), append(env, "PYTHONPATH="+helper, "OMP_NUM_THREADS=1")...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	return string(out)
}

// scriptJob is a run of the script.
func scriptJob(t *testing.T, text string, edit func(*run.Spec)) trainer.Job {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	if _, err := code.Pack(t.Context(), dir, &packed); err != nil {
		t.Fatal(err)
	}
	s := run.Spec{Trainer: run.Process, Command: []string{"python", "train.py"}, Batch: 8, Chunk: 24, Epochs: 2, Seed: 5,
		Data: run.Data{Samples: 100, Heldout: 40, Features: 6, Classes: 3}}
	if edit != nil {
		edit(&s)
	}
	d := run.ProcessData(s, domain.Digest(strings.Repeat("c", 64)))
	s, err := run.Resolve(s, d)
	if err != nil {
		t.Fatal(err)
	}
	return trainer.Job{Run: "r-1", Spec: s, Dataset: d, Data: bytes.NewReader(packed.Bytes())}
}

func opener(t *testing.T) *process.Opener {
	t.Helper()
	o, err := process.New(process.Options{Root: t.TempDir(), Python: python(t), Threads: 1, Environ: os.Environ(), Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// openText opens a script over 1,000 samples in chunks of four batches of 32.
func openText(t *testing.T, text string) trainer.Trainer {
	t.Helper()
	tr, err := opener(t).Open(t.Context(), scriptJob(t, text, func(s *run.Spec) { s.Batch, s.Chunk, s.Data = 32, 128, run.Data{Samples: 1000} }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := tr.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tr
}
