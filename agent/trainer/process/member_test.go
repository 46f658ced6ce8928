package process

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/process/code"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

// memberJob is a member of an ensemble that the test program trains by itself.
func memberJob(t *testing.T, mode string, edit func(*run.Spec)) trainer.Job {
	t.Helper()
	job := jobFor(t, mode)
	job.Member, job.Spec.Mode, job.Spec.Output = 2, run.ModeEnsemble, "model.safetensors"
	job.Spec.Predict = job.Spec.Command
	if edit != nil {
		edit(&job.Spec)
	}
	return job
}

// member opens a member.
func member(t *testing.T, job trainer.Job) *Trainer {
	t.Helper()
	tr, err := newOpener(t, nil).Open(t.Context(), job)
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
	return tr.(*Trainer)
}

// A program that knows nothing of the protocol is a member: it trains whole, its file is exported, it votes and predicts
// by its predict command, and another machine goes on from its weights.
func TestMemberWithoutTheHelper(t *testing.T) {
	tr := member(t, memberJob(t, "alone", nil))
	lives := 0
	r, err := tr.Train(t.Context(), 0, func(trainer.Progress) { lives++ })
	if err != nil || !r.All {
		t.Fatalf("%+v, %v", r, err)
	}
	var weights bytes.Buffer
	if err := tr.Save(t.Context(), &weights); err != nil {
		t.Fatal(err)
	}
	out, m, err := tr.Outputs(t.Context(), nil)
	if err != nil || len(out.Labels) != 40 || m.Samples != 40 || m.Accuracy < 0.5 || !(m.Loss > 0) {
		t.Fatalf("%d labels, %+v, %v", len(out.Labels), m, err)
	}
	y, err := tr.Predict(t.Context(), make([]float32, 12))
	if err != nil || len(y) != 6 || math.Abs(float64(y[0]+y[1]+y[2])-1) > 1e-5 {
		t.Fatalf("%v, %v", y, err)
	}
	other := member(t, memberJob(t, "alone", nil))
	if err := other.Load(t.Context(), bytes.NewReader(weights.Bytes())); err != nil {
		t.Fatal(err)
	}
	if r, err := other.Train(t.Context(), 0, nil); err != nil || !r.All {
		t.Errorf("what is trained is trained again: %+v, %v", r, err)
	}
	if again, _, err := other.Outputs(t.Context(), nil); err != nil || !slices.Equal(again.Probabilities, out.Probabilities) {
		t.Errorf("another machine answers otherwise: %v", err)
	}
}

// Without a predict command the member is exported and has no vote.
func TestMuteMember(t *testing.T) {
	tr := member(t, memberJob(t, "alone", func(s *run.Spec) { s.Predict = nil }))
	if _, err := tr.Train(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tr.Outputs(t.Context(), nil); !errors.Is(err, trainer.ErrMute) {
		t.Errorf("%v", err)
	}
	if err := tr.Save(t.Context(), new(bytes.Buffer)); err != nil {
		t.Error(err)
	}
}

// Each way such a program fails.
func TestMemberFailures(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		kind   Kind
		why    string
	}{
		"exit 1":         {"echo boom; exit 1", KindScript, "exit code 1: boom"},
		"no output":      {"true", KindOutput, "model.safetensors"},
		"no safetensors": {`printf '\200\004pickle' > "$TENSORTURN_OUTPUT_DIR/model.safetensors"`, KindOutput, "cannot be used"},
		"a link out":     {`ln -s /etc/passwd "$TENSORTURN_OUTPUT_DIR/model.safetensors"`, KindOutput, "model.safetensors"},
		"a pipe":         {`mkfifo "$TENSORTURN_OUTPUT_DIR/model.safetensors"`, KindOutput, "no plain file"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := member(t, memberJob(t, "alone", func(s *run.Spec) { s.Command = []string{"sh", "-c", c.script} }))
			_, err := tr.Train(t.Context(), 0, nil)
			var f *Failure
			if !errors.As(err, &f) || f.Kind != c.kind || !strings.Contains(f.Why, c.why) {
				t.Errorf("%v, want %s: %s", err, c.kind, c.why)
			}
		})
	}
	t.Run("speaks after all", func(t *testing.T) {
		tr := member(t, memberJob(t, "good", nil))
		_, err := tr.Train(t.Context(), 0, nil)
		if err == nil || !strings.Contains(err.Error(), "remove output and predict from the spec") {
			t.Errorf("%v", err)
		}
	})
}

