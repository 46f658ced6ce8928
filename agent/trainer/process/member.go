package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tensorturn/agent/trainer"
	"tensorturn/domain"
	"tensorturn/domain/safetensors"
	"tensorturn/domain/vote"
)

var (
	_ trainer.Checkpointer = (*Trainer)(nil)
	_ trainer.Predictor    = (*Trainer)(nil)
)

// lifeEvery spaces the signs of life of a program that tells no steps.
const lifeEvery = time.Second

// alone reports whether the program trains its whole member by itself and then ends: it knows nothing of the protocol, reads
// its environment and leaves a file in its output folder.
func (t *Trainer) alone() bool { return t.job.Member > 0 && (t.job.Spec.Output != "" || t.solo) }

// Keeps implements trainer.Checkpointer. One that trains alone keeps its state to itself: requeued, it begins anew, and what it
// left in its check-point folder goes with the trainer.
func (t *Trainer) Keeps() bool { return t.hello.Checkpoints }

// SaveState implements trainer.Checkpointer.
func (t *Trainer) SaveState(ctx context.Context, w io.Writer) error {
	if err := t.call(ctx, request{Type: "keep", File: stateFile}); err != nil {
		return err
	}
	f, failure := t.openFile(stateFile)
	if failure != nil {
		return t.failed(failure)
	}
	defer func() { _ = f.Close() }()
	if err := checkWhole(ctx, f); err != nil {
		return t.failed(fail(KindOutput, "the checkpoint that the script made cannot be used: "+err.Error(), ""))
	}
	_, err := f.Seek(0, io.SeekStart)
	if err == nil {
		_, err = io.Copy(w, f)
	}
	return err
}

// LoadState implements trainer.Checkpointer. The stream is checked before the program sees it.
func (t *Trainer) LoadState(ctx context.Context, r io.Reader) error {
	const op = "load checkpoint"
	if err := t.usable(ctx); err != nil {
		return err
	}
	if t.silent { // only one that speaks has made a checkpoint
		if err := t.meet(ctx, 0); err != nil {
			return err
		}
	}
	if !t.Keeps() {
		return domain.Invalid(op, "the script on this machine keeps no checkpoints", "install the same release everywhere")
	}
	f, err := createFile(t.root, stateFile)
	if err != nil {
		return domain.Unavailable(op, "the work folder cannot be written", "check the disk of the agent's directory", err)
	}
	_, err = io.Copy(f, io.LimitReader(r, domain.MaxBlobBytes))
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = checkWhole(ctx, f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return t.call(ctx, request{Type: "resume", File: stateFile})
}

// checkWhole reads a tensor file to its end; float32 tensors must be finite.
func checkWhole(ctx context.Context, f io.Reader) error {
	r, err := safetensors.NewReader(f)
	if err != nil {
		return err
	}
	tile := make([]byte, bytesPerTile)
	for {
		tensor, body, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err == nil && tensor.DType == safetensors.F32:
			err = copyTensor(ctx, io.Discard, tensor, body, tile)
		case err == nil:
			_, err = io.Copy(io.Discard, body)
		}
		if err != nil {
			return err
		}
	}
}

// trainAlone starts the program, unless it is at work, and waits for its end. That it prints or computes is its sign of life.
// One that was silent and speaks now is greeted: nothing of it is trained then (Result.All is false).
func (t *Trainer) trainAlone(ctx context.Context, progress func(trainer.Progress)) (done trainer.Result, err error) {
	if t.layout != nil {
		return trainer.Result{Steps: 1, All: true}, nil
	}
	if !t.silent {
		if err := t.start(ctx, t.place); err != nil {
			return done, err
		}
	}
	ticker := time.NewTicker(lifeEvery)
	defer ticker.Stop()
	for life := int64(-1); ; {
		select {
		case <-ctx.Done():
			t.broken = ctx.Err()
			return done, t.broken
		case <-t.channel.spoke:
			if t.silent {
				t.silent = false
				return done, t.greet(ctx)
			}
			return done, t.failed(fail(KindProtocol, "the script uses the helper, but the spec says that it writes "+show(t.output())+" by itself", "remove output and predict from the spec"))
		case <-t.child.exited:
			if t.silent {
				if err := t.over(ctx); err != nil || !t.solo {
					return done, err
				}
				return trainer.Result{Steps: 1, All: true}, nil
			}
			if !t.succeeded() {
				return done, t.failed(t.ended())
			}
			t.channel.settle(drainTime)
			return trainer.Result{Steps: 1, All: true}, t.takeOutput()
		case <-ticker.C:
			if now := t.log.printed() + t.computed.Load(); now != life && progress != nil {
				life = now
				progress(trainer.Progress{Loss: math.NaN()})
			}
		}
	}
}

