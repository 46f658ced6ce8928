package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"tensorturn/domain"
	render "tensorturn/projections/feed"
)

// refusals is how often a receiver may refuse one event (4xx) before it is put aside as dead.
const refusals = 5

// worker sends the events of one hook.
type worker struct {
	hooks  *Hooks
	cancel context.CancelFunc
	done   chan struct{}
	again  chan struct{} // send the dead ones once more

	mu   sync.Mutex
	hook Hook
}

// picture is the hook without its secret.
func (w *worker) picture() Hook {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.hook.told()
	k.Secret = ""
	return k
}

func (w *worker) change(f func(*Hook)) Hook {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.hook)
	return w.hook
}

func (w *worker) keep() {
	if err := w.change(func(*Hook) {}).save(w.hooks.cfg.Dir); err != nil {
		w.hooks.cfg.Logger.Error().Err(err).Str("webhook", w.hook.ID).Msg("place of webhook not kept")
	}
}

// verdict is what became of one attempt.
type verdict int

const (
	taken   verdict = iota
	refused         // 4xx: this event is not wanted as it is
	away            // no answer, 5xx, 408 or 429: the receiver is in trouble, whatever the event
	gone            // 410: the receiver wants no more
)

func (w *worker) run(ctx context.Context) {
	defer w.keep()
	for ctx.Err() == nil {
		k := w.picture()
		if k.Stopped != "" {
			select {
			case <-w.again:
				w.change(func(k *Hook) { k.Stopped = "" })
				w.revive(ctx)
			case <-ctx.Done():
			}
			continue
		}
		err := w.follow(ctx)
		if err != nil && ctx.Err() == nil {
			w.hooks.cfg.Logger.Warn().Err(err).Str("webhook", k.ID).Msg("webhook waits")
			w.change(func(k *Hook) { k.Failing = err.Error() })
			w.pause(ctx, w.hooks.cfg.RetryMost)
		}
	}
}

// errAgain ends following so that dead events are sent first.
var errAgain = errors.New("redeliver")

// follow sends what is new until the hook stops or somebody asks for the dead ones.
func (w *worker) follow(ctx context.Context) error {
	inner, stop := context.WithCancelCause(ctx)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		select {
		case <-w.again:
			stop(errAgain)
		case <-inner.Done():
		}
	}()
	err := w.batches(inner)
	stop(nil)
	<-asked
	if errors.Is(context.Cause(inner), errAgain) {
		w.revive(ctx)
		return nil
	}
	return err
}

func (w *worker) batches(ctx context.Context) error {
	for b, err := range w.hooks.cfg.Source.Follow(ctx, w.picture().After) {
		if err != nil {
			return err
		}
		for _, m := range b.Messages {
			if k := w.picture(); !k.wants(m) {
				continue
			}
			if !w.deliver(ctx, m) {
				return nil
			}
			w.change(func(k *Hook) { k.After = m.Seq })
		}
		w.change(func(k *Hook) { k.After = b.Upto })
		w.keep()
	}
	return nil
}

// deliver sends one event until it is taken or put aside. False says that the hook must not go on.
func (w *worker) deliver(ctx context.Context, m render.Message) bool {
	refusedSoFar, wait := 0, w.hooks.cfg.RetryFirst
	for {
		v, why := w.attempt(ctx, m)
		if ctx.Err() != nil {
			return false
		}
		switch v {
		case taken:
			w.change(func(k *Hook) { k.Failing = "" })
			return true
		case gone:
			w.change(func(k *Hook) { k.Stopped = "the receiver answers 410 Gone" })
			return false
		case refused:
			if refusedSoFar++; refusedSoFar == refusals {
				return w.putAside(m, why)
			}
		}
		w.change(func(k *Hook) { k.Failing = fmt.Sprintf("event %d: %s", m.Seq, why) })
		if !w.pause(ctx, wait) {
			return false
		}
		wait = min(2*wait, w.hooks.cfg.RetryMost)
	}
}

// putAside keeps a refused event in the list of dead ones.
func (w *worker) putAside(m render.Message, why string) bool {
	k := w.change(func(k *Hook) {
		if len(k.Dead) >= MaxDead {
			k.Stopped = fmt.Sprintf("the receiver refused %d events", MaxDead)
			return
		}
		k.Dead = append(k.Dead, Dead{Seq: m.Seq, ID: m.ID, Type: m.Type, Why: why, At: w.hooks.cfg.Now().UTC().Truncate(time.Second)})
		k.Failing = ""
	})
	w.hooks.cfg.Logger.Warn().Str("webhook", k.ID).Uint64("seq", m.Seq).Str("why", why).Msg("webhook refuses an event")
	return k.Stopped == ""
}

// revive sends every dead event once; those that are not taken stay dead.
func (w *worker) revive(ctx context.Context) {
	for _, d := range w.picture().Dead {
		for b, err := range w.hooks.cfg.Source.Follow(ctx, d.Seq-1) {
			if err == nil && len(b.Messages) > 0 && b.Messages[0].Seq == d.Seq {
				if v, _ := w.attempt(ctx, b.Messages[0]); v == taken {
					w.change(func(k *Hook) { k.Dead = without(k.Dead, d.Seq) })
				}
			}
			break
		}
		if ctx.Err() != nil {
			return
		}
	}
	w.keep()
}

func without(dead []Dead, seq uint64) []Dead {
	var out []Dead
	for _, d := range dead {
		if d.Seq != seq {
			out = append(out, d)
		}
	}
	return out
}

// pause waits a random time between half of d and d; false when ctx ends first.
func (w *worker) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// attempt sends one event once. Why says no more than the status: what a receiver answers is not the operator's business.
func (w *worker) attempt(ctx context.Context, m render.Message) (verdict, string) {
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	k := w.change(func(*Hook) {})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.URL, bytes.NewReader(m.Data))
	if err != nil {
		return away, "the URL cannot be used"
	}
	now := w.hooks.cfg.Now()
	signature, err := Sign(k.Secret, m.ID, now, m.Data)
	if err != nil {
		return away, err.Error()
	}
	req.Header.Set("Content-Type", render.ContentType)
	req.Header.Set("User-Agent", "tensorturn/"+w.hooks.cfg.Version)
	req.Header.Set(HeaderID, m.ID)
	req.Header.Set(HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(HeaderSignature, signature)
	resp, err := w.hooks.client.Do(req)
	if err != nil {
		if domain.KindOf(err) == domain.KindDenied {
			return away, host(k.URL) + " is in a private network"
		}
		return away, host(k.URL) + " does not answer"
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	why := host(k.URL) + " answers " + strconv.Itoa(resp.StatusCode)
	switch c := resp.StatusCode; {
	case c >= 200 && c < 300:
		return taken, ""
	case c == http.StatusGone:
		return gone, why
	case c >= 400 && c < 500 && c != http.StatusRequestTimeout && c != http.StatusTooManyRequests:
		return refused, why
	}
	return away, why
}
