package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tensorturn/agent/trainer"
	"tensorturn/domain"
	"tensorturn/domain/redact"
)

// Each way a script fails, with the kind and the words its owner reads.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		mode string
		kind Kind
		why  string
		next string
	}{
		{"exit 1", KindScript, "ended with exit code 1: ZeroDivisionError: division by zero", ""},
		{"no module", KindMissing, "No module named 'torch'", "--python PATH"},
		{"version 2", KindProtocol, "version 2 of the protocol, this agent 1", "this release"},
		{"other data", KindData, "has 101 samples, the spec says 100", "data.samples"},
		{"link", KindOutput, "link.safetensors", ""},
		{"early end", KindScript, "ended before its work was done", "do not leave the loop"},
		{"SIGKILL", KindMemory, "was killed by the system", "batches of 4"},
		{"MemoryError", KindMemory, "CUDA out of memory", "batches of 4"},
		{"NaN loss", KindDiverged, "the loss is nan at step 3", "learning rate"},
		{"NaN weights", KindDiverged, `tensor "w", value 3`, "learning rate"},
		{"cut file", KindOutput, "cut off", ""},
		{"pickle", KindOutput, "cannot be used", ""},
		{"other tensors", KindOutput, `tensor 0 is "v", wanted "w"`, ""},
		{"pipe", KindOutput, "no plain file", ""},
		{"no file", KindOutput, "cannot be opened", ""},
		{"long message", KindProtocol, "longer than 65536 bytes", "standard error"},
		{"no JSON", KindProtocol, "no JSON object", ""},
		{"nested", KindProtocol, "nested", ""},
		{"unknown field", KindProtocol, `"sample"`, ""},
		{"doubled field", KindProtocol, `"samples"`, ""},
		{"wrong id", KindProtocol, "answers request", ""},
		{"too many samples", KindProtocol, "a step of 1000000 samples", ""},
		{"too few samples", KindProtocol, "after 0 of its 24 samples", "every batch"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			err := provoke(t, newOpener(t, nil), c.mode)
			var f *Failure
			if !errors.As(err, &f) {
				t.Fatalf("%v is no failure of the script", err)
			}
			if f.Kind != c.kind || !strings.Contains(f.Why, c.why) || !strings.Contains(f.Next, c.next) {
				t.Errorf("%s: %s\nnext: %s\nwant %s: %q and %q", f.Kind, f.Why, f.Next, c.kind, c.why, c.next)
			}
			if len(err.Error()) > 2*domain.MaxReasonLength || strings.ContainsAny(err.Error(), "\n\x00") {
				t.Errorf("the text is unfit for an event: %q", err.Error())
			}
			if domain.KindOf(err) != domain.KindInvalid {
				t.Errorf("it is called %s", domain.KindOf(err))
			}
		})
	}
}

// provoke opens a trainer in the mode and works with it until something fails.
func provoke(t *testing.T, o *Opener, mode string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tr, err := o.Open(ctx, jobFor(t, mode))
	if err != nil {
		return err
	}
	defer func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := tr.Init(ctx); err != nil {
		return err
	}
	if _, err := tr.Train(ctx, 0, nil); err != nil {
		return err
	}
	return tr.Save(ctx, new(bytes.Buffer))
}

// A trainer that failed only fails again, with the same words, until it is closed.
func TestFailureSticks(t *testing.T) {
	tr := opened(t, newOpener(t, nil), "no JSON")
	_, first := tr.Train(t.Context(), 0, nil)
	_, second := tr.Train(t.Context(), 0, nil)
	if first == nil || !errors.Is(second, first) {
		t.Errorf("%v, then %v", first, second)
	}
}

// A run that is out of memory is tried with half of its batch, once.
func TestMemoryHalvesTheBatchOnce(t *testing.T) {
	o := newOpener(t, nil)
	job := jobFor(t, "good")
	for i, want := range []int{8, 4, 4} {
		_, batch := o.begin(job)
		if batch != want {
			t.Errorf("attempt %d has batches of %d, want %d", i, batch, want)
		}
		if first := o.halve(job.Run); first != (i == 0) {
			t.Errorf("attempt %d: halved for the first time is %v", i, first)
		}
	}
	err := provoke(t, o, "MemoryError")
	if !strings.Contains(domain.NextOf(err), "lower batch") {
		t.Errorf("the second time says %v", err)
	}
	tr := opened(t, o, "good") // batches of 4
	r, err := tr.Train(t.Context(), 0, nil)
	if err != nil || r.Steps != 6 {
		t.Errorf("%d steps, %v", r.Steps, err)
	}
}

