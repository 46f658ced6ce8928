package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/permute"
)

// Limits of measuring links. More machines at a time would measure each other, and the hub's uplink carries the runs; one address has one
// place, so that no machine keeps the others from theirs.
const (
	maxLinkTests     = 2
	maxLinkTestsByIP = 1
	linkTimeout      = 10 * time.Second // for one request: an agent gives up after 8 s
	linkBlock        = 64 << 10
)

// linkCaller lets a few callers measure at a time; the others try again later. f may give its place back before it returns.
func (g *Gateway) linkCaller(f func(w http.ResponseWriter, r *http.Request, leave func())) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		release, ok := g.links.enter(r.RemoteAddr)
		if !ok {
			g.refuse(w, domain.Unavailable("measure the link", "other machines measure theirs now", "the agent tries again by itself", nil))
			return
		}
		leave := sync.OnceFunc(release)
		defer leave()
		c, end := http.NewResponseController(w), time.Now().Add(linkTimeout)
		c.SetReadDeadline(end)
		c.SetWriteDeadline(end)
		f(w, r, leave)
	}
}

// linkTrip is a round trip.
func (g *Gateway) linkTrip(http.ResponseWriter, *http.Request, func()) {}

// linkUp takes bytes that nobody keeps.
func (g *Gateway) linkUp(w http.ResponseWriter, r *http.Request, _ func()) {
	const op = "measure the link up"
	if r.ContentLength < 0 || r.ContentLength > domain.MaxPartBytes {
		g.refuse(w, domain.Invalid(op, "the length is missing or above the limit", "send at most "+strconv.Itoa(domain.MaxPartBytes)+" bytes"))
		return
	}
	if n, err := io.Copy(io.Discard, r.Body); err != nil || n != r.ContentLength {
		g.refuse(w, domain.Invalid(op, "the body ended early", "send it again"))
	}
}

// linkDown sends ?bytes= bytes. It leaves before the last of them: who has got all may ask again before this function returns.
func (g *Gateway) linkDown(w http.ResponseWriter, r *http.Request, leave func()) {
	n, err := strconv.Atoi(r.URL.Query().Get("bytes"))
	if err != nil || n < 0 || n > domain.MaxPartBytes {
		g.refuse(w, domain.Invalid("measure the link down", fmt.Sprintf("bytes is %q", domain.Clip(r.URL.Query().Get("bytes"), 40)), "ask for 0 to "+strconv.Itoa(domain.MaxPartBytes)+" bytes"))
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(n))
	w.Header().Set("Cache-Control", "no-store, no-transform")
	block := make([]byte, min(n, linkBlock))
	permute.NewSource(1).Fill(block) // a proxy that compresses would measure itself
	for n > 0 {
		if n <= len(block) {
			leave()
		}
		wrote, err := w.Write(block[:min(n, len(block))])
		if err != nil {
			return // the caller has gone
		}
		n -= wrote
	}
}
