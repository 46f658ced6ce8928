package process

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/process/code"
	"tensorturn/agent/trainer/process/sandbox"
	"tensorturn/agent/trainer/trainertest"
	"tensorturn/domain"
	"tensorturn/domain/permute"
	"tensorturn/domain/run"
	"tensorturn/test/plain"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == sandbox.HelperWord {
		syscall.Exit(sandbox.Main(os.Args[1:])) // os.Exit waits a second under the race detector, and there are hundreds of these
	}
	if len(os.Args) == 3 && os.Args[1] == "trainer" {
		plain.Main(os.Args[2])
		syscall.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("os/signal.loop"), goleak.IgnoreTopFunction("os/signal.signal_recv"))
}

// packed is a folder of code with one file.
func packed(t testing.TB) []byte {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "readme.txt"), []byte("code\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := code.Pack(t.Context(), dir, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// jobFor is a run of the test trainer in a mode.
func jobFor(t testing.TB, mode string) trainer.Job {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := run.Spec{Trainer: run.Process, Command: []string{exe, "trainer", mode}, Batch: 8, Chunk: 24, Epochs: 2, Seed: 5,
		Data: run.Data{Samples: 100, Heldout: 40, Features: plain.Features, Classes: plain.Classes}}
	raw := packed(t)
	d := run.ProcessData(s, domain.Digest(strings.Repeat("c", 64)))
	s, err = run.Resolve(s, d)
	if err != nil {
		t.Fatal(err)
	}
	return trainer.Job{Run: "r-1", Spec: s, Dataset: d, Data: bytes.NewReader(raw)}
}

func newOpener(t testing.TB, edit func(*Options)) *Opener {
	t.Helper()
	o := Options{Root: t.TempDir(), Environ: os.Environ(), Log: zerolog.Nop(), KillGrace: 300 * time.Millisecond, WatchEvery: 50 * time.Millisecond}
	if edit != nil {
		edit(&o)
	}
	opener, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return opener
}

// opened gives a trainer in the mode with initial weights.
func opened(t *testing.T, o *Opener, mode string) trainer.Trainer {
	t.Helper()
	tr, err := o.Open(t.Context(), jobFor(t, mode))
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

func TestSuite(t *testing.T) {
	for _, mode := range []string{"good", "stdio", "JSON first"} {
		t.Run(mode, func(t *testing.T) {
			o := newOpener(t, nil)
			trainertest.Suite(t, o.Open, func(t *testing.T) trainer.Job { return jobFor(t, mode) })
			if left, err := os.ReadDir(filepath.Join(o.opts.Root, "work")); err != nil || len(left) > 0 {
				t.Errorf("work folders are left: %v, %v", left, err)
			}
		})
	}
}

// The order a foreign trainer makes from PROTOCOL.md is the pool's.
func TestForeignOrderIsOurs(t *testing.T) {
	for _, c := range [][4]int{{1, 0, 8, 8}, {1, 0, 10, 3}, {9, 4, 1000, 64}, {3, 1, 77, 0}} {
		if d := cmp.Diff(permute.New(uint64(c[0]), c[1], c[2], c[3]).All(), plain.Order(uint64(c[0]), c[1], c[2], c[3])); d != "" {
			t.Error(c, d)
		}
	}
}

func TestTrainerLearns(t *testing.T) {
	tr := opened(t, newOpener(t, nil), "good")
	before, err := tr.Evaluate(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for c := range 10 {
		if _, err := tr.Train(t.Context(), domain.ChunkID(c), nil); err != nil {
			t.Fatal(err)
		}
	}
	after, err := tr.Evaluate(t.Context(), nil)
	if err != nil || after.Loss > before.Loss*0.9 {
		t.Errorf("loss %v, then %v, %v", before.Loss, after.Loss, err)
	}
}

func TestRejoinIsHeard(t *testing.T) {
	o := newOpener(t, nil)
	weights := func(rejoin bool) string {
		tr := opened(t, o, "good")
		if _, err := tr.Train(t.Context(), 0, nil); err != nil {
			t.Fatal(err)
		}
		if rejoin {
			if err := tr.Rejoin(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := tr.Train(t.Context(), 1, nil); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := tr.Save(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if weights(true) == weights(false) {
		t.Error("rejoining changes nothing")
	}
}

func TestLongPathsHaveASocketElsewhere(t *testing.T) {
	o := newOpener(t, func(o *Options) { o.Root = filepath.Join(o.Root, strings.Repeat("long/", 30)) })
	tr := opened(t, o, "good")
	if tr.(*Trainer).short == "" {
		t.Error("the socket's path was short enough all the same")
	}
}

func TestClosedTrainerRefuses(t *testing.T) {
	tr := opened(t, newOpener(t, nil), "good")
	if err := errors.Join(tr.Close(), tr.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Train(t.Context(), 0, nil); domain.KindOf(err) != domain.KindConflict {
		t.Errorf("%v", err)
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := newOpener(t, nil).Open(ctx, jobFor(t, "silent")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
