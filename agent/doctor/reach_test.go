package doctor

import (
	"context"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tensorturn/broker/identity"
	"tensorturn/test/proxy"
)

// stand stands for a hub: its certificate is real, what it answers is the test's.
type stand struct {
	*httptest.Server
	keys *identity.Keys

	mu      sync.Mutex
	secrets []string // that it was sent
}

func newStand(t *testing.T, born time.Time, answer http.HandlerFunc) *stand {
	t.Helper()
	keys, err := identity.Create(filepath.Join(t.TempDir(), "keys"), identity.Options{PublicURL: "https://127.0.0.1", Now: born})
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{keys: keys}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<10))
		s.secrets = append(s.secrets, r.Header.Get("Authorization")+string(body))
		s.mu.Unlock()
		answer(w, r)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{keys.ServerCertificate()}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// ready is a hub's answer to everything that a healthy one is asked.
func ready(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz":
		io.WriteString(w, "ready\n")
	case "/nats/leafnode":
		upgraded(w, r, "\x82\x07INFO {}")
	case "/api/v1/self":
		io.WriteString(w, `{"machine":"m-1","standing":"online"}`)
	case "/api/v1/machines":
		io.WriteString(w, `[{"id":"m-1"}]`)
	case "/api/v1/enrol/check":
		w.WriteHeader(http.StatusNoContent)
	default:
		io.WriteString(w, "{}")
	}
}

// upgraded answers the handshake and sends what comes after it.
func upgraded(w http.ResponseWriter, r *http.Request, then string) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "+
		base64.StdEncoding.EncodeToString(sum[:])+"\r\n\r\n"+then)
}

// visitor is a machine that has joined the stand.
func (s *stand) visitor() *exam {
	return &exam{Patient: &Patient{Kind: Agent, Dir: "/agent", Hub: s.URL, CA: s.keys.CA(), Joined: true,
		Proof: func(time.Time) (string, error) { return "proof-of-the-key", nil }},
		Probes: Probes{Now: time.Now, Lookup: net.DefaultResolver.LookupHost, Dial: (&net.Dialer{}).DialContext,
			Proxy: func(*url.URL) (*url.URL, error) { return nil, nil }}}
}

func (s *stand) sent(secret string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(strings.Join(s.secrets, "\n"), secret)
}

// looks is every check of the way.
func looks() map[string]func(context.Context, *exam) Finding {
	return map[string]func(context.Context, *exam) Finding{"name": lookName, "port": lookPort, "certificate": lookCertificate, "websocket": lookWebsocket,
		"hub": lookHub, "clock": lookClock, "membership": lookMembership, "machines": lookMachines, "operator": lookOperator, "token": lookToken}
}

