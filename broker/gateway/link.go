package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"tensorturn/domain"
)

// maxLinkTests bounds the machines that measure their link at a time: more would measure each other, and the hub's uplink carries the runs.
const maxLinkTests = 2

// linkCaller lets a few callers measure at a time; the others try again later.
func (g *Gateway) linkCaller(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		release, ok := g.links.enter(r.RemoteAddr)
		if !ok {
			g.refuse(w, domain.Unavailable("measure the link", "other machines measure theirs now", "the agent tries again by itself", nil))
			return
		}
		defer release()
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bodyTimeout))
		f(w, r)
	}
}

// linkTrip is a round trip.
func (g *Gateway) linkTrip(http.ResponseWriter, *http.Request) {}

// linkUp takes bytes that nobody keeps.
func (g *Gateway) linkUp(w http.ResponseWriter, r *http.Request) {
	const op = "measure the link up"
	if r.ContentLength < 0 || r.ContentLength > domain.MaxPartBytes {
		g.refuse(w, domain.Invalid(op, "the length is missing or above the limit", "send at most "+strconv.Itoa(domain.MaxPartBytes)+" bytes"))
		return
	}
	if n, err := io.Copy(io.Discard, r.Body); err != nil || n != r.ContentLength {
		g.refuse(w, domain.Invalid(op, "the body ended early", "send it again"))
	}
}

// linkDown sends ?bytes= bytes.
func (g *Gateway) linkDown(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.URL.Query().Get("bytes"))
	if err != nil || n < 0 || n > domain.MaxPartBytes {
		g.refuse(w, domain.Invalid("measure the link down", fmt.Sprintf("bytes is %q", domain.Clip(r.URL.Query().Get("bytes"), 40)), "ask for 0 to "+strconv.Itoa(domain.MaxPartBytes)+" bytes"))
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(n))
	w.Header().Set("Cache-Control", "no-store, no-transform")
	block := make([]byte, min(n, 64<<10))
	for i, noise := 0, uint64(1); i < len(block); i++ { // a proxy that compresses would measure itself
		noise = noise*6364136223846793005 + 1442695040888963407
		block[i] = byte(noise >> 56)
	}
	for n > 0 {
		wrote, err := w.Write(block[:min(n, len(block))])
		if err != nil {
			return // the caller has gone
		}
		n -= wrote
	}
}
