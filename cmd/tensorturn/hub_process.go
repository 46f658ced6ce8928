package main

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nkeys"
	"github.com/oklog/ulid/v2"
	"github.com/rs/zerolog"

	"tensorturn/broker/dispatch"
	"tensorturn/broker/embedded"
	"tensorturn/broker/feed"
	"tensorturn/broker/gateway"
	"tensorturn/broker/health"
	"tensorturn/broker/hub"
	"tensorturn/broker/identity"
	"tensorturn/broker/inference"
	"tensorturn/broker/jetstream"
	"tensorturn/broker/metrics"
	"tensorturn/broker/snapshot"
	"tensorturn/broker/webhook"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

type hubOptions struct {
	dir, listen, publicURL string
	certFile, keyFile      string
	lease                  time.Duration
	maxStore, minFree      int64
	privateWebhooks        bool
	logger                 zerolog.Logger
}

// hubProcess is a running hub: keys, broker, stores, service, front, started in this order and stopped in the reverse.
type hubProcess struct {
	opts     hubOptions
	url      string
	here     string // address of the port on this machine
	bound    string // address that was taken
	created  bool   // this was the very first start
	readOnly error  // the log is damaged: only reads are served
	failed   chan error

	keys      *identity.Keys
	broker    *embedded.Hub
	store     *jetstream.Store
	service   *hub.Service
	front     *gateway.Gateway
	views     gateway.Views
	source    *feed.Source
	publisher *feed.Publisher
	hooks     *webhook.Hooks
	metrics   *metrics.Metrics
	health    *health.Monitor
	engine    *inference.Engine
	dispatch  *dispatch.Dispatcher
	door      *gateway.Door
	snapshots *snapshot.Store
	stops     []func() error
}

// registry holds the facts of every aggregate.
func registry() *event.Registry {
	r := event.NewRegistry()
	run.Register(r)
	machine.Register(r)
	pool.Register(r)
	return r
}

// newID draws a sortable id that is safe as a subject token.
func newID(prefix string) string { return prefix + "-" + strings.ToLower(ulid.Make().String()) }

// startHub brings everything up or takes everything down again.
func startHub(ctx context.Context, o hubOptions) (h *hubProcess, err error) {
	if o.lease < domain.MinLease || o.lease > domain.MaxLease {
		return nil, domain.Invalid("start hub", fmt.Sprintf("a lease of %s is not between %s and %s", o.lease, domain.MinLease, domain.MaxLease), "the default suits home links: --lease 120s")
	}
	h = &hubProcess{opts: o, failed: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.stop())
		}
	}()
	l, err := h.bind()
	if err != nil {
		return h, err
	}
	if err := h.openKeys(ctx); err != nil {
		l.Close()
		_ = os.Remove(o.dir) // only where nothing is in it: a refused start leaves no folder behind
		return h, err
	}
	h.openDoor(l)
	for _, step := range []func(context.Context) error{h.openSnapshots, h.finishRepair, h.startBroker, h.mendCut, h.startService, h.startFeed} {
		if err := step(ctx); err != nil {
			return h, err
		}
	}
	h.startFront()
	h.keepContext()
	return h, nil
}

// keepContext writes operator.json. A hub whose folder does not take it, as on a full disk, works all the same.
func (h *hubProcess) keepContext() {
	c := operatorContext{URL: h.url, CA: string(h.keys.CA()), Key: h.keys.OperatorKey()}
	if c.Key == "" {
		h.opts.logger.Warn().Str("file", h.contextFile()).Str("next", "write your operator key into "+h.keys.OperatorKeyFile()+" and start the hub again").
			Msg("the operator key is known by its hash alone: the file for the command line is not written")
		return
	}
	if err := c.save(h.contextFile()); err != nil {
		h.opts.logger.Warn().Err(err).Str("file", h.contextFile()).Str("next", "make room, or move away what is in its place, and start the hub again").
			Msg("the file for the command line is not written")
	}
}

// later adds a step of the way down.
func (h *hubProcess) later(f func() error) { h.stops = append(h.stops, f) }

// stop takes down in reverse order what was started.
func (h *hubProcess) stop() error {
	var errs []error
	for i := len(h.stops) - 1; i >= 0; i-- {
		errs = append(errs, h.stops[i]())
	}
	h.stops = nil
	return errors.Join(errs...)
}

func (h *hubProcess) contextFile() string { return filepath.Join(h.opts.dir, "operator.json") }

// defaultPort is the hub's where neither --listen nor --public-url names one.
const defaultPort = "7443"

