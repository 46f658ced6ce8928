package hub

import (
	"sync"

	"github.com/nats-io/nats.go"

	"tensorturn/broker/wire"
)

// Limits of what may wait between the connection and the loop.
const (
	maxPendingRequests = 4096
	maxPendingBytes    = 64 << 20
)

// NATSLink is the Link over a connection of the account that agents' accounts import services from.
type NATSLink struct {
	nc  *nats.Conn
	sub *nats.Subscription

	mu     sync.RWMutex
	closed bool
}

// NewNATSLink makes a link; the connection stays its maker's.
func NewNATSLink(nc *nats.Conn) *NATSLink { return &NATSLink{nc: nc} }

// Serve subscribes to the requests of all machines.
func (l *NATSLink) Serve(handle func(account string, data []byte, reply func([]byte))) error {
	sub, err := l.nc.Subscribe(wire.SyncSubjects, func(m *nats.Msg) {
		account, ok := wire.AccountOfSync(m.Subject)
		if !ok || !wire.AcceptReply(m.Reply) {
			return
		}
		l.mu.RLock()
		defer l.mu.RUnlock()
		if l.closed {
			return
		}
		handle(account, m.Data, func(b []byte) {
			if len(b) > 0 { // an empty answer could be taken for an acknowledgement by whoever owns the reply subject
				_ = l.nc.Publish(m.Reply, b) // a lost reply is asked again
			}
		})
	})
	if err != nil {
		return err
	}
	l.sub = sub
	return sub.SetPendingLimits(maxPendingRequests, maxPendingBytes)
}

// Wake publishes the hint.
func (l *NATSLink) Wake(account string) {
	_ = l.nc.Publish(wire.WakeSubject(account), nil) // only a hint
}

// Close unsubscribes and waits for a request in hand.
func (l *NATSLink) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	if l.sub != nil {
		_ = l.sub.Unsubscribe() // the connection may be gone already
	}
}
