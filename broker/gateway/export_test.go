package gateway

import (
	"runtime"
	"time"
)

// LimitWebsockets sets the limits of a front before anybody has connected.
func LimitWebsockets(g *Gateway, most, mostByIP int) { g.sockets = newAdmission(most, mostByIP) }

// WaitWebsockets returns when no more than n WebSockets are counted.
func WaitWebsockets(g *Gateway, n int) {
	for {
		g.sockets.mu.Lock()
		all := g.sockets.all
		g.sockets.mu.Unlock()
		if all <= n {
			return
		}
		runtime.Gosched()
	}
}

// HeaderTimeout sets how long a header may take, before anybody has connected.
func HeaderTimeout(g *Gateway, d time.Duration) { g.door.server.ReadHeaderTimeout = d }

// MaxStreamsByIP is the limit of event streams from one address.
const MaxStreamsByIP = maxStreamsByIP

// Waiting is how many requests wait at the door.
func Waiting(d *Door) int { return int(d.waiting.Load()) }
