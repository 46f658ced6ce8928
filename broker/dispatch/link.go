package dispatch

import (
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"tensorturn/broker/wire"
)

// Limits of what may wait between the connection and the dispatcher.
const (
	maxPending      = 4096
	maxPendingBytes = 256 << 20
)

// Link carries questions over a connection of the account that machines' accounts import from. A question has a reply subject
// that no machine can reach: the server itself answers there when nobody listens.
type Link struct {
	nc    *nats.Conn
	inbox string

	mu     sync.RWMutex
	closed bool
	subs   []*nats.Subscription
}

// NewLink makes a link; the connection stays its maker's.
func NewLink(nc *nats.Conn) *Link { return &Link{nc: nc, inbox: nats.NewInbox() + "."} }

// Serve hands answers and news of questions that nobody hears to the functions, which must not block.
func (l *Link) Serve(answer func(account string, data []byte), unreached func(id uint64)) error {
	return errorsOf(
		l.listen(wire.AnswerSubjects, func(m *nats.Msg) {
			if account, ok := wire.AccountOfAnswer(m.Subject); ok {
				answer(account, m.Data)
			}
		}),
		l.listen(l.inbox+"*", func(m *nats.Msg) {
			id, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, l.inbox), 10, 64)
			if err == nil && m.Header.Get("Status") == "503" {
				unreached(id)
			}
		}),
	)
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *Link) listen(subject string, handle func(*nats.Msg)) error {
	sub, err := l.nc.Subscribe(subject, func(m *nats.Msg) {
		l.mu.RLock()
		defer l.mu.RUnlock()
		if !l.closed {
			handle(m)
		}
	})
	if err != nil {
		return err
	}
	l.subs = append(l.subs, sub)
	return sub.SetPendingLimits(maxPending, maxPendingBytes)
}

// Send implements Sender.
func (l *Link) Send(account string, id uint64, ask []byte) error {
	return l.nc.PublishRequest(wire.AskSubject(account), l.inbox+strconv.FormatUint(id, 10), ask)
}

// Close ends serving: the functions are not called after it returns.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	for _, s := range l.subs {
		_ = s.Unsubscribe() // the connection may be gone already
	}
}