// The layers of the way, each broken alone: one check finds it, those behind it say that they wait for it.
func TestLayers(t *testing.T) {
	now := time.Now()
	other := newStand(t, now, ready)
	for name, c := range map[string]struct {
		born   time.Time
		answer http.HandlerFunc
		change func(*exam)
		check  string // that finds it
		code   Code
		says   string
		waits  string // a check that waits for it
	}{
		"name": {change: func(e *exam) {
			e.Hub = "https://hub.example:7443"
			e.Lookup = func(context.Context, string) ([]string, error) {
				return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
			}
		}, check: "name", code: NameUnknown, says: "hub.example", waits: "port"},
		"no address at all":      {change: func(e *exam) { e.Hub = "https://" }, check: "name", code: NameUnknown, says: "no address", waits: "hub"},
		"another pool":           {change: func(e *exam) { e.CA = other.keys.CA() }, check: "certificate", code: CertForeign, says: "not the hub that this machine joined", waits: "membership"},
		"certificate has ended":  {born: now.Add(-2 * 365 * 24 * time.Hour), check: "certificate", code: CertOver, says: "is good from"},
		"certificate not yet":    {born: now.Add(365 * 24 * time.Hour), check: "certificate", code: CertOver, says: "is good from"},
		"certificate's name":     {change: func(e *exam) { through(e, "hub.example") }, check: "certificate", code: CertOver, says: "does not name hub.example", waits: "hub"},
		"full":                   {answer: says(http.StatusServiceUnavailable, "full"), check: "hub", code: HubNotReady, says: "full"},
		"low":                    {answer: says(http.StatusOK, "low"), check: "hub", code: HubNotReady, says: "low"},
		"no hub at all":          {answer: says(http.StatusNotFound, "nginx"), check: "hub", code: CertForeign, says: "no hub"},
		"no upgrade":             {answer: says(http.StatusNotFound, ""), check: "websocket", code: WebsocketStripped, says: "404"},
		"too many":               {answer: says(http.StatusServiceUnavailable, ""), check: "websocket", code: HubNotReady, says: "no more"},
		"no frames":              {answer: func(w http.ResponseWriter, r *http.Request) { upgraded(w, r, "") }, check: "websocket", code: WebsocketStripped, says: "no frame"},
		"another's frames":       {answer: func(w http.ResponseWriter, r *http.Request) { upgraded(w, r, "\x81\x02hi") }, check: "websocket", code: WebsocketStripped, says: "no frame"},
		"another's handshake":    {answer: func(w http.ResponseWriter, r *http.Request) { r.Header.Del("Sec-WebSocket-Key"); upgraded(w, r, "") }, check: "websocket", code: WebsocketStripped, says: "in the hub's place"},
		"unknown machine":        {answer: refuses(http.StatusUnauthorized, "the machine is unknown or revoked"), check: "membership", code: MachineRefused, says: "unknown"},
		"revoked machine":        {answer: refuses(http.StatusForbidden, "this machine was revoked"), check: "membership", code: MachineRefused, says: "revoked"},
		"quarantined machine":    {answer: says(http.StatusOK, `{"machine":"m-1","quarantined":"three refused deltas"}`), check: "membership", code: MachineRefused, says: "three refused"},
		"contested machine":      {answer: says(http.StatusOK, `{"machine":"m-1","contested":true}`), check: "membership", code: KeyShared, says: "m-1"},
		"a hub of another age":   {answer: refuses(http.StatusNotFound, ""), check: "membership", code: HubNotReady, says: "404"},
		"contested, at the hub":  {answer: says(http.StatusOK, `[{"id":"a"},{"id":"b","contested":true}]`), change: hubside, check: "machines", code: KeyShared, says: "key of b"},
		"wrong operator key":     {answer: refuses(http.StatusUnauthorized, "the key is not known"), change: hubside, check: "operator", code: OperatorKeyWrong, says: "not known"},
		"port":                   {change: func(e *exam) { e.Dial = refused }, check: "port", code: PortBlocked, says: "cannot be reached", waits: "websocket"},
		"the proxy setting":      {change: func(e *exam) { e.Proxy = func(*url.URL) (*url.URL, error) { return nil, errors.New("bad") } }, check: "port", code: ProxyRefuses, says: "bad", waits: "clock"},
		"proxy without a name":   {change: func(e *exam) { behind(e, "http://proxy.invalid:1") }, check: "name", code: NameUnknown, says: "the proxy's name", waits: "port"},
		"proxy that is no proxy": {change: func(e *exam) { behind(e, e.Hub) }, check: "port", code: ProxyRefuses, says: "127.0.0.1", waits: "hub"},
		"proxy wants a password": {change: func(e *exam) { behind(e, office(t, http.StatusProxyAuthRequired)) }, check: "port", code: ProxyRefuses, says: "password", waits: "hub"},
		"proxy forbids the port": {change: func(e *exam) { behind(e, office(t, http.StatusForbidden)) }, check: "port", code: ProxyRefuses, says: "403", waits: "websocket"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.born.IsZero() {
				c.born = now
			}
			if c.answer == nil {
				c.answer = ready
			}
			s := newStand(t, c.born, c.answer)
			e := s.visitor()
			if c.change != nil {
				c.change(e)
			}
			if f := looks()[c.check](t.Context(), e); f.State != Problem || f.Code != c.code || !strings.Contains(f.Says, c.says) || f.Fix == "" {
				t.Errorf("the %s check finds %+v", c.check, f)
			}
			if c.waits != "" {
				if f := looks()[c.waits](t.Context(), e); f.State != Skipped || f.Code != c.code {
					t.Errorf("the %s check finds %+v", c.waits, f)
				}
			}
		})
	}
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func refuses(status int, detail string) http.HandlerFunc {
	return says(status, `{"detail":"`+detail+`","next":"do something"}`)
}