// takeOutput reads what the program left in its output folder: safetensors, finite where it is F32.
func (t *Trainer) takeOutput() error {
	name := t.output()
	f, failure := t.openOutput()
	if failure != nil {
		return t.failed(failure)
	}
	defer func() { _ = f.Close() }()
	r, err := safetensors.NewReader(f)
	if err != nil {
		return t.failed(fail(KindOutput, fmt.Sprintf("the output %s cannot be used: %s", show(name), err), "write it with safetensors.torch.save_file or tensorturn.save_file"))
	}
	t.layout = r.Tensors()
	slices.SortFunc(t.layout, func(a, b safetensors.Tensor) int { return strings.Compare(a.Name, b.Name) })
	if err := t.saveOutput(context.Background(), io.Discard); err != nil {
		kind := KindOutput
		if errors.Is(err, errNotFinite) {
			kind = KindDiverged
		}
		t.layout = nil
		return t.failed(fail(kind, fmt.Sprintf("the output %s cannot be used: %s", show(name), err), hints[kind]))
	}
	return nil
}

// loadAlone puts trained weights where the program would have left them.
func (t *Trainer) loadAlone(weights io.Reader) error {
	var f *os.File
	root, err := os.OpenRoot(t.place.output)
	if err == nil {
		f, err = createFile(root, t.output())
		_ = root.Close()
	}
	if err != nil {
		return domain.Unavailable("load weights", "the output folder cannot be written", "check the disk of the agent's directory", err)
	}
	_, err = io.Copy(f, io.LimitReader(weights, domain.MaxBlobBytes))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("load weights: %w", err)
	}
	return t.takeOutput()
}

// openOutput opens the file in the output folder, or in the folder of the code where the program was started, following no
// link out.
func (t *Trainer) openOutput() (f *os.File, failure *Failure) {
	dirs := []string{t.place.output, t.place.input}
	if t.packed {
		dirs = dirs[:1]
	}
	for _, dir := range dirs {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, fail(KindOutput, "the output folder is gone", "")
		}
		_, missing := root.Lstat(t.output())
		f, failure = openPlain(root, t.output())
		_ = root.Close()
		if missing == nil {
			return f, failure
		}
	}
	return f, failure
}

