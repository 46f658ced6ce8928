package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"tensorturn/broker/embedded"
	"tensorturn/broker/wire"
	"tensorturn/domain"
)

// Watching of the link. Programs inside the leafnode never see an outage, so the transport looks for itself.
const (
	linkLook  = 100 * time.Millisecond // how often the link is looked at: as long may work wait for a link that is back
	linkLimit = 10 * time.Minute       // without an answer for this long the leafnode is made anew
)

// Leaf is the Transport over an embedded leafnode, and the watchdog over it.
type Leaf struct {
	options embedded.LeafOptions
	look    time.Duration
	limit   time.Duration

	mu       sync.Mutex
	leaf     *embedded.Leaf
	wake     func()
	ask      func([]byte)
	answered time.Time               // the newest answer, or the newest start
	over     uint64                  // the link of the newest sync
	tear     context.CancelCauseFunc // ends it, nil before the first one

	cancel context.CancelFunc
	done   chan struct{}
}

var (
	_ Transport = (*Leaf)(nil)
	_ Questions = (*Leaf)(nil)
)

// StartLeaf starts the leafnode and its watchdog. The link comes up behind it. ctx bounds the start alone.
func StartLeaf(ctx context.Context, o embedded.LeafOptions) (*Leaf, error) {
	return startLeaf(ctx, o, linkLook, linkLimit)
}

func startLeaf(ctx context.Context, o embedded.LeafOptions, look, limit time.Duration) (*Leaf, error) {
	l := &Leaf{options: o, look: look, limit: limit, done: make(chan struct{})}
	if err := l.renew(ctx); err != nil {
		return nil, err
	}
	watch, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	go l.watch(watch)
	return l, nil
}

// errLinkLost ends a sync whose answer has no way back.
var errLinkLost = errors.New("the link was lost meanwhile")

// Sync implements Transport. Without a link it fails at once, and when the link is lost: what was asked over one is not answered
// over the next. One at a time.
func (l *Leaf) Sync(ctx context.Context, request []byte) ([]byte, error) {
	ctx, tear := context.WithCancelCause(ctx)
	defer tear(nil)
	l.mu.Lock()
	nc := l.leaf.Conn()
	l.over, l.tear = l.leaf.Link(), tear
	over := l.over
	l.mu.Unlock()
	noLink := domain.Unavailable("ask the hub", "there is no link to it", "check network, address and credential; see the log of the leafnode", nil)
	if over == 0 { // one that came up just now would carry the request, and nobody would know whose loss ends it
		return nil, noLink
	}
	m, err := nc.RequestWithContext(ctx, wire.LocalSync, request)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errLinkLost):
		return nil, domain.Unavailable("ask the hub", errLinkLost.Error(), "", nil)
	case errors.Is(err, nats.ErrNoResponders):
		return nil, noLink
	case err != nil:
		return nil, domain.Unavailable("ask the hub", "no answer came", "", err)
	}
	l.mu.Lock()
	l.answered = time.Now()
	l.mu.Unlock()
	return m.Data, nil
}

// OnWake implements Transport.
func (l *Leaf) OnWake(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wake = f
}

// OnAsk implements Questions.
func (l *Leaf) OnAsk(f func([]byte)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ask = f
}

// Answer implements Questions.
func (l *Leaf) Answer(said []byte) error {
	l.mu.Lock()
	nc := l.leaf.Conn()
	l.mu.Unlock()
	return nc.Publish(wire.LocalAnswer, said)
}

// asked hands a question on. Without anybody to take it the hub hears nothing, and asks another machine.
func (l *Leaf) asked(m *nats.Msg) {
	l.mu.Lock()
	ask := l.ask
	l.mu.Unlock()
	if ask != nil {
		ask(m.Data)
	}
}

// Connected implements Transport.
func (l *Leaf) Connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaf.Connected()
}

// Close implements Transport. It is for one caller.
func (l *Leaf) Close() {
	l.cancel()
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaf.Shutdown()
}

// watch ends the sync under way when its link is lost, hints at one when there is another link, and replaces a leafnode that has not
// brought an answer for long.
func (l *Leaf) watch(ctx context.Context) {
	defer close(l.done)
	tick := time.NewTicker(l.look)
	defer tick.Stop()
	link := uint64(0)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		l.mu.Lock()
		now, silent, over, tear := l.leaf.Link(), time.Since(l.answered), l.over, l.tear
		l.mu.Unlock()
		if tear != nil && now != over {
			tear(errLinkLost) // of a sync that has ended: nothing
		}
		if now != link && now != 0 {
			l.hint()
		}
		link = now
		if silent < l.limit {
			continue
		}
		l.options.Logger.Warn().Dur("silent_ms", silent).Msg("no answer for long, leafnode is made anew")
		if err := l.renew(ctx); err != nil {
			l.options.Logger.Error().Err(err).Msg("leafnode could not be made anew, tried later")
		}
		link = 0 // a new one whose link is up by the next look is news as well
	}
}

// renew starts a leafnode, listens for wakes, and ends the one before.
func (l *Leaf) renew(ctx context.Context) error {
	leaf, err := embedded.StartLeaf(ctx, l.options)
	if err == nil {
		_, serr := leaf.Conn().Subscribe(wire.LocalWake, func(*nats.Msg) { l.hint() })
		if serr == nil {
			_, serr = leaf.Conn().Subscribe(wire.LocalAsk, l.asked)
		}
		if serr != nil {
			leaf.Shutdown()
			err = domain.Unavailable("listen for wakes", "the leafnode refuses", "", serr)
		}
	}
	l.mu.Lock()
	l.answered = time.Now() // also after a failure: the next attempt waits as long
	old := l.leaf
	if err == nil {
		l.leaf = leaf
	}
	l.mu.Unlock()
	if err == nil && old != nil {
		old.Shutdown()
	}
	return err
}

func (l *Leaf) hint() {
	l.mu.Lock()
	wake := l.wake
	l.mu.Unlock()
	if wake != nil {
		wake()
	}
}