// What a script prints is bounded on disk, and its end is in the error.
func TestShoutingIsBounded(t *testing.T) {
	o := newOpener(t, nil)
	tr := opened(t, o, "shout")
	if _, err := tr.Train(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	logs, _ := filepath.Glob(filepath.Join(o.opts.Root, "logs", "*.log"))
	if len(logs) != 1 {
		t.Fatalf("%d logs", len(logs))
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(logs[0])
	if err != nil || len(b) < 8<<20 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	for _, line := range bytes.Split(b, []byte("\n")) {
		if len(line) > MaxLogLine {
			t.Fatalf("a line has %d bytes", len(line))
		}
	}
}

func TestLogStopsAtItsLimit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	l, err := openLog(dir, "r-1-0-abc", 100, redact.New())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		l.add(fmt.Appendf(nil, "line %02d", i))
	}
	l.close()
	kept, size := 0, int64(0)
	for _, f := range listLogs(dir) {
		kept, size = len(f.segments), f.Bytes-f.segments[0]
		if f.Bytes != 60*8 || f.Run != "r-1" || f.Attempt != 0 || f.Member != -1 {
			t.Errorf("%+v", f)
		}
	}
	if kept != 2 || size < 50 || size > 120 {
		t.Errorf("%d segments with %d bytes are kept", kept, size)
	}
	if tail := l.last(); len(tail) != TailLines || tail[TailLines-1] != "line 59" {
		t.Errorf("the tail is %q", tail)
	}
}

// A position in a log stays true when its older half goes, and what is read is bounded.
func TestLogsAreReadByPosition(t *testing.T) {
	o := newOpener(t, nil)
	l, err := openLog(filepath.Join(o.opts.Root, "logs"), unitName("r", 3, 7), 100, redact.New())
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	var whole []byte
	for i := range 60 {
		line := fmt.Appendf(nil, "line %02d", i)
		l.add(line)
		whole = append(append(whole, line...), '\n')
	}
	log := o.Logs()[0]
	if log.Run != "r" || log.Attempt != 3 || log.Member != 7 || log.Bytes != int64(len(whole)) {
		t.Fatalf("%+v", log)
	}
	for _, c := range []struct {
		from int64
		n    int
		at   int64
		want int
	}{{-20, 1000, 460, 20}, {-20, 5, 460, 5}, {470, 1000, 470, 10}, {480, 1000, 480, 0}, {0, 1000, log.segments[0], 480 - int(log.segments[0])}, {-10000, 1000, log.segments[0], 480 - int(log.segments[0])}} {
		got, at, err := o.ReadLog(log, c.from, c.n)
		if err != nil || at != c.at || len(got) != c.want || !bytes.Equal(got, whole[at:int(at)+len(got)]) {
			t.Errorf("%+v: %d bytes at %d, %v", c, len(got), at, err)
		}
	}
}

func TestOldLogsGo(t *testing.T) {
	dir := t.TempDir()
	for i := range MaxLogs + 5 {
		l, err := openLog(dir, unitName("r", i, -1), 100, redact.New())
		if err != nil {
			t.Fatal(err)
		}
		l.close()
	}
	if left, _ := os.ReadDir(dir); len(left) != MaxLogs {
		t.Errorf("%d logs are kept", len(left))
	}
}

// No variable of the agent's gets through unless it is on the list.
func TestEnvironmentHoldsNoSecret(t *testing.T) {
	o := newOpener(t, func(o *Options) {
		o.Environ = append(o.Environ, "HF_TOKEN=s3cret", "AWS_SECRET_ACCESS_KEY=s3cret", "TENSORTURN_CONTEXT=s3cret", "HTTPS_PROXY=http://u:s3cret@p")
	})
	err := provoke(t, o, "environment")
	var f *Failure
	if !errors.As(err, &f) {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.Log)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte("s3cret")) {
		t.Errorf("a secret is in the environment:\n%s", b)
	}
	for _, want := range []string{"RANK=0", "WORLD_SIZE=1", "GROUP_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "TORCHELASTIC_RUN_ID=r-1",
		"TENSORTURN_RUN_ID=r-1", "TENSORTURN_SEED=5", "TENSORTURN_SAMPLES=100", "TENSORTURN_BATCH=8", "TENSORTURN_INNER_STEPS=3", "TENSORTURN_MODE=fused", "TENSORTURN_ATTEMPT=0"} {
		if !bytes.Contains(b, []byte(want+"\n")) {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestMissingInterpreterIsNamed(t *testing.T) {
	o := newOpener(t, func(o *Options) { o.Python = "/opt/none/python3" })
	job := jobFor(t, "good")
	job.Spec.Command[0] = "python"
	_, err := o.Open(t.Context(), job)
	if err == nil || !strings.Contains(err.Error(), "/opt/none/python3 (--python)") || !strings.Contains(domain.NextOf(err), "--python PATH") {
		t.Errorf("%v, next: %s", err, domain.NextOf(err))
	}
}

// A hung script, one that ignores SIGTERM, and one that is deaf to the end of its channel: the trainer is closed in time
// and nothing of them lives on.
func TestHungScriptsEnd(t *testing.T) {
	for _, mode := range []string{"hang", "stubborn"} {
		t.Run(mode, func(t *testing.T) {
			tr := opened(t, newOpener(t, nil), mode)
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			begin := time.Now()
			if _, err := tr.Train(ctx, 0, func(trainer.Progress) {}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			gone(t, tr.(*Trainer).unit)
		})
	}
	t.Run("deaf", func(t *testing.T) {
		tr := opened(t, newOpener(t, func(o *Options) { o.CloseGrace = 100 * time.Millisecond }), "deaf")
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
		gone(t, tr.(*Trainer).unit)
	})
}
