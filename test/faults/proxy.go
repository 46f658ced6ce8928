package main

import (
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tensorturn/test/kit"
)

// weather is what a link does to the bytes that pass. The zero value passes them on.
type weather struct {
	delay    time.Duration // one way
	rate     int           // bytes a second each way, 0 for any
	loss     float64       // chance that a segment has to be sent again: what a TCP stream shows of a lost packet is a stall
	hole     bool          // nothing passes, nothing is closed
	mute     bool          // nothing passes from the agent to the hub
	reset    time.Duration // connections are reset after a random time up to this
	idle     time.Duration // connections on which nothing passed for this long are forgotten without a word
	cutUp    int64         // each connection's first cut: after this many bytes to the hub
	cutDown  int64         // the same from the hub
	cutsLeft *atomic.Int64 // how many connections are cut
}

// stall is what a lost segment costs: the sender's time-out, at the least.
const stall = 300 * time.Millisecond

// proxy stands between an agent and the hub.
type proxy struct {
	l      net.Listener
	target string
	rng    *rand.Rand
	work   sync.WaitGroup

	mu      sync.Mutex
	weather weather
	changed chan struct{}
	conns   map[net.Conn]bool
	closed  bool

	up, down, resets, dials atomic.Int64
}

// between starts a proxy in front of the hub; the bed ends it.
func (w *world) between() *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.Must(err)
	p := &proxy{l: l, target: strings.TrimPrefix(w.URL, "https://"), rng: w.rng, conns: map[net.Conn]bool{}, changed: make(chan struct{})}
	p.work.Go(p.accept)
	w.Bed.Cleanup(p.close)
	return p
}

// url is where agents dial.
func (p *proxy) url() string { return "https://" + p.l.Addr().String() }

// joined makes a machine that reaches the hub through the proxy alone and starts its agent.
func (w *world) joined(p *proxy, name string, flags ...string) *kit.Process {
	w.JoinAt(p.url(), name)
	w.again(name, flags...)
	w.AwaitMachine(name, "online")
	return w.agents[name]
}

// set changes the weather for connections that are open and those to come.
func (p *proxy) set(x weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.weather = x
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *proxy) now() (weather, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.weather, p.changed
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	conns := p.conns
	p.conns = map[net.Conn]bool{}
	close(p.changed)
	p.changed = make(chan struct{})
	p.weather = weather{}
	p.mu.Unlock()
	p.l.Close()
	for c := range conns {
		c.Close()
	}
	p.work.Wait()
}

func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *proxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.Close()
}

func (p *proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.dials.Add(1)
		if p.keep(c) {
			p.work.Go(func() { p.carry(c) })
		}
	}
}

// carry is one connection of an agent.
func (p *proxy) carry(agent net.Conn) {
	defer p.forget(agent)
	hub, err := net.Dial("tcp", p.target)
	if err != nil || !p.keep(hub) {
		return
	}
	defer p.forget(hub)
	l := &link{p: p, agent: agent, hub: hub}
	l.touched.Store(time.Now().UnixNano())
	done := make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() { l.pass(agent, hub, true); l.end() })
	both.Go(func() { l.pass(hub, agent, false); l.end() })
	go func() { both.Wait(); close(done) }()
	l.watch(done)
	<-done
}

// link is a connection with both of its ends.
type link struct {
	p          *proxy
	agent, hub net.Conn
	touched    atomic.Int64
	silent     atomic.Bool // forgotten by a box on the way: nothing passes any more, nobody is told
}

func (l *link) end() {
	if !l.silent.Load() {
		l.agent.Close()
		l.hub.Close()
	}
}

// reset ends the connection as a RST does.
func (l *link) reset() {
	l.p.resets.Add(1)
	for _, c := range []net.Conn{l.agent, l.hub} {
		if t, ok := c.(*net.TCPConn); ok {
			t.SetLinger(0)
		}
		c.Close()
	}
}

// watch resets and forgets by time.
func (l *link) watch(done <-chan struct{}) {
	const every = 20 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	born := time.Now()
	l.p.mu.Lock()
	draw := 0.3 + 0.7*l.p.rng.Float64()
	l.p.mu.Unlock()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		x, _ := l.p.now()
		if x.reset > 0 && time.Since(born) > time.Duration(draw*float64(x.reset)) {
			l.reset()
			return
		}
		if x.idle > 0 && time.Since(time.Unix(0, l.touched.Load())) > x.idle && l.silent.CompareAndSwap(false, true) {
			l.p.resets.Add(1)
		}
	}
}

// segment is what passes at a time.
const segment = 4 << 10

// packet is a segment on its way.
type packet struct {
	data []byte
	due  time.Time
}

// pass carries bytes one way: a reader that paces, and a writer that delays.
func (l *link) pass(from, to net.Conn, up bool) {
	way := make(chan packet, 4096)
	var writer sync.WaitGroup
	writer.Go(func() { l.deliver(to, way) })
	defer writer.Wait()
	defer close(way)
	total := int64(0)
	buf := make([]byte, segment)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			total += int64(n)
			if !l.p.wait(l, up) {
				return
			}
			l.touched.Store(time.Now().UnixNano())
			x, _ := l.p.now()
			if l.cut(x, up, total) {
				l.reset()
				return
			}
			way <- packet{append([]byte(nil), buf[:n]...), time.Now().Add(x.delay)}
			l.count(up, n)
			l.pace(x, n)
		}
		if err != nil {
			return
		}
	}
}

func (l *link) count(up bool, n int) {
	if up {
		l.p.up.Add(int64(n))
	} else {
		l.p.down.Add(int64(n))
	}
}

// cut reports whether this connection ends here.
func (l *link) cut(x weather, up bool, total int64) bool {
	limit := x.cutDown
	if up {
		limit = x.cutUp
	}
	return limit > 0 && total >= limit && x.cutsLeft != nil && x.cutsLeft.Add(-1) >= 0
}

// pace spends the time that n bytes take, and that of a loss.
func (l *link) pace(x weather, n int) {
	d := time.Duration(0)
	if x.rate > 0 {
		d = time.Duration(float64(n) / float64(x.rate) * float64(time.Second))
	}
	if x.loss > 0 {
		l.p.mu.Lock()
		lost := l.p.rng.Float64() < x.loss
		l.p.mu.Unlock()
		if lost {
			d += stall
		}
	}
	if d > 0 {
		<-time.After(d)
	}
}

// wait holds a segment back while nothing may pass; it reports whether the connection lives on.
func (p *proxy) wait(l *link, up bool) bool {
	for {
		x, changed := p.now()
		p.mu.Lock()
		closed := p.closed
		p.mu.Unlock()
		if closed {
			return false
		}
		if !x.hole && !(x.mute && up) && !l.silent.Load() {
			return true
		}
		<-changed
	}
}

func (l *link) deliver(to net.Conn, way <-chan packet) {
	for k := range way {
		if d := time.Until(k.due); d > 0 {
			<-time.After(d)
		}
		if _, err := to.Write(k.data); err != nil {
			for range way { // the reader must not hang
			}
			return
		}
	}
	if t, ok := to.(interface{ CloseWrite() error }); ok && !l.silent.Load() {
		_ = t.CloseWrite()
	}
}
