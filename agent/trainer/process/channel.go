package process

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// channel carries messages to and from a child, over a socket or the child's standard streams, whichever it speaks on
// first, and its prints to the log. Its goroutines end when close is called and the child's files are closed.
type channel struct {
	listener net.Listener
	stdin    *os.File // what we write
	stdout   *os.File // what we read
	stderr   *os.File
	log      *attemptLog

	arrived chan arrival // closed by nobody; quit ends those who wait
	quit    chan struct{}
	claimed atomic.Bool   // a source has become the channel
	spoke   chan struct{} // closed then
	wg      sync.WaitGroup
	prints  sync.WaitGroup // the readers of what is printed
	printed chan struct{}  // closed when both have ended

	mu   sync.Mutex
	conn net.Conn // of the socket, nil before
}

// arrival is one line of the child, or the end of its channel.
type arrival struct {
	line []byte // without line feed
	via  io.Writer
	err  error
}

var errTooLong = fmt.Errorf("a message is longer than %d bytes", MaxMessage)

// newChannel makes the socket and begins to read. The socket is the owner's alone by the mode of its folder.
func newChannel(socket string, log *attemptLog, stdin, stdout, stderr *os.File) (*channel, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	c := &channel{listener: l, stdin: stdin, stdout: stdout, stderr: stderr, log: log, arrived: make(chan arrival), quit: make(chan struct{}), spoke: make(chan struct{}), printed: make(chan struct{})}
	c.wg.Go(c.accept)
	c.prints.Go(c.readOutput)
	c.prints.Go(func() { c.log.drain(bounded(c.stderr)) })
	c.wg.Go(func() {
		c.prints.Wait()
		close(c.printed)
	})
	return c, nil
}

// accept takes the one connection.
func (c *channel) accept() {
	conn, err := c.listener.Accept()
	if err != nil {
		return
	}
	_ = c.listener.Close()
	if !c.claim() {
		_ = conn.Close()
		return
	}
	c.mu.Lock()
	c.conn = conn
	c.mu.Unlock()
	_ = c.stdin.Close() // a script that reads its standard input finds it empty
	select {
	case <-c.quit:
		_ = conn.Close()
	default:
	}
	c.pass(bounded(conn), conn)
}

// readOutput logs standard output, unless its first line is a hello: then it is the channel.
func (c *channel) readOutput() {
	r := bounded(c.stdout)
	first, _ := r.Peek(len(helloMark)) // short when so little is printed in all
	if bytes.HasPrefix(first, []byte(helloMark)) && c.claim() {
		_ = c.listener.Close()
		c.pass(r, c.stdin)
		return
	}
	c.log.drain(r)
}

// claim makes the caller's source the channel; false when another one is.
func (c *channel) claim() bool {
	first := c.claimed.CompareAndSwap(false, true)
	if first {
		close(c.spoke)
	}
	return first
}

// helloMark begins a hello on standard output, byte for byte: what else a program prints first is for the log.
const helloMark = `{"type":"hello"`

// pass hands lines on one by one; whoever sends faster than we read waits.
func (c *channel) pass(r *bufio.Reader, via io.Writer) {
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			err = errTooLong
		}
		a := arrival{via: via, err: err}
		if err == nil {
			a.line = bytes.Clone(line[:len(line)-1])
		}
		select {
		case c.arrived <- a:
		case <-c.quit:
			return
		}
		if err != nil {
			return
		}
	}
}

// settle waits until everything printed is in the log, at most d: a process that got away may hold the files open.
func (c *channel) settle(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.printed:
	case <-t.C:
	}
}

// hangUp tells the child that the channel is over.
func (c *channel) hangUp() {
	_ = c.stdin.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.Close()
	}
}

// close ends every goroutine and waits. The child must be gone.
func (c *channel) close() {
	close(c.quit)
	_ = c.listener.Close()
	c.hangUp()
	_ = c.stdout.Close()
	_ = c.stderr.Close()
	c.wg.Wait()
}