func hubside(e *exam) {
	e.Kind, e.OperatorKey, e.Start = Hub, "the-operators-key", "tensorturn hub start --dir /agent"
}

func refused(context.Context, string, string) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Err: errors.New("network is unreachable")}
}

// through reaches the stand by another name.
func through(e *exam, host string) {
	real := strings.TrimPrefix(e.Hub, "https://")
	e.Hub = "https://" + host + ":7443"
	e.Lookup = func(context.Context, string) ([]string, error) { return []string{"192.0.2.1"}, nil }
	dial := e.Dial
	e.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network, real) }
}

func behind(e *exam, at string) {
	u, err := url.Parse(at)
	if err != nil {
		panic(err)
	}
	e.Proxy = func(*url.URL) (*url.URL, error) { return u, nil }
}

// office is a proxy that answers every CONNECT with a status; 200 opens the tunnel.
func office(t *testing.T, status int) string {
	t.Helper()
	return proxy.New(t, func(host string) (net.Conn, error) {
		if status != http.StatusOK {
			return nil, proxy.Refusal(status)
		}
		return net.Dial("tcp", host)
	}).URL.String()
}

// Through a proxy with a password everything is found to be well.
func TestThroughAProxy(t *testing.T) {
	s := newStand(t, time.Now(), ready)
	e := s.visitor()
	behind(e, office(t, http.StatusOK))
	for _, name := range []string{"name", "port", "certificate", "websocket", "hub", "clock", "membership"} {
		if f := looks()[name](t.Context(), e); f.State != Fine {
			t.Errorf("%s: %+v", name, f)
		}
	}
	e.Proxy = func(*url.URL) (*url.URL, error) { return nil, nil }
	e.Dial = refused
	if f := lookHub(t.Context(), e); f.State != Skipped {
		t.Errorf("with the direct way blocked and no proxy: %+v", f)
	}
}

// A proxy that is spoken to in TLS is, by every check.
func TestThroughAProxyOverTLS(t *testing.T) {
	s := newStand(t, time.Now(), ready)
	e := s.visitor()
	inner, err := url.Parse(office(t, http.StatusOK))
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{s.keys.ServerCertificate()}})
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	t.Cleanup(func() { l.Close(); work.Wait() })
	work.Go(func() { // takes the TLS off
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				to, err := net.Dial("tcp", inner.Host)
				if err != nil {
					return
				}
				defer to.Close()
				work.Go(func() { io.Copy(to, c); to.Close() })
				io.Copy(c, to)
			})
		}
	})
	e.proxyRoots = x509.NewCertPool()
	e.proxyRoots.AppendCertsFromPEM(s.keys.CA())
	behind(e, (&url.URL{Scheme: "https", User: inner.User, Host: l.Addr().String()}).String())
	for _, name := range []string{"name", "port", "certificate", "websocket", "hub"} {
		if f := looks()[name](t.Context(), e); f.State != Fine {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// A list of machines is read to its end, which is bounded; a link to somewhere else is not followed.
func TestMachinesOnEveryPage(t *testing.T) {
	for name, c := range map[string]struct {
		pages int
		last  string // what the last page links to
		want  State
		says  string
	}{
		"one page":           {1, "", Problem, "m-0"},
		"three pages":        {3, "", Problem, "m-2"},
		"without end":        {1 << 20, "", Skipped, "more than"},
		"a link elsewhere":   {1, `<https://thief/api/>; rel="next"`, Problem, "m-0"},
		"a link of no pages": {1, `</api/v1/machines>; rel="prev"`, Problem, "m-0"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			s := newStand(t, time.Now(), func(w http.ResponseWriter, r *http.Request) {
				page, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Query().Get("after"), "m-"))
				asked++
				if page+1 < c.pages {
					w.Header().Set("Link", fmt.Sprintf(`</api/v1/machines?after=m-%d&limit=1000>; rel="next"`, page+1))
				} else if c.last != "" {
					w.Header().Set("Link", c.last)
				}
				fmt.Fprintf(w, `[{"id":"m-%d","contested":%v}]`, page, page+1 == c.pages)
			})
			e := s.visitor()
			hubside(e)
			if f := lookMachines(t.Context(), e); f.State != c.want || !strings.Contains(f.Says, c.says) {
				t.Errorf("%+v", f)
			}
			if want := min(c.pages, maxPages); asked != want {
				t.Errorf("%d pages were asked for, not %d", asked, want)
			}
		})
	}
}

