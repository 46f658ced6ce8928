package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"tensorturn/agent/trainer"
	"tensorturn/domain"
	"tensorturn/domain/merge"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

// Trainer is one program at work for one slot and run. It serves one goroutine at a time. After an error of the
// program, or a call that its context ended, it may only be closed.
type Trainer struct {
	opener *Opener
	job    trainer.Job

	unit, dir, short string // name; folder; folder of the socket when dir is too long
	attempt, batch   int
	command          []string
	root             *os.Root // the work folder
	log              *attemptLog
	channel          *channel
	child            *child
	watching         sync.WaitGroup // the goroutine that looks after the child
	tree             *tree          // what it saw; its own until it has ended
	dry              atomic.Bool    // what it takes is measured, with a closer look
	looked, resident atomic.Int64   // looks at its processes; the most bytes that they had in one, while dry
	device           uint64         // bytes of a GPU that its allocator has taken, as it says
	computed         atomic.Int64   // time that its processes have computed, in ticks of the system
	container        *container     // nil when there is none
	via              io.Writer      // where requests go, nil before the hello

	hello  message
	layout []safetensors.Tensor
	place  place
	solo   bool  // it ended well and never spoke: its weights are in its output folder
	silent bool  // it is at work and has not spoken yet
	packed bool  // a file of the output's name came with the code
	id     int64 // of the newest request
	broken error // why it may only be closed
	closed bool
}

var _ trainer.Trainer = (*Trainer)(nil)

// Layout implements trainer.Trainer.
func (t *Trainer) Layout() []safetensors.Tensor {
	return append([]safetensors.Tensor(nil), t.layout...)
}

// greet waits for the program's hello and checks it against the run.
func (t *Trainer) greet(ctx context.Context) error {
	m, err := t.receive(ctx)
	if err != nil {
		return err
	}
	want := t.job.Dataset
	switch {
	case m.Type != "hello":
		return t.failed(fail(KindProtocol, "the first message is "+show(m.Type)+", not a hello", ""))
	case m.Version != Version:
		return t.failed(fail(KindProtocol, fmt.Sprintf("the script speaks version %d of the protocol, this agent %d", m.Version, Version), "use the helper module of this release"))
	case m.Samples != int64(want.Samples) && !t.job.Serve: // who only serves needs no data
		return t.failed(fail(KindData, fmt.Sprintf("the script's data set has %d samples, the spec says %d", m.Samples, want.Samples), "set data.samples to the length of the data set, the same on all machines"))
	case !validFile(m.Weights):
		return t.failed(fail(KindProtocol, "the hello names no file of weights: "+show(m.Weights), ""))
	}
	t.hello = m
	f, failure := t.openFile(m.Weights)
	if failure != nil {
		return t.failed(failure)
	}
	defer func() { _ = f.Close() }()
	r, err := safetensors.NewReader(f)
	if err == nil {
		err = merge.CheckWeights(r.Tensors())
	}
	if err != nil {
		return t.failed(fail(KindOutput, "the script's initial weights cannot be used: "+err.Error(), domain.NextOf(err)))
	}
	t.layout = r.Tensors()
	return nil
}

// Rejoin implements trainer.Trainer.
func (t *Trainer) Rejoin(ctx context.Context) error {
	return t.call(ctx, request{Type: "rejoin", Ramp: trainer.RampSteps})
}

