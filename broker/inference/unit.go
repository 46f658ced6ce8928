package inference

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"tensorturn/domain"
)

// Limits of one model's queue.
const (
	batchRows     = 256     // rows of one pass: more bring a processor nothing
	maxQueuedRows = 1 << 16 // waiting for one model
)

// unit is a loaded model and its queue. Whoever finds it idle runs his own rows at once, with no other goroutine and no
// wait; who comes meanwhile queues, and the first of the queue runs all of it, up to batchRows, as the next pass. A batch
// therefore forms exactly while the model is busy, and waits no longer than one pass.
type unit struct {
	predictor Predictor
	ctx       context.Context // of the engine: a pass serves several callers and obeys none of them

	mu    sync.Mutex
	busy  bool
	queue []*call
	rows  int // in the queue
	bad   bool
}

// call is a request in the queue.
type call struct {
	features []float32
	rows     int
	out      []float32
	err      error
	turn     chan bool // true: lead the next pass; false: out and err are set
}

func newUnit(ctx context.Context, p Predictor) *unit { return &unit{predictor: p, ctx: ctx} }

// predict gives probabilities for the rows.
func (u *unit) predict(ctx context.Context, features []float32, rows int) ([]float32, error) {
	u.mu.Lock()
	if !u.busy {
		u.busy = true
		u.mu.Unlock()
		out, err := u.pass(features)
		u.next()
		return out, err
	}
	if u.rows+rows > maxQueuedRows {
		u.mu.Unlock()
		return nil, domain.Unavailable("predict", "too many rows wait for this model", "try again", nil)
	}
	c := &call{features: features, rows: rows, turn: make(chan bool, 1)}
	u.queue = append(u.queue, c)
	u.rows += rows
	u.mu.Unlock()
	return u.wait(ctx, c)
}

// wait waits for the call's turn, or until it is too late for it.
func (u *unit) wait(ctx context.Context, c *call) ([]float32, error) {
	limit := time.NewTimer(waitTime)
	defer limit.Stop()
	var lead bool
	select {
	case lead = <-c.turn:
	case <-ctx.Done():
		if u.leave(c) {
			return nil, ctx.Err()
		}
		lead = <-c.turn // it is in a pass, or is to lead one
	case <-limit.C:
		if u.leave(c) {
			return nil, domain.Unavailable("predict", fmt.Sprintf("the model was busy for %s", waitTime), "try again", nil)
		}
		lead = <-c.turn
	}
	if lead {
		u.lead(c)
	}
	return c.out, c.err
}

// leave takes a call out of the queue; false when it is in it no more.
func (u *unit) leave(c *call) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	i := slices.Index(u.queue, c)
	if i < 0 {
		return false
	}
	u.queue = slices.Delete(u.queue, i, i+1)
	u.rows -= c.rows
	return true
}

// next hands the model to the first of the queue, or leaves it idle.
func (u *unit) next() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.queue) == 0 {
		u.busy = false
		return
	}
	c := u.queue[0]
	u.queue = slices.Delete(u.queue, 0, 1)
	u.rows -= c.rows
	c.turn <- true
}

// lead runs a pass for c and as many of the queue as fit.
func (u *unit) lead(c *call) {
	batch, rows := []*call{c}, c.rows
	u.mu.Lock()
	n := 0
	for n < len(u.queue) && rows+u.queue[n].rows <= batchRows {
		rows += u.queue[n].rows
		batch = append(batch, u.queue[n])
		n++
	}
	u.rows -= rows - c.rows
	u.queue = slices.Delete(u.queue, 0, n)
	u.mu.Unlock()
	defer u.next()
	if len(batch) == 1 {
		c.out, c.err = u.pass(c.features)
		return
	}
	var all []float32
	for _, b := range batch {
		all = append(all, b.features...)
	}
	out, err := u.pass(all)
	if err != nil { // one caller's values may be what is wrong: let each answer for his own
		for _, b := range batch {
			b.out, b.err = u.pass(b.features)
		}
	} else {
		width := len(out) / rows
		for _, b := range batch {
			b.out = out[: b.rows*width : b.rows*width]
			out = out[b.rows*width:]
		}
	}
	for _, b := range batch[1:] {
		b.turn <- false
	}
}

// pass runs the model. A panic of it is an error of these rows, and the model is not used again.
func (u *unit) pass(features []float32) (out []float32, err error) {
	defer func() {
		if r := recover(); r != nil {
			u.mu.Lock()
			u.bad = true
			u.mu.Unlock()
			out, err = nil, &domain.Error{Kind: domain.KindInternal, Op: "predict", Why: fmt.Sprint("panic: ", r)}
		}
	}()
	out, err = u.predictor.Predict(u.ctx, features)
	if b, ok := u.predictor.(interface{ Broken() bool }); err != nil && ok && b.Broken() {
		u.mu.Lock()
		u.bad = true
		u.mu.Unlock()
	}
	return out, err
}

// broken reports whether the model panicked, or says that it may only be closed: it is loaded anew.
func (u *unit) broken() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.bad
}
