package agent

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"tensorturn/domain"
)

// Link measures the way to the hub over the same connections as its blobs: HEAD, GET and PUT /link. It is bench.Link.
type Link struct {
	http *HTTPBlobs
	fill func() []byte
}

// NewLink makes a Link beside h.
func NewLink(h *HTTPBlobs) *Link { return &Link{http: h, fill: sync.OnceValue(noise)} }

// noise are bytes that no proxy on the way makes fewer.
func noise() []byte {
	out, state := make([]byte, domain.MaxPartBytes), uint64(1)
	for i := range out {
		state = state*6364136223846793005 + 1442695040888963407
		out[i] = byte(state >> 56)
	}
	return out
}

// Trip is a round trip without bytes.
func (l *Link) Trip(ctx context.Context) error {
	_, err := l.http.do(ctx, http.MethodHead, "/link", nil, 0, nil)
	return wrapped("reach the hub", err)
}

// Send moves n bytes to the hub, at most domain.MaxPartBytes.
func (l *Link) Send(ctx context.Context, n int) error {
	_, err := l.http.do(ctx, http.MethodPut, "/link", l.fill()[:n], maxReplyBytes, nil)
	return wrapped("send bytes to the hub", err)
}

// Fetch has the hub send n bytes, at most domain.MaxPartBytes.
func (l *Link) Fetch(ctx context.Context, n int) error {
	got, err := l.http.do(ctx, http.MethodGet, fmt.Sprintf("/link?bytes=%d", n), nil, domain.MaxPartBytes, nil)
	if err == nil && len(got) != n {
		err = domain.Unavailable("", fmt.Sprintf("%d of %d bytes came", len(got), n), "", nil)
	}
	return wrapped("fetch bytes from the hub", err)
}

func wrapped(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", op, err)
}