// clearOutput removes a file of the output's name that came with the code: it is not what this program wrote.
func (t *Trainer) clearOutput() error {
	err := os.Remove(filepath.Join(t.place.input, t.output()))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// saveOutput writes the program's file in our canonical form: names in order, whatever order the file has.
func (t *Trainer) saveOutput(ctx context.Context, w io.Writer) error {
	f, failure := t.openOutput()
	if failure != nil {
		return failure
	}
	defer func() { _ = f.Close() }()
	r, err := safetensors.NewReader(f)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	at, total := map[string]int64{}, int64(0)
	for _, tensor := range r.Tensors() { // in the file's order, without holes
		n, err := tensor.Bytes()
		if err != nil {
			return err
		}
		at[tensor.Name], total = total, total+n
	}
	begin := info.Size() - total
	out, err := safetensors.NewWriter(w, t.layout, nil)
	if err != nil {
		return err
	}
	tile := make([]byte, bytesPerTile)
	for _, tensor := range t.layout {
		n, err := tensor.Bytes()
		if err != nil {
			return err
		}
		body := io.NewSectionReader(f, begin+at[tensor.Name], n)
		if tensor.DType == safetensors.F32 {
			err = copyTensor(ctx, out, tensor, body, tile)
		} else {
			_, err = io.CopyBuffer(out, struct{ io.Reader }{body}, tile)
		}
		if err != nil {
			return err
		}
	}
	return out.Close()
}

// Outputs implements trainer.Predictor: what the program says about the held-out rows, with their labels, which it alone
// knows.
func (t *Trainer) Outputs(ctx context.Context, progress func(trainer.Progress)) (out vote.Outputs, m trainer.Metrics, err error) {
	rows, classes := t.job.Dataset.Heldout, t.job.Dataset.Classes
	mute := func(why string) error { return fmt.Errorf("%w: %s", trainer.ErrMute, why) }
	if err := t.usable(ctx); err != nil {
		return out, m, err
	}
	switch {
	case rows < 1 || classes < 1:
		return out, m, mute("the spec says neither data.heldout nor data.classes")
	case t.alone() && len(t.job.Spec.Predict) == 0:
		return out, m, mute("the script does not join, and the spec has no predict command")
	case t.alone():
		err = t.predictAlone(ctx, "")
	case !t.hello.Outputs:
		return out, m, mute("the script gives neither heldout= nor predict= to tensorturn.join")
	default:
		err = t.askOutputs(ctx, progress)
	}
	if err != nil {
		return out, m, err
	}
	f, failure := t.openFile(outputFile)
	if failure != nil {
		return out, m, t.failed(failure)
	}
	defer func() { _ = f.Close() }()
	out, err = vote.ReadOutputs(f, rows, classes, 1)
	if err == nil && out.Labels == nil {
		err = errors.New("it has no labels")
	}
	if err == nil {
		m, err = measured(out)
	}
	if err != nil {
		return out, m, t.failed(fail(KindOutput, "what the script says about the held-out rows cannot be used: "+err.Error(), "write F32 probabilities [rows, classes] and I32 labels [rows]"))
	}
	if progress != nil {
		progress(trainer.Progress{Samples: rows, Loss: m.Loss})
	}
	return out, m, nil
}

// askOutputs asks for the outputs and passes on what is said on the way.
func (t *Trainer) askOutputs(ctx context.Context, progress func(trainer.Progress)) error {
	if err := t.ask(request{Type: "outputs", Output: outputFile}); err != nil {
		return err
	}
	for {
		m, err := t.receive(ctx)
		switch {
		case err != nil:
			return err
		case m.Type == "ok":
			return nil
		case m.Type == "step" && m.Samples >= 1:
			report(progress, m)
		default:
			return t.failed(fail(KindProtocol, "within outputs came "+show(m.Type), ""))
		}
	}
}

// measured gives accuracy and mean log loss (nats) of probabilities; of equal ones the first counts.
func measured(o vote.Outputs) (m trainer.Metrics, err error) {
	right, loss := 0, 0.0
	for i, label := range o.Labels {
		p := o.Probabilities[i*o.Classes : (i+1)*o.Classes]
		if label < 0 || int(label) >= o.Classes {
			return m, fmt.Errorf("row %d has the label %d of %d classes", i, label, o.Classes)
		}
		best := 0
		for c, v := range p {
			if math.IsNaN(float64(v)) || v < 0 || v > 1 {
				return m, fmt.Errorf("row %d has the probability %v", i, v)
			}
			if v > p[best] {
				best = c
			}
		}
		if best == int(label) {
			right++
		}
		loss -= math.Log(max(float64(p[label]), math.SmallestNonzeroFloat32))
	}
	n := len(o.Labels)
	return trainer.Metrics{Samples: n, Accuracy: float64(right) / float64(n), Loss: loss / float64(n)}, nil
}

// predictAlone runs the spec's predict command to its end. input is a file of the work folder; "" asks for the held-out rows.
func (t *Trainer) predictAlone(ctx context.Context, input string) error {
	model, err := createFile(t.root, modelFile)
	if err == nil {
		err = errors.Join(t.saveOutput(ctx, model), model.Close())
	}
	if err != nil {
		return fmt.Errorf("predict: %w", err)
	}
	if err := t.endProgram(0); err != nil {
		return err
	}
	p := t.place
	p.model, p.answer, p.command = filepath.Join(p.work, modelFile), filepath.Join(p.work, outputFile), t.job.Spec.Predict
	if input != "" {
		p.ask = filepath.Join(p.work, input)
	}
	if err := t.start(ctx, p); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		t.broken = ctx.Err()
		return t.broken
	case <-t.child.exited:
	}
	if !t.succeeded() {
		return t.failed(t.ended())
	}
	return nil
}
