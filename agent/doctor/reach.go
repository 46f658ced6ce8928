package doctor

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"tensorturn/domain"
)

// lookKeys tells what is wrong with the folder itself.
func lookKeys(_ context.Context, e *exam) Finding {
	switch {
	case e.Bad != nil:
		return problem(KeysDamaged, e.Bad.Error(), domain.NextOf(e.Bad))
	case e.Kind == Agent && !e.Joined && e.Missing:
		return asked(e.Hub == "", NotJoined, "there is no folder "+e.Dir+": this machine has not joined a pool with it", "name the folder of a hub or an agent that is there, or: tensorturn agent join URL --token T --dir "+e.Dir)
	case e.Kind == Agent && !e.Joined:
		return asked(e.Hub == "", NotJoined, "this machine has not joined a pool", "tensorturn agent join URL --token T --dir "+e.Dir)
	}
	return fine("the keys in " + e.Dir + " are whole and private")
}

// knowsHub is false, with the finding, when there is no hub to look for.
func (e *exam) knowsHub() (Finding, bool) {
	if e.Hub == "" {
		return skipped("no hub is known; name one with --hub"), false
	}
	return Finding{}, true
}

// own gives the finding of the layer itself, and skips when an earlier one failed.
func own(err error, layer ...Code) (Finding, bool) {
	var b *blocked
	if errors.As(err, &b) {
		for _, c := range layer {
			if b.finding.Code == c {
				return b.finding, true
			}
		}
	}
	return beyond(err)
}

func lookName(ctx context.Context, e *exam) Finding {
	if f, ok := e.knowsHub(); !ok {
		return f
	}
	w, err := e.way()
	var found []string
	if err == nil {
		found, err = w.resolve(ctx)
	}
	if f, failed := own(err, NameUnknown); failed {
		return f
	}
	u, what := w.first()
	return fine(fmt.Sprintf("%s %s is %s", what, u.Hostname(), domain.Clip(strings.Join(found, ", "), 120)))
}

func lookPort(ctx context.Context, e *exam) Finding {
	if f, ok := e.knowsHub(); !ok {
		return f
	}
	w, err := e.way()
	if f, failed := own(err, PortBlocked, ProxyRefuses); failed {
		return f
	}
	c, inside, err := w.connect(ctx)
	if f, failed := own(err, PortBlocked); failed {
		return f
	}
	defer func() { _ = c.Close() }()
	u, what := w.first()
	switch {
	case inside:
		return Finding{State: Note, Code: OwnAddress, Says: "the hub answers on this machine, which does not reach its own public address " + port(u),
			Fix: "many routers do not lead back to themselves: look from another machine, with tensorturn doctor --hub " + e.Hub + "; for commands on this one put 127.0.0.1 " + u.Hostname() + " into its hosts file"}
	case w.proxy == nil:
		return fine(fmt.Sprintf("%s answers at %s", what, port(u)))
	}
	beyond, err := w.through(ctx, c)
	if f, failed := own(err, ProxyRefuses); failed {
		return f
	}
	_ = beyond.Close()
	return fine(fmt.Sprintf("the proxy %s opens a tunnel to %s", w.proxy.Host, port(w.hub)))
}

// lookCertificate judges the chain by the hub's own clock, since this machine's may be the one that is wrong.
func lookCertificate(ctx context.Context, e *exam) Finding {
	if f, ok := e.knowsHub(); !ok {
		return f
	}
	w, err := e.way()
	if f, failed := beyond(err); failed {
		return f
	}
	t, err := w.open(ctx)
	if f, failed := own(err, CertForeign, CertOver); failed {
		return f
	}
	peers := t.ConnectionState().PeerCertificates
	_ = t.Close()
	if _, pinned := e.pin(); len(e.CA) == 0 && !pinned {
		return skipped("not compared: without a token or a membership nothing is known of the hub's CA")
	}
	now := e.Now()
	if ahead, dated, err := e.hubTime(ctx); err == nil && dated {
		now = now.Add(ahead)
	}
	if f, failed := own(w.judge(peers, now), CertForeign, CertOver); failed {
		return f
	}
	if left := peers[0].NotAfter.Sub(now); left < certSoon {
		return Finding{State: Note, Code: CertOver, Says: fmt.Sprintf("the hub's certificate ends in %d h", int(left.Hours())), Fix: "restart the hub: it renews its own; renew the owner's where --tls-cert is used"}
	}
	return fine("the hub's certificate is the one to expect, until " + peers[0].NotAfter.Format(time.DateOnly))
}

