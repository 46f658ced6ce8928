package main

import (
	"io"
	"net"
	"strings"
	"sync"

	"tensorturn/domain"
)

// relay stands between a machine of a drill and its hub, so that the drill can part them without touching this computer's network.
type relay struct {
	l      net.Listener
	target string
	work   sync.WaitGroup

	mu     sync.Mutex
	open   map[net.Conn]bool
	gate   chan struct{} // closed while bytes pass
	closed bool
}

func newRelay(hub string) (*relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, domain.Unavailable("drill", "no port can be taken on loopback", "", err)
	}
	r := &relay{l: l, target: strings.TrimPrefix(hub, "https://"), open: map[net.Conn]bool{}, gate: make(chan struct{})}
	close(r.gate)
	r.work.Go(r.accept)
	return r, nil
}

func (r *relay) url() string { return "https://" + r.l.Addr().String() }

// part holds every byte back, both ways; nothing is closed, as nothing is by a cable that is pulled. mend lets them pass.
func (r *relay) part() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.gate:
		r.gate = make(chan struct{})
	default:
	}
}

func (r *relay) mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.gate:
	default:
		close(r.gate)
	}
}

func (r *relay) passing() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gate
}

// stop closes everything and waits.
func (r *relay) stop() {
	r.mend()
	r.mu.Lock()
	r.closed = true
	for c := range r.open {
		c.Close()
	}
	r.mu.Unlock()
	r.l.Close()
	r.work.Wait()
}

func (r *relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		c.Close()
		return false
	}
	r.open[c] = true
	return true
}

func (r *relay) forget(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
	c.Close()
}

func (r *relay) accept() {
	for {
		c, err := r.l.Accept()
		if err != nil {
			return
		}
		if r.keep(c) {
			r.work.Go(func() { r.carry(c) })
		}
	}
}

func (r *relay) carry(machine net.Conn) {
	defer r.forget(machine)
	hub, err := net.Dial("tcp", r.target)
	if err != nil || !r.keep(hub) {
		return
	}
	defer r.forget(hub)
	var both sync.WaitGroup
	both.Go(func() { r.pass(hub, machine); machine.Close(); hub.Close() })
	both.Go(func() { r.pass(machine, hub); machine.Close(); hub.Close() })
	both.Wait()
}

// pass carries bytes while the gate is open.
func (r *relay) pass(to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			<-r.passing()
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