// A file of another order and other dtypes is written in ours.
func TestForeignOutputIsCanonical(t *testing.T) {
	head := `{"z":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`
	file := append([]byte{byte(len(head)), 0, 0, 0, 0, 0, 0, 0}, head...)
	file = append(file, 1, 2, 3, 4, 0, 0, 128, 63)
	tr := member(t, memberJob(t, "alone", nil))
	if err := tr.Load(t.Context(), bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := tr.Save(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	r, err := safetensors.NewReader(bytes.NewReader(out.Bytes()))
	if err != nil || r.Tensors()[0].Name != "a" || !bytes.HasSuffix(out.Bytes(), []byte{0, 0, 128, 63, 1, 2, 3, 4}) {
		t.Errorf("%v, %v", r.Tensors(), err)
	}
	nan := append(bytes.Clone(file[:len(file)-4]), 0, 0, 192, 127)
	if err := member(t, memberJob(t, "alone", nil)).Load(t.Context(), bytes.NewReader(nan)); err == nil || !strings.Contains(err.Error(), "value 0") {
		t.Errorf("NaN: %v", err)
	}
}

// Weights in the folder where the program was started count too, but not a file that came with the code.
func TestMemberWritesWhereItStands(t *testing.T) {
	tr := member(t, memberJob(t, "alone", func(s *run.Spec) {
		s.Output = "readme.txt" // packed
		s.Command = []string{"true"}
	}))
	if _, err := tr.Train(t.Context(), 0, nil); err == nil || !strings.Contains(err.Error(), "readme.txt") {
		t.Errorf("a file of the code is taken for the output: %v", err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tr = member(t, memberJob(t, "alone", func(s *run.Spec) {
		s.Command = []string{"sh", "-c", "TENSORTURN_OUTPUT_DIR=. exec " + exe + " trainer alone"}
	}))
	if _, err := tr.Train(t.Context(), 0, nil); err != nil {
		t.Error(err)
	}
}

// The rows of a member are told to its program.
func TestMemberEnvironment(t *testing.T) {
	job := memberJob(t, "alone", func(s *run.Spec) {
		s.Command = []string{"sh", "-c", `echo "$TENSORTURN_MODE $TENSORTURN_MEMBER $(wc -c < "$TENSORTURN_ROWS")"; exit 1`}
	})
	job.Rows = make([]int, job.Dataset.Samples)
	tr := member(t, job)
	_, err := tr.Train(t.Context(), 0, nil)
	var f *Failure
	if !errors.As(err, &f) || len(f.Tail) != 1 || !strings.HasPrefix(f.Tail[0], "ensemble 2 ") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(tr.place.rows); err != nil {
		t.Error(err)
	}
	if logs := tr.opener.Logs(); len(logs) != 1 || logs[0].Member != 2 {
		t.Errorf("%+v", logs)
	}
}

// Whoever only serves needs no data: the number of its samples does not matter.
func TestServing(t *testing.T) {
	job := jobFor(t, "other data")
	job.Serve = true
	tr, err := newOpener(t, nil).Open(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if err := tr.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if y, err := tr.Predict(t.Context(), make([]float32, 12)); err != nil || len(y) != 6 {
		t.Errorf("%v, %v", y, err)
	}
}

// What a program leaves in its work folder under the name of a file that the agent writes next is neither followed out of the
// sandbox nor waited for.
func TestMemberTrapsInItsFolder(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, trap := range map[string]string{"a link out": "ln -s %s ", "a pipe": ": %s; mkfifo ", "a folder": ": %s; mkdir -p "} {
		t.Run(name, func(t *testing.T) {
			outside := filepath.Join(t.TempDir(), "authorized_keys")
			if err := os.WriteFile(outside, []byte("untouched"), 0o600); err != nil {
				t.Fatal(err)
			}
			tr := member(t, memberJob(t, "alone", func(s *run.Spec) {
				set := fmt.Sprintf(trap, outside)
				s.Command = []string{"sh", "-c", `cd "$TENSORTURN_WORK_DIR"; ` + set + modelFile + "; " + set + inputFile + "; exec " + exe + " trainer alone"}
			}))
			if _, err := tr.Train(t.Context(), 0, nil); err != nil {
				t.Fatal(err)
			}
			if _, _, err := tr.Outputs(t.Context(), nil); err != nil {
				t.Error(err)
			}
			if _, err := tr.Predict(t.Context(), make([]float32, 12)); err != nil {
				t.Error(err)
			}
			if b, err := os.ReadFile(outside); err != nil || string(b) != "untouched" {
				t.Errorf("the agent wrote %d bytes outside: %v", len(b), err)
			}
		})
	}
}

// undecided opens a member whose spec says nothing of an output; script is for sh, "" for the test program in its mode.
func undecided(t *testing.T, mode, script string, wait time.Duration) (*Trainer, error) {
	t.Helper()
	job := memberJob(t, mode, func(s *run.Spec) {
		s.Output, s.Predict = "", nil
		if script != "" {
			s.Command = []string{"sh", "-c", script, s.Command[0]}
		}
	})
	tr, err := newOpener(t, func(o *Options) { o.HelloWait = wait }).Open(t.Context(), job)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	return tr.(*Trainer), nil
}

// aloneAfter runs the test program that knows nothing of the protocol, after some shell.
const aloneAfter = `exec "$0" trainer alone`

// A member needs no word in the spec: who ends well without a hello and has left model.safetensors is one, whether it is done
// before anybody asks or while it is asked to train; who speaks late is greeted, and goes on from a checkpoint.
func TestMemberShowsWhatItIs(t *testing.T) {
	const long, short = time.Minute, time.Millisecond
	const gate = `until [ -e "$TENSORTURN_WORK_DIR/my-gate" ]; do sleep 0.02; done; `
	open := func(t *testing.T, tr *Trainer) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(tr.place.work, "my-gate"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	whole := func(t *testing.T, tr *Trainer) (weights bytes.Buffer) {
		t.Helper()
		if r, err := tr.Train(t.Context(), 0, nil); err != nil || !r.All || r.Steps != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		if err := tr.Save(t.Context(), &weights); err != nil || len(tr.Layout()) != 1 {
			t.Fatalf("%v, %v", tr.Layout(), err)
		}
		if _, _, err := tr.Outputs(t.Context(), nil); !errors.Is(err, trainer.ErrMute) || !strings.Contains(err.Error(), "does not join") || tr.Keeps() {
			t.Errorf("%v, keeps %t", err, tr.Keeps())
		}
		return weights
	}
	t.Run("done at once", func(t *testing.T) {
		tr, err := undecided(t, "alone", aloneAfter, long)
		if err != nil || !tr.solo {
			t.Fatal(err)
		}
		want := whole(t, tr)
		t.Run("taken up elsewhere", func(t *testing.T) {
			other, err := undecided(t, "alone", "sleep 60", short)
			if err != nil || !other.silent {
				t.Fatal(err)
			}
			if err := other.Load(t.Context(), bytes.NewReader(want.Bytes())); err != nil || other.child != nil {
				t.Fatalf("%v, its program runs: %t", err, other.child != nil)
			}
			if got := whole(t, other); !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Error("other weights")
			}
		})
	})
	t.Run("silent for long", func(t *testing.T) {
		tr, err := undecided(t, "alone", gate+aloneAfter, short)
		if err != nil || !tr.silent || tr.Init(t.Context()) != nil {
			t.Fatal(err)
		}
		open(t, tr)
		whole(t, tr)
	})
	t.Run("speaks late", func(t *testing.T) {
		var kept bytes.Buffer
		for _, from := range []string{"its beginning", "a checkpoint", "trained weights"} {
			tr, err := undecided(t, "member", gate+`exec "$0" trainer member`, short)
			if err != nil || !tr.silent {
				t.Fatal(err)
			}
			open(t, tr)
			switch from {
			case "its beginning":
				err = tr.Init(t.Context())
			case "a checkpoint":
				err = tr.LoadState(t.Context(), bytes.NewReader(kept.Bytes()))
			default:
				tr.opener.opts.HelloWait = time.Minute
				err = tr.Load(t.Context(), bytes.NewReader(initialOf(t)))
			}
			if err != nil {
				t.Fatalf("from %s: %v", from, err)
			}
			if r, err := tr.Train(t.Context(), 0, nil); err != nil || r.All || r.Steps != 3 {
				t.Fatalf("from %s: %+v, %v", from, r, err)
			}
			kept.Reset()
			if err := tr.SaveState(t.Context(), &kept); err != nil || tr.solo || !tr.Keeps() {
				t.Errorf("from %s: %v", from, err)
			}
		}
	})
	for _, c := range []struct{ name, script, why string }{
		{"ends without a word or weights", "true", "ended without tensorturn.join, and there is no model.safetensors in TENSORTURN_OUTPUT_DIR"},
		{"a file that came with the code", `cp readme.txt model.safetensors`, "cannot be used"},
		{"exit 1", "echo boom; exit 1", "exit code 1: boom"},
		{"killed", "kill -9 $$", "SIGKILL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, wait := range []time.Duration{short, long} { // found out in Train or in Open
				tr, err := undecided(t, "alone", c.script, wait)
				if err == nil {
					_, err = tr.Train(t.Context(), 0, nil)
				}
				if err == nil || !strings.Contains(err.Error(), c.why) {
					t.Errorf("%v, want %q", err, c.why)
				}
			}
		})
	}
}

// initialOf gives weights as the test program has them first.
func initialOf(t *testing.T) []byte {
	t.Helper()
	tr, err := undecided(t, "member", "", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := errors.Join(tr.Init(t.Context()), tr.Save(t.Context(), &b)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Weights that a script begins with, packed with its code under the output's name, stay where they are and are no result.
func TestPackedWeightsAreNoResult(t *testing.T) {
	dir := t.TempDir()
	weights := filepath.Join(dir, "model.safetensors")
	if err := os.WriteFile(weights, initialOf(t), 0o600); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	if _, err := code.Pack(t.Context(), dir, &packed); err != nil {
		t.Fatal(err)
	}
	for script, why := range map[string]string{"test -s model.safetensors": "there is no model.safetensors", `cp model.safetensors "$TENSORTURN_OUTPUT_DIR"`: ""} {
		job := memberJob(t, "alone", func(s *run.Spec) { s.Output, s.Predict, s.Command = "", nil, []string{"sh", "-c", script} })
		job.Data = bytes.NewReader(packed.Bytes())
		tr, err := newOpener(t, nil).Open(t.Context(), job)
		if err == nil {
			_ = tr.Close()
		}
		if (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", script, err, why)
		}
	}
}
