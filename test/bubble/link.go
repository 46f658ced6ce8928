// Package bubble runs a real nats-server with JetStream, the stock client and the committer inside a testing/synctest
// bubble: their goroutines talk over net.Pipe, time stands still while anybody works and jumps when all wait. So an answer
// that is lost for half a minute costs nothing, and comes at the same virtual moment each time.
//
// It decides nothing and is called by its tests alone. DESIGN.md says what could not be brought into the bubble.
package bubble

import (
	"errors"
	"net"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
)

// errCut is what both ends of a cut link see.
var errCut = errors.New("the link is cut")

// link carries the client's connection to the server and breaks it on demand. It is what nats.InProcessServer wants.
type link struct {
	mu    sync.Mutex
	s     *server.Server
	conns []net.Conn
	down  bool // no new connection
	deaf  bool // what the server says is lost
	words int  // writes of the client that still pass before the link is cut; 0: no limit
}

// InProcessConn gives the client a connection that the link watches.
func (l *link) InProcessConn() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errCut
	}
	c, err := l.s.InProcessConn()
	if err != nil {
		return nil, err
	}
	w := &watched{Conn: c, l: l}
	l.conns = append(l.conns, w)
	return w, nil
}

// cut ends every connection. While down is set none comes up again.
func (l *link) cut(down bool) {
	l.mu.Lock()
	conns := l.conns
	l.conns, l.down, l.deaf, l.words = nil, down, false, 0
	l.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// lose lets everything that the server says vanish until the link is cut.
func (l *link) lose() {
	l.mu.Lock()
	l.deaf = true
	l.mu.Unlock()
}

// after cuts the link instead of the client's n-th write from now on.
func (l *link) after(n int) {
	l.mu.Lock()
	l.words = n
	l.mu.Unlock()
}

// up lets connections come up again.
func (l *link) up() { l.cut(false) }

// watched is one connection under the link's eyes.
type watched struct {
	net.Conn
	l *link
}

func (w *watched) Read(p []byte) (int, error) {
	for {
		n, err := w.Conn.Read(p)
		w.l.mu.Lock()
		deaf := w.l.deaf
		w.l.mu.Unlock()
		if err != nil || !deaf {
			return n, err
		}
	}
}

func (w *watched) Write(p []byte) (int, error) {
	w.l.mu.Lock()
	cut := false
	if w.l.words > 0 {
		w.l.words--
		cut = w.l.words == 0
	}
	w.l.mu.Unlock()
	if cut {
		w.l.cut(true)
		return 0, errCut
	}
	return w.Conn.Write(p)
}