// No proof, key or token is sent to somebody who is not the hub, and each is sent to the hub.
func TestSecretsGoToTheHubAlone(t *testing.T) {
	hub, thief := newStand(t, time.Now(), ready), newStand(t, time.Now(), ready)
	token, err := identity.NewToken(strings.NewReader(strings.Repeat("a token of the hub", 9)), hub.keys.Pin())
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []*stand{hub, thief} {
		joined := hub.visitor()
		joined.Hub = at.URL
		operator := hub.visitor()
		operator.Hub = at.URL
		hubside(operator)
		fresh := hub.visitor()
		fresh.Hub, fresh.CA, fresh.Joined, fresh.Token = at.URL, nil, false, token.Plain()
		for name, look := range looks() {
			for who, e := range map[string]*exam{"a member": joined, "the operator": operator, "a newcomer": fresh} {
				f := look(t.Context(), e)
				if at == hub && f.State == Problem || at == thief && f.State == Problem && f.Code != CertForeign {
					t.Errorf("%s of %s: %+v", name, who, f)
				}
			}
		}
		for _, secret := range []string{"proof-of-the-key", "the-operators-key", token.Plain()} {
			if at.sent(secret) != (at == hub) {
				t.Errorf("the thief has been sent %q: %v", secret, at == thief)
			}
		}
	}
}

// A hub behind a router that does not lead back to it is looked at on its own machine.
func TestOwnAddress(t *testing.T) {
	s := newStand(t, time.Now(), ready)
	e := s.visitor()
	hubside(e)
	_, p, _ := net.SplitHostPort(strings.TrimPrefix(s.URL, "https://"))
	e.Hub = "https://localhost:" + p
	dial := e.Dial
	e.Dial = func(ctx context.Context, network, at string) (net.Conn, error) {
		if strings.HasPrefix(at, "localhost:") { // stands for the public address
			return refused(ctx, network, at)
		}
		return dial(ctx, network, at)
	}
	if f := lookPort(t.Context(), e); f.State != Note || f.Code != OwnAddress {
		t.Errorf("%+v", f)
	}
	if f := lookWebsocket(t.Context(), e); f.State != Fine {
		t.Errorf("%+v", f)
	}
	e.Kind = Agent
	if f := lookPort(t.Context(), e); f.Code != PortBlocked {
		t.Errorf("a machine elsewhere: %+v", f)
	}
}

// A firewall that drops packets is told from a port where nobody listens.
func TestDroppedPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &exam{Patient: &Patient{Kind: Agent, Hub: "https://192.0.2.1:7443"}, Probes: Probes{Now: time.Now, Proxy: func(*url.URL) (*url.URL, error) { return nil, nil },
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
			}}}
		r := examine(t.Context(), e, []check{{"port", []Kind{Agent}, netLimit, lookPort}, {"hub", []Kind{Agent}, netLimit, lookHub}})
		if f := r.Findings[0]; f.State != Problem || f.Code != PortBlocked || !strings.Contains(f.Says, "packets are dropped") {
			t.Errorf("%+v", f)
		}
	})
}

// The clock's two marks, at their limits.
func TestClockMarks(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s := newStand(t, time.Now(), func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Date", at.Format(http.TimeFormat)) })
	for off, want := range map[time.Duration]State{0: Fine, 30 * time.Second: Fine, 31 * time.Second: Note, -2 * time.Minute: Note, 121 * time.Second: Problem, -121 * time.Second: Problem} {
		e := s.visitor()
		e.Now = func() time.Time { return at.Add(off) }
		if f := lookClock(t.Context(), e); f.State != want {
			t.Errorf("%s: %+v", off, f)
		}
	}
}
