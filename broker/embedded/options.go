package embedded

import (
	"crypto/tls"
	"net/url"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/domain"
)

// Time-outs and limits of both sides. The stock ones (1 to 2 s) let a pool that reconnects at once on a busy hub never
// converge (measured with 500 leafs on 2 cores); these do.
const (
	handshakeTimeout = 20 * time.Second
	writeDeadline    = 60 * time.Second       // a slow uplink may take this long for what is queued
	pingInterval     = 20 * time.Second       // below the idle limit of home routers and proxies
	maxPingsOut      = 2                      // a dead link is noticed after a minute
	readyTimeout     = 60 * time.Second       // includes recovery of the store; a million events take about a second
	cutTimeout       = 2 * time.Second        // a revoked machine is off within this
	recycleWait      = 100 * time.Millisecond // our own clients dial a recycled server this often

	maxPayload     = domain.MaxPartBytes + 64<<10 // a blob part with its headers, for in-process users; machines: their account's limit
	maxConnections = 4 * domain.MaxMachines       // plain WebSocket clients and in-process ones

	// JetStreamDomain is the name under which the hub's JetStream answers. Without one, both ends of a leaf would deny
	// JetStream subjects in a way that also hits the hub's own users.
	JetStreamDomain = "hub"
)

// Account is one of the hub's own accounts with a user of it for this process.
type Account struct {
	Public string // public nkey
	JWT    string // account claims, signed by the operator
	User   User
}

// User proves itself to a server: the JWT is asked for and the nonce signed at every (re)connect.
type User struct {
	JWT  func() (string, error)
	Sign func(nonce []byte) ([]byte, error)
}

// HubOptions configure the hub's broker. All fields without "may be empty" are required.
type HubOptions struct {
	Name     string // server name, no spaces; unique in a network of servers
	StoreDir string // JetStream's directory; locked before the server touches it
	Operator string // self-signed operator JWT

	System, Hub, Service Account
	Machines             []string // account JWTs of the machines known at start, may be empty

	MaxStore  int64 // bytes on disk
	MaxMemory int64 // bytes in memory streams

	Advertise string // host:port of the public front, told to stock leafnodes, may be empty
	Logger    zerolog.Logger
}

// LeafOptions configure an agent's leafnode.
type LeafOptions struct {
	Name string      // unique prefix of the server name, for example the machine's id; a fresh suffix is added
	URL  string      // wss://host:port/nats; the port is required
	TLS  *tls.Config // with the pinned CA as the only root
	User User        // called for every attempt, so a renewed credential needs no restart

	ReconnectMin time.Duration // 0: DefaultReconnectMin
	ReconnectMax time.Duration // 0: DefaultReconnectMax

	// Proxy gives the HTTP CONNECT proxy for a target, nil for none. A nil function reads HTTPS_PROXY and NO_PROXY.
	Proxy func(target *url.URL) (*url.URL, error)

	Logger zerolog.Logger
}

// Bounds of the random time between two attempts of one leaf. They differ per agent, because nats-server itself has no
// jitter after a drop and would bring all agents back in the same second. A hub that is killed is back in about a second; what
// comes on top is time in which slots wait for claims, merges and bases. The largest pool, 1,024 machines, gives a hub 512
// handshakes a second with these, which its time-outs of 20 s bear.
const (
	DefaultReconnectMin = 500 * time.Millisecond
	DefaultReconnectMax = 2500 * time.Millisecond
)