// listenAt is where the hub listens: as it was told, or at the port under which machines are told to reach it.
func listenAt(listen, publicURL string) string {
	if listen != "" {
		return listen
	}
	if u, err := url.Parse(publicURL); err == nil && u.Port() != "" {
		return ":" + u.Port()
	}
	return ":" + defaultPort
}

// absolute makes the paths such that a start from another folder finds the same files.
func (o *hubOptions) absolute() error {
	for _, p := range []*string{&o.dir, &o.certFile, &o.keyFile} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return domain.Invalid("start hub", plainPathError(err), "give --dir, --tls-cert and --tls-key as whole paths")
		}
		*p = abs
	}
	return nil
}

// bind takes the port first, so that a taken one is told before any key is made, and settles the public URL.
func (h *hubProcess) bind() (net.Listener, error) {
	at := listenAt(h.opts.listen, h.opts.publicURL)
	_, port, err := net.SplitHostPort(at)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return nil, domain.Invalid("start hub", fmt.Sprintf("--listen: %q is no address", domain.Clip(at, domain.MaxNameLength)), "write [ADDRESS]:PORT, for example :7443 or 192.0.2.1:7443")
	}
	if h.opts.publicURL != "" {
		if err := identity.CheckHubURL(strings.TrimRight(h.opts.publicURL, "/")); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, domain.Conflict("start hub", "port "+at+" cannot be taken: "+err.Error(), "choose another with --listen, or stop what holds it")
	}
	h.bound = l.Addr().String()
	h.here = h.bound
	if at := l.Addr().(*net.TCPAddr); at.IP.IsUnspecified() { // listens on all: the loopback is one of them
		h.here = net.JoinHostPort("localhost", strconv.Itoa(at.Port))
	}
	h.url = strings.TrimRight(h.opts.publicURL, "/")
	if h.url == "" {
		host, port, _ := net.SplitHostPort(l.Addr().String())
		if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
			host = hostname()
		}
		h.url = "https://" + net.JoinHostPort(host, port)
	}
	return l, nil
}

func (h *hubProcess) openKeys(context.Context) (err error) {
	if err := os.MkdirAll(h.opts.dir, 0o700); err != nil {
		return domain.Invalid("start hub", plainPathError(err), "choose another folder with --dir")
	}
	kept, _ := loadContext(h.contextFile()) // the only other place of the operator key
	h.keys, h.created, err = identity.OpenOrCreate(filepath.Join(h.opts.dir, "keys"), identity.Options{
		PublicURL: h.url, Hostname: hostname(), CertFile: h.opts.certFile, KeyFile: h.opts.keyFile, Now: wallClock(), Operator: kept.Key})
	if err != nil {
		return err
	}
	for _, what := range h.keys.Mended() {
		h.opts.logger.Warn().Str("dir", h.keys.Dir()).Msg(what)
	}
	if why := h.keys.Renewed(); why != "" && !h.created {
		h.opts.logger.Warn().Str("why", why).Msg("the hub's certificate was issued anew; machines trust it by its CA")
	}
	return nil
}

// account prepares one of the hub's own accounts with a user for this process.
func (h *hubProcess) account(r identity.Role, encode func() (string, error)) (embedded.Account, error) {
	token, err := encode()
	if err != nil {
		return embedded.Account{}, err
	}
	user, key, err := h.keys.InProcess(r)
	if err != nil {
		return embedded.Account{}, err
	}
	return embedded.Account{Public: h.keys.PublicAccount(r), JWT: token, User: userOf(user, key)}, nil
}

func userOf(token string, key nkeys.KeyPair) embedded.User {
	return embedded.User{JWT: func() (string, error) { return token, nil }, Sign: key.Sign}
}

func (h *hubProcess) startBroker(ctx context.Context) error {
	operator, err := h.keys.OperatorJWT()
	if err != nil {
		return err
	}
	o := embedded.HubOptions{Name: "hub", StoreDir: filepath.Join(h.opts.dir, "store"), Operator: operator,
		MaxStore: h.opts.maxStore, MaxMemory: 64 << 20, Advertise: strings.TrimPrefix(h.url, "https://"), Logger: h.opts.logger}
	store := identity.Store{Disk: o.MaxStore, Memory: o.MaxMemory}
	if o.System, err = h.account(identity.RoleSystem, h.keys.SystemAccount); err != nil {
		return err
	}
	if o.Hub, err = h.account(identity.RoleHub, func() (string, error) { return h.keys.HubAccount(store) }); err != nil {
		return err
	}
	if o.Service, err = h.account(identity.RoleService, h.keys.ServiceAccount); err != nil {
		return err
	}
	if h.broker, err = embedded.StartHub(ctx, o); err != nil {
		return err
	}
	h.later(h.broker.Shutdown)
	nc, err := h.broker.HubConn("store")
	if err != nil {
		return err
	}
	if h.store, err = jetstream.Open(ctx, nc, embedded.JetStreamDomain, h.opts.maxStore); err != nil {
		return err
	}
	h.store.Watch(h.broker.Broken)
	h.health = h.newMonitor()
	return nil
}

