package device

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/domain"
	"tensorturn/domain/machine"
)

// Options is what a Watcher needs; zero values stand for the constants of this package.
type Options struct {
	Command                      []string // of the prober, without the interval
	Interval, Limit, Quick, Slow time.Duration
	// Hint reports whether a driver may be there at all; without one no prober is started. Nil: DriverHint.
	Hint func() bool
	Log  zerolog.Logger
}

// Watcher keeps the newest readings of the prober and starts it again when it ends or falls silent. Start, then any calls, then Stop.
type Watcher struct {
	opts   Options
	cancel context.CancelFunc
	done   sync.WaitGroup
	stuck  atomic.Int32 // killed probers that have not ended

	mu     sync.Mutex
	now    Reading // GPUs in the order in which they were first seen
	serial uint64  // grows with every change of now
	first  chan struct{}
}

var errSilent = errors.New("it was silent for too long")

// NewWatcher makes a Watcher that does nothing yet.
func NewWatcher(o Options) *Watcher {
	for _, d := range []struct {
		at      *time.Duration
		instead time.Duration
	}{{&o.Interval, Interval}, {&o.Limit, ProbeLimit}, {&o.Quick, QuickRetry}, {&o.Slow, SlowRetry}} {
		if *d.at == 0 {
			*d.at = d.instead
		}
	}
	if o.Hint == nil {
		o.Hint = DriverHint
	}
	return &Watcher{opts: o, first: make(chan struct{})}
}

// Start begins to watch.
func (w *Watcher) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.done.Go(func() { w.watch(ctx) })
}

// Stop ends the prober. One that the kernel does not let end is left behind after a second.
func (w *Watcher) Stop() {
	w.cancel()
	w.done.Wait()
}

// First is closed when something is known: GPUs, or that there are none now.
func (w *Watcher) First() <-chan struct{} { return w.first }

// Latest gives the newest reading and its serial number. It never waits for a driver.
func (w *Watcher) Latest() (Reading, uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.now
	r.GPUs = slices.Clone(r.GPUs)
	return r, w.serial
}

func (w *Watcher) watch(ctx context.Context) {
	strikes := 0
	for ctx.Err() == nil {
		pause := w.opts.Slow
		switch {
		case !w.opts.Hint():
			w.lost("no NVIDIA driver was found")
			pause = min(w.opts.Slow, 10*time.Second) // looking is cheap
		case w.stuck.Load() >= maxStuck:
			w.lost("the NVIDIA driver hangs: it holds killed processes; restart the machine")
		default:
			absent, heard, err := w.session(ctx)
			if heard {
				strikes = 0
			}
			if !absent {
				strikes++
			}
			switch {
			case ctx.Err() != nil:
				return
			case absent:
			case strikes < MaxStrikes:
				pause = w.opts.Quick
				w.opts.Log.Warn().Err(err).Int("strike", strikes).Msg("the GPU prober ended, started again")
			default:
				w.opts.Log.Error().Err(err).Msg("the GPU driver does not answer, tried again later")
				w.lost(fmt.Sprintf("the NVIDIA driver does not answer (%v, %d times in a row)", err, strikes))
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// session is one prober from its start to its end. absent: it has ended because there is no driver; heard: it has said something.
func (w *Watcher) session(ctx context.Context) (absent, heard bool, err error) {
	c := w.opts.Command
	cmd := exec.Command(c[0], append(slices.Clone(c[1:]), strconv.FormatInt(w.opts.Interval.Milliseconds(), 10))...)
	in, ours, err := os.Pipe()
	if err != nil {
		return false, false, err
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		return false, false, errors.Join(err, in.Close(), ours.Close())
	}
	cmd.Stdin, cmd.Stdout = in, theirs
	err = cmd.Start()
	_, _ = in.Close(), theirs.Close()
	if err != nil {
		return false, false, errors.Join(err, ours.Close(), out.Close())
	}
	lines, over := make(chan Reading), make(chan struct{})
	go listen(out, lines, over) // ends when out is closed
	defer func() {
		close(over)
		_, _ = ours.Close(), out.Close()
		w.bury(cmd)
	}()
	silence := time.NewTimer(w.opts.Limit)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, heard, nil
		case <-silence.C:
			return false, heard, errSilent
		case r, ok := <-lines:
			switch {
			case !ok:
				return absent, heard, errors.New("it ended by itself")
			case r.Absent:
				absent = true
				w.lost(r.Trouble)
			default:
				heard = true
				w.take(r)
			}
			silence.Reset(w.opts.Limit)
		}
	}
}

// listen hands on the prober's lines until it ends or over.
func listen(out io.Reader, lines chan<- Reading, over <-chan struct{}) {
	defer close(lines)
	s := bufio.NewScanner(out)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		var r Reading
		if json.Unmarshal(s.Bytes(), &r) != nil {
			return
		}
		select {
		case lines <- r:
		case <-over:
			return
		}
	}
}

// bury kills the prober and waits a moment. One within a hanging driver ends when the driver lets it; until then it is counted.
func (w *Watcher) bury(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	ended := make(chan struct{})
	w.stuck.Add(1)
	go func() { // ends with the process, which only the kernel can make end
		_ = cmd.Wait()
		w.stuck.Add(-1)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(endTime):
	}
}

// take makes r the newest reading. A GPU that was known and is not in it is gone, and keeps its place.
func (w *Watcher) take(r Reading) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.now.GPUs
	r.GPUs = r.GPUs[:min(len(r.GPUs), machine.MaxGPUs)]
	merged := make([]machine.GPU, 0, len(known)+len(r.GPUs))
	for _, k := range known {
		i := slices.IndexFunc(r.GPUs, func(g machine.GPU) bool { return g.UUID == k.UUID })
		if i < 0 {
			merged = append(merged, gone(k, "its driver does not list it any more"))
			continue
		}
		if r.GPUs[i].Errors < k.Errors { // a new prober counts from zero
			r.GPUs[i].XID, r.GPUs[i].Errors = k.XID, k.Errors
		}
		merged = append(merged, r.GPUs[i])
	}
	for _, g := range r.GPUs {
		if !slices.ContainsFunc(known, func(k machine.GPU) bool { return k.UUID == g.UUID }) && len(merged) < machine.MaxGPUs {
			merged = append(merged, g)
		}
	}
	r.GPUs, r.Trouble = merged, domain.Clip(r.Trouble, 400)
	w.changed(r)
}

// lost says that no GPU is usable now, and why.
func (w *Watcher) lost(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.now
	if r.Trouble == why && w.serial > 0 {
		return
	}
	r.Trouble, r.GPUs = domain.Clip(why, 400), slices.Clone(r.GPUs)
	for i, g := range r.GPUs {
		r.GPUs[i] = gone(g, r.Trouble)
	}
	w.changed(r)
}

func (w *Watcher) changed(r Reading) {
	w.now = r
	w.serial++
	if w.serial == 1 {
		close(w.first)
	}
}

// gone is a GPU of which only its identity is left.
func gone(g machine.GPU, why string) machine.GPU {
	return machine.GPU{Index: g.Index, UUID: g.UUID, Name: g.Name, Memory: machine.Space{Total: g.Memory.Total}, XID: g.XID, Errors: g.Errors, Gone: why}
}

// DriverHint reports whether this machine shows a trace of an NVIDIA driver, without asking it anything.
func DriverHint() bool {
	for _, p := range []string{"/proc/driver/nvidia", "/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"} {
		if _, err := os.Lstat(p); err == nil {
			return true
		}
	}
	_, err := exec.LookPath("nvidia-smi")
	return err == nil
}