// lookHub asks whether the hub takes work.
func lookHub(ctx context.Context, e *exam) Finding {
	if f, ok := e.knowsHub(); !ok {
		return f
	}
	a, err := e.ask(ctx, http.MethodGet, "/healthz", "", nil)
	if f, failed := beyond(err); failed {
		return f
	}
	switch state := strings.TrimSpace(domain.Clip(string(a.body), 40)); {
	case a.status == http.StatusOK && state == "ready":
		return fine("the hub is ready")
	case a.status == http.StatusOK && state == "low", a.status == http.StatusServiceUnavailable:
		return problem(HubNotReady, fmt.Sprintf("the hub says that it is %s", state), "ask it why: tensorturn hub status; one that is starting is ready in a moment")
	default:
		return problem(CertForeign, fmt.Sprintf("what answers at %s is no hub: status %d", e.Hub, a.status), "check the address: the hub's has a port of its own, 7443 unless chosen")
	}
}

func lookClock(ctx context.Context, e *exam) Finding {
	if f, ok := e.knowsHub(); !ok {
		return f
	}
	ahead, dated, err := e.hubTime(ctx)
	if f, failed := beyond(err); failed {
		return f
	}
	if !dated {
		return Finding{State: Unknown, Code: Unfinished, Says: "the hub's answer has no date", Fix: "look again; a proxy on the way may take it out"}
	}
	off := -ahead.Round(time.Second)
	way := "ahead of"
	if off < 0 {
		way = "behind"
	}
	says := fmt.Sprintf("this machine's clock is %s %s the hub's", off.Abs(), way)
	const fix = "switch time synchronisation on (timedatectl set-ntp true; on Windows: w32tm /resync); if this clock is right, the hub's is not"
	switch {
	case off.Abs() > clockFails:
		return problem(ClockOff, says, fix)
	case off.Abs() > clockWorks:
		return asked(false, ClockOff, says+", which the agent makes up for", fix)
	}
	return fine("this machine's clock agrees with the hub's")
}

// lookWebsocket makes the upgrade that an agent's leafnode makes, and waits for the first word of the NATS server behind it.
func lookWebsocket(ctx context.Context, e *exam) Finding {
	if f, ok := e.knowsHub(); !ok {
		return f
	}
	w, err := e.way()
	if f, failed := beyond(err); failed {
		return f
	}
	c, err := w.trusted(ctx)
	if f, failed := beyond(err); failed {
		return f
	}
	defer func() { _ = c.Close() }()
	if d, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(d)
	}
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	key := base64.StdEncoding.EncodeToString(nonce[:])
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+w.hub.Host+"/nats/leafnode", nil)
	if err != nil {
		return problem(NameUnknown, err.Error(), "give the hub as https://hub.example.org:7443")
	}
	for name, v := range map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": key, "Sec-WebSocket-Version": "13"} {
		req.Header.Set(name, v)
	}
	if err := req.Write(c); err != nil {
		f, _ := beyond(err)
		return f
	}
	const fix = "let the proxy before the hub pass `Upgrade` and `Connection` under /nats (nginx: proxy_http_version 1.1, proxy_set_header Upgrade $http_upgrade, Connection \"upgrade\"), or lead around it"
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, req)
	if err != nil {
		return problem(WebsocketStripped, "HTTPS passes, and the WebSocket's handshake gets no answer", fix)
	}
	switch sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")); { // RFC 6455, section 1.3
	case resp.StatusCode == http.StatusServiceUnavailable:
		return problem(HubNotReady, "the hub takes no more WebSockets now", "look again in a minute")
	case resp.StatusCode != http.StatusSwitchingProtocols:
		return problem(WebsocketStripped, fmt.Sprintf("HTTPS passes, and the WebSocket that agents work over does not: status %d instead of 101", resp.StatusCode), fix)
	case resp.Header.Get("Sec-WebSocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]):
		return problem(WebsocketStripped, "somebody on the way answers the WebSocket's handshake in the hub's place", fix)
	}
	word, err := frame(in)
	if err != nil || !strings.HasPrefix(string(word), "INFO ") {
		return problem(WebsocketStripped, "the WebSocket opens, and no frame comes through it", fix)
	}
	return fine("the WebSocket opens, and the hub's NATS server speaks through it")
}

// frame reads the first frame of a server (RFC 6455, section 5.2): not masked, and here below 64 KiB.
func frame(r io.Reader) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := uint16(head[1] & 0x7f)
	if n == 126 {
		if err := binary.Read(r, binary.BigEndian, &n); err != nil {
			return nil, err
		}
	} else if n > 126 {
		return nil, errors.New("the frame is too long")
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}