func (h *hubProcess) startService(ctx context.Context) error {
	nc, err := h.broker.ServiceConn("service")
	if err != nil {
		return err
	}
	h.metrics = metrics.New(version, h.gauges)
	if err := h.openDispatch(); err != nil {
		return err
	}
	h.service = hub.NewService(hub.ServiceConfig{
		Core:     hub.Config{Timing: domain.TimingOf(h.opts.lease), Process: newID("h"), Known: h.knownHead()},
		KeepHead: h.keepHead,
		Log:      timedLog{h.store.Log, h.metrics}, Registry: registry(), Blobs: h.store.Blobs, Beats: h.store.Heartbeats,
		Link: hub.NewNATSLink(nc), Renew: h.renew, Admit: h.admit, CutOff: h.cutOff, Heads: h.keys.Heads(),
		Snapshots: h.snapshots, Version: programID(), Serving: h.dispatch,
		Full: h.health.Full, Now: wallClock, Logger: h.opts.logger,
	})
	h.openFeed()
	h.openInference()
	h.front = gateway.New(h.frontConfig())
	h.later(func() error { h.service.Stop(); return nil })
	if err := h.service.Start(ctx); err != nil {
		return err
	}
	if err := h.broker.WatchLinks(h.service.Unlinked); err != nil {
		return err
	}
	h.health.Start()
	h.later(func() error { h.health.Stop(); return nil }) // before what it recycles
	if h.readOnly = h.service.ReadOnly(); h.readOnly != nil || !h.created {
		return nil
	}
	return h.service.Do(ctx, hub.Do{Command: domain.CommandID(newID("c")), Actor: "hub",
		Targets: []hub.Target{{Kind: event.KindPool, ID: pool.ID, Command: pool.Found{At: wallClock()}}}})
}

func (h *hubProcess) frontConfig() gateway.Config {
	binary, err := os.Executable()
	if err != nil {
		binary = os.Args[0]
	}
	h.views = gateway.NewViews()
	h.service.Follow(viewFollower{h})
	return gateway.Config{
		Hub: h.service, Agents: h.service, Explain: h.service, Views: h.views, Log: h.store.Log, Blobs: h.store.Blobs, Registry: registry(), Operator: h.keys.IsOperator, Enrol: h,
		Events: h.source, Observers: h, Webhooks: h.hooks, Metrics: h.metrics.Handler(), Counts: h.metrics, Inference: h.inference, Health: h.health, Door: h.door,
		Websocket: h.broker.WebsocketAddr(), PublicURL: h.url, CA: h.keys.CA(), Pin: h.keys.Pin(), Secret: h.keys.RepeatSecret(),
		Export: h.keys.Exports(), HeadKey: h.keys.Head().Public().(ed25519.PublicKey), Binary: binary, Version: version, Now: wallClock, NewID: newID, Logger: h.opts.logger,
	}
}

// openDoor opens the port before the log is read: it says that the hub is starting, and lets requests wait.
func (h *hubProcess) openDoor(l net.Listener) {
	h.door = gateway.NewDoor(h.opts.logger)
	h.door.Start(l, &tls.Config{Certificates: []tls.Certificate{h.keys.ServerCertificate()}, MinVersion: tls.VersionTLS13})
	h.later(h.door.Stop)
}

func (h *hubProcess) startFront() {
	h.front.Open()
	h.later(h.front.Stop)
}

// fail ends the process with an error; the first one counts.
func (h *hubProcess) fail(err error) {
	select {
	case h.failed <- err:
	default:
	}
}

// firstToken makes the token of the join line through the front's own API.
func (h *hubProcess) firstToken(ctx context.Context) (gateway.CreatedToken, error) {
	var t gateway.CreatedToken
	c, err := loadContext(h.contextFile())
	if err != nil {
		return t, err
	}
	cl, err := newClient(c)
	if err != nil {
		return t, err
	}
	// A hub behind a router that does not lead back to it, or with a name that only others know, still has its own port.
	own := cl.http.Transport.(*http.Transport)
	own.Proxy = nil
	own.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, h.here)
	}
	defer cl.http.CloseIdleConnections()
	return t, cl.call(ctx, http.MethodPost, "/api/v1/tokens", gateway.CreateToken{}, &t)
}
