package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"sync"

	"tensorturn/domain"
)

// Admission limits. A NATS server does not limit sockets that have not authenticated yet, and neither does net/http.
const (
	maxConns          = 16 * domain.MaxMachines // a machine has its link and up to 8 parts in flight
	maxConnsByIP      = 2048                    // a large household or an office behind one address; of IPv6, in one /64
	maxWebsockets     = 4 * domain.MaxMachines  // a machine has one link, two while it reconnects
	maxWebsocketsByIP = 512
	maxDownloads      = 16 // of this program at a time: it is open to everybody, and the hub's uplink carries the runs
	maxDownloadsByIP  = 4
)

// admission counts what is open, in all and by address.
type admission struct {
	mu          sync.Mutex
	all, most   int
	byIP        map[string]int
	mostByIP    int
	outstanding sync.WaitGroup
}

func newAdmission(most, mostByIP int) *admission {
	return &admission{byIP: map[string]int{}, most: most, mostByIP: mostByIP}
}

// enter takes a place for the remote address host:port. release gives it back and may be called once.
func (a *admission) enter(remote string) (release func(), ok bool) {
	ip := sourceOf(remote)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all >= a.most || a.byIP[ip] >= a.mostByIP {
		return nil, false
	}
	a.all++
	a.byIP[ip]++
	a.outstanding.Add(1)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.all--
		if a.byIP[ip]--; a.byIP[ip] == 0 {
			delete(a.byIP, ip)
		}
		a.outstanding.Done()
	}, true
}

// sourceOf is what a remote host:port is counted by: its address, or of IPv6 the /64, of which any machine has all.
func sourceOf(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	net, err := ip.Prefix(64)
	if err != nil {
		return ip.String()
	}
	return net.String()
}

// connections closes what comes beyond the limits before a byte of it is read. It is the server's ConnState hook.
type connections struct {
	*admission
	mu   sync.Mutex
	open map[net.Conn]*connection
}

type connection struct {
	release func()
	silent  bool // it has asked for nothing yet
}

func newConnections(a *admission) *connections {
	return &connections{admission: a, open: map[net.Conn]*connection{}}
}

func (c *connections) changed(conn net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.open[conn]
	switch s {
	case http.StateNew:
		release, ok := c.enter(conn.RemoteAddr().String())
		if !ok {
			conn.Close()
			return
		}
		c.open[conn] = &connection{release: release, silent: true}
	case http.StateActive:
		if known != nil {
			known.silent = false
		}
	case http.StateClosed, http.StateHijacked: // a WebSocket is counted by its own limits from then on
		if known != nil {
			delete(c.open, conn)
			known.release()
		}
	}
}

// hangUp closes connections that have asked for nothing: net/http would wait five seconds for them at a shutdown.
func (c *connections) hangUp() {
	c.mu.Lock()
	var silent []net.Conn
	for conn, k := range c.open {
		if k.silent {
			silent = append(silent, conn)
		}
	}
	c.mu.Unlock()
	for _, conn := range silent {
		conn.Close()
	}
}