// Train implements trainer.Trainer. What the program reports is checked against the chunk: it decides no sums.
func (t *Trainer) Train(ctx context.Context, c domain.ChunkID, progress func(trainer.Progress)) (trainer.Result, error) {
	var done trainer.Result
	s, d := t.job.Spec, t.job.Dataset
	if c < 0 || int(c) >= run.TotalChunks(s, d) {
		return done, domain.Invalid("train", fmt.Sprintf("chunk %d does not exist", c), fmt.Sprintf("the run has chunks 0 to %d", run.TotalChunks(s, d)-1))
	}
	if err := t.usable(ctx); err != nil {
		return done, err
	}
	if t.alone() || t.silent {
		if done, err := t.trainAlone(ctx, progress); err != nil || done.All {
			return done, err
		}
		if err := t.Init(ctx); err != nil { // it has spoken after all
			return done, err
		}
	}
	epoch, first, n := run.ChunkRange(s, d, c)
	if err := t.ask(request{Type: "train", segment: &segment{Chunk: int(c), Epoch: epoch, First: first, Count: n, Position: run.Position(s, d, c), Total: run.TotalSamples(s, d)}}); err != nil {
		return done, err
	}
	left := int64(n)
	for {
		m, err := t.receive(ctx)
		if err != nil {
			return done, err
		}
		switch {
		case m.Type == "step" && m.Samples >= 1 && m.Samples <= left:
			left -= m.Samples
			t.device = max(t.device, uint64(m.Device))
			done.Steps++
			report(progress, m)
		case m.Type == "step":
			return done, t.failed(fail(KindProtocol, fmt.Sprintf("a step of %d samples where the chunk has %d left", m.Samples, left), ""))
		case m.Type == "trained" && left == 0 && m.Steps == int64(done.Steps):
			done.Loss = value(m.Loss)
			return done, nil
		case m.Type == "trained":
			return done, t.failed(fail(KindProtocol, fmt.Sprintf("chunk %d is called trained after %d of its %d samples", c, int64(n)-left, n), "train every batch of the chunk"))
		default:
			return done, t.failed(fail(KindProtocol, "within train came "+show(m.Type), ""))
		}
	}
}

// Evaluate implements trainer.Trainer.
func (t *Trainer) Evaluate(ctx context.Context, progress func(trainer.Progress)) (trainer.Metrics, error) {
	const op = "evaluate"
	if err := t.usable(ctx); err != nil {
		return trainer.Metrics{}, err
	}
	if t.alone() {
		_, m, err := t.Outputs(ctx, progress)
		return m, err
	}
	if !t.hello.Evaluates {
		return trainer.Metrics{}, domain.Invalid(op, "the script cannot measure a model", "give evaluate= to tensorturn.join, or set data.heldout to 0")
	}
	if err := t.ask(request{Type: "evaluate"}); err != nil {
		return trainer.Metrics{}, err
	}
	for {
		m, err := t.receive(ctx)
		if err != nil {
			return trainer.Metrics{}, err
		}
		switch {
		case m.Type == "step" && m.Samples >= 1:
			report(progress, m)
		case m.Type == "evaluated" && m.Samples >= 1 && m.Loss != nil && *m.Loss >= 0 && m.Accuracy >= 0 && m.Accuracy <= 1:
			return trainer.Metrics{Samples: int(m.Samples), Accuracy: m.Accuracy, Loss: *m.Loss}, nil
		default:
			return trainer.Metrics{}, t.failed(fail(KindProtocol, "within evaluate came "+show(m.Type)+" or numbers that cannot be", ""))
		}
	}
}

// report passes a step on.
func report(progress func(trainer.Progress), m message) {
	if progress != nil {
		progress(trainer.Progress{Samples: int(m.Samples), Loss: value(m.Loss)})
	}
}

// value is a loss, 0 when the program does not know it.
func value(loss *float64) float64 {
	if loss == nil {
		return 0
	}
	return *loss
}

// Close implements trainer.Trainer: the program is asked to end, then made to, and its folders are removed. Its log
// stays.
func (t *Trainer) Close() error {
	if t.closed {
		return nil
	}
	soft := t.opener.opts.CloseGrace
	if t.broken != nil || t.via == nil {
		soft = 0 // it may be in the middle of anything
	} else {
		_ = t.ask(request{Type: "close"})
	}
	return t.stop(soft)
}

// stop ends the program and frees everything; it copes with a trainer that was opened halfway.
func (t *Trainer) stop(soft time.Duration) error {
	t.closed = true
	errs := []error{t.endProgram(soft)}
	t.opener.runs(t.unit, false)
	if t.log != nil {
		t.log.close()
	}
	if t.root != nil {
		errs = append(errs, t.root.Close())
	}
	for _, d := range []string{t.dir, t.short} {
		if d != "" {
			errs = append(errs, os.RemoveAll(d))
		}
	}
	return errors.Join(errs...)
}

// endProgram ends the child with everything it started and its channel, if there are any.
func (t *Trainer) endProgram(soft time.Duration) (err error) {
	if t.child != nil {
		err = t.child.end(soft, t.opener.opts.KillGrace)
		t.watching.Wait()
		if t.tree != nil {
			t.tree.end()
		}
	}
	if t.container != nil {
		t.opener.dropContainer(t.container)
	}
	if t.channel != nil {
		t.channel.close()
	}
	t.child, t.container, t.channel = nil, nil, nil
	return err
}
