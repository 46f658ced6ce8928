package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tensorturn/domain"
)

// ask sends a request with the next id.
func (t *Trainer) ask(r request) error {
	t.id++
	r.ID = t.id
	if _, err := t.via.Write(r.encode()); err != nil && !t.child.wait(drainTime) {
		return t.failed(fail(KindProtocol, "the script has closed its channel and goes on running", ""))
	}
	return nil // of a program that has ended, receive tells how
}

// receive gives the next message. An error message, the end of the program and the end of ctx are errors.
func (t *Trainer) receive(ctx context.Context) (message, error) {
	if err := ctx.Err(); err != nil {
		t.broken = err
		return message{}, err
	}
	var a arrival
	select {
	case a = <-t.channel.arrived:
	case <-ctx.Done():
		t.broken = ctx.Err()
		return message{}, ctx.Err()
	case <-t.child.exited: // what it said last may still be on its way
		if t.channel.settle(drainTime); !t.channel.claimed.Load() {
			return message{}, t.failed(t.ended()) // it never spoke
		}
		timer := time.NewTimer(drainTime)
		defer timer.Stop()
		select {
		case a = <-t.channel.arrived:
		case <-timer.C:
			return message{}, t.failed(t.ended())
		}
	}
	switch {
	case errors.Is(a.err, errTooLong):
		return message{}, t.failed(fail(KindProtocol, a.err.Error(), "print to standard error, not into the channel"))
	case a.err != nil:
		return message{}, t.failed(t.ended())
	}
	m, err := parseMessage(a.line)
	if err != nil {
		return m, t.failed(fail(KindProtocol, err.Error(), ""))
	}
	t.via = a.via
	if m.Type == "error" {
		return m, t.failed(told(m))
	}
	if m.ID != t.id {
		return m, t.failed(fail(KindProtocol, fmt.Sprintf("a %s message answers request %d, the newest is %d", show(m.Type), m.ID, t.id), ""))
	}
	return m, nil
}

// ended explains a channel that is over: by the program's end, or by its closing it.
func (t *Trainer) ended() *Failure {
	if why := t.child.verdict.Load(); why != nil {
		t.child.wait(drainTime)
		f := *why
		return &f
	}
	if !t.child.wait(drainTime) {
		return fail(KindProtocol, "the script has closed its channel and goes on running", "do not leave the loop over job.batches() early")
	}
	tail := t.settledTail()
	if kind, _ := judge(tail); kind == KindScript { // a long dump may hide what it died of
		if kind, sign := judge(t.log.recent(signBytes)); kind != KindScript {
			tail = append([]string{clean(sign, MaxTailLine)}, tail...)
		}
	}
	return died(t.child.state, t.command, tail)
}

// settledTail gives the last lines once the log has taken in what the dead program printed.
func (t *Trainer) settledTail() []string {
	t.channel.settle(drainTime)
	return t.log.last()
}

// failed notes that the program may only be closed, adds what it printed, and tells the agent's log.
func (t *Trainer) failed(f *Failure) error {
	if t.log != nil {
		f.Log, f.Tail = t.log.path(), t.log.last()
	}
	if f.Kind == KindMemory && t.hello.Halves && t.batch > 1 && t.opener.halve(t.job.Run) {
		f.Next = fmt.Sprintf("the next try takes batches of %d", (t.batch+1)/2)
	}
	t.broken = f
	t.opener.opts.Log.Error().Str("run", string(t.job.Run)).Str("unit", t.unit).Str("kind", string(f.Kind)).Str("log", f.Log).Strs("tail", f.Tail).Msg("trainer failed")
	return f
}

// usable refuses a call on a broken trainer or under an ended context.
func (t *Trainer) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if t.closed {
		return domain.Conflict("use trainer", "it is closed", "")
	}
	return t.broken
}

// call makes a request that is answered by ok.
func (t *Trainer) call(ctx context.Context, r request) error {
	if err := t.usable(ctx); err != nil {
		return err
	}
	if err := t.ask(r); err != nil {
		return err
	}
	m, err := t.receive(ctx)
	if err == nil && m.Type != "ok" {
		err = t.failed(fail(KindProtocol, fmt.Sprintf("the answer to %s is %s", r.Type, show(m.Type)), ""))
	}
	return err
}
