package hostile

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nkeys"

	"tensorturn/broker/identity"
	"tensorturn/test/hostile/pool"
)

// message is anything an attacker was sent.
type message struct{ subject, reply, header, body string }

func (m message) String() string {
	return m.subject + " " + m.reply + " " + m.header + " " + m.body
}

// peer is a hand-written speaker of the NATS protocol over WebSocket: a client, or a leafnode when leaf is set. It
// checks nothing that it sends.
type peer struct {
	conn net.Conn
	leaf bool
	sid  int

	mu    sync.Mutex
	got   []message
	errs  []string
	pongs chan struct{}
	done  chan struct{}
}

// dialPeer connects and proves the credential; connect holds further fields of CONNECT.
func dialPeer(tb testing.TB, url string, ca []byte, jwt string, key nkeys.KeyPair, leaf bool, connect map[string]any) *peer {
	tb.Helper()
	trust, err := identity.TrustTLS(ca)
	pool.Must(tb, err)
	path := strings.Replace(url, "https://", "wss://", 1) + "/nats"
	if leaf {
		path += "/leafnode"
	}
	ctx := pool.Context(tb, 20*time.Second)
	ws, _, err := websocket.Dial(ctx, path, &websocket.DialOptions{HTTPClient: &http.Client{Transport: &http.Transport{TLSClientConfig: trust}}})
	pool.Must(tb, err)
	ws.SetReadLimit(-1)
	p := &peer{
		conn: websocket.NetConn(context.Background(), ws, websocket.MessageBinary), leaf: leaf,
		pongs: make(chan struct{}, 1024), done: make(chan struct{}),
	}
	r := bufio.NewReader(p.conn)
	line, err := r.ReadString('\n')
	pool.Must(tb, err)
	var info struct {
		Nonce string `json:"nonce"`
	}
	pool.Must(tb, json.Unmarshal([]byte(strings.TrimPrefix(line, "INFO ")), &info))
	sig, err := key.Sign([]byte(info.Nonce))
	pool.Must(tb, err)
	fields := map[string]any{
		"jwt": jwt, "sig": base64.RawURLEncoding.EncodeToString(sig), "headers": true, "version": "2.15.2", "protocol": 1,
	}
	if !leaf {
		fields["lang"], fields["no_responders"], fields["echo"] = "go", true, true
	}
	for k, v := range connect {
		fields[k] = v
	}
	b, err := json.Marshal(fields)
	pool.Must(tb, err)
	p.send("CONNECT " + string(b) + "\r\n")
	go p.read(r)
	tb.Cleanup(p.close)
	return p
}

func (p *peer) close() {
	_ = p.conn.Close()
	<-p.done
}

func (p *peer) send(s string) { _, _ = io.WriteString(p.conn, s) }

// publish sends body to subject; header is a block of "Key: value\r\n" lines or empty.
func (p *peer) publish(subject, reply, header, body string) {
	verb, to := "PUB", subject
	if p.leaf {
		verb = "LMSG"
	}
	if reply != "" {
		to += " " + reply
	}
	if header == "" {
		p.send(fmt.Sprintf("%s %s %d\r\n%s\r\n", verb, to, len(body), body))
		return
	}
	verb = "HPUB"
	if p.leaf {
		verb = "HMSG"
	}
	h := "NATS/1.0\r\n" + header + "\r\n"
	p.send(fmt.Sprintf("%s %s %d %d\r\n%s%s\r\n", verb, to, len(h), len(h)+len(body), h, body))
}

func (p *peer) subscribe(subject, queue string) {
	if p.leaf {
		s := "LS+ " + subject
		if queue != "" {
			s += " " + queue + " 1"
		}
		p.send(s + "\r\n")
		return
	}
	p.sid++ // a second subscription under a number in use would be ignored
	p.send(strings.Join(strings.Fields(fmt.Sprintf("SUB %s %s %d", subject, queue, p.sid)), " ") + "\r\n")
}

// ping waits until the server has handled all that was sent, or the connection is gone: both end a cell.
func (p *peer) ping() bool {
	p.send("PING\r\n")
	select {
	case <-p.pongs:
		return true
	case <-p.done:
		return false
	case <-time.After(10 * time.Second):
		return false
	}
}

// take returns what arrived since the last call.
func (p *peer) take() (got []message, errs []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	got, errs = p.got, p.errs
	p.got, p.errs = nil, nil
	return got, errs
}

func (p *peer) read(r *bufio.Reader) {
	defer close(p.done)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		verb, rest, _ := strings.Cut(line, " ")
		switch strings.ToUpper(verb) {
		case "PING":
			p.send("PONG\r\n")
		case "PONG":
			p.pongs <- struct{}{}
		case "-ERR":
			p.mu.Lock()
			p.errs = append(p.errs, rest)
			p.mu.Unlock()
		case "MSG", "HMSG", "LMSG":
			if !p.message(r, strings.ToUpper(verb), strings.Fields(rest)) {
				return
			}
		}
	}
}

// message reads one delivery: [sid or reply marks] and sizes stand at the end of the line.
func (p *peer) message(r *bufio.Reader, verb string, args []string) bool {
	sizes := 1
	if verb == "HMSG" {
		sizes = 2
	}
	if len(args) < sizes+1 {
		return false
	}
	total, err := strconv.Atoi(args[len(args)-1])
	if err != nil {
		return false
	}
	head := 0
	if sizes == 2 {
		if head, err = strconv.Atoi(args[len(args)-2]); err != nil {
			return false
		}
	}
	b := make([]byte, total+2)
	if _, err := io.ReadFull(r, b); err != nil {
		return false
	}
	m := message{subject: args[0], reply: strings.Join(args[1:len(args)-sizes], " "), header: string(b[:head]), body: string(b[head:total])}
	p.mu.Lock()
	p.got = append(p.got, m)
	p.mu.Unlock()
	return true
}
