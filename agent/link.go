package agent

import (
	"context"
	"fmt"
	"net/http"

	"tensorturn/domain"
	"tensorturn/domain/permute"
)

// Link measures the way to the hub over the same connections as its blobs: HEAD, GET and PUT /link. It is bench.Link.
type Link struct{ http *HTTPBlobs }

// NewLink makes a Link beside h.
func NewLink(h *HTTPBlobs) *Link { return &Link{http: h} }

// noiseBlock is repeated in what is sent: it is longer than proxies on the way look back, which would make the bytes fewer.
const noiseBlock = 64 << 10

// noise gives n such bytes. They are made for one request and not kept: a machine measures its link once in a while.
func noise(n int) []byte {
	out := make([]byte, n)
	permute.NewSource(1).Fill(out[:min(n, noiseBlock)])
	for at := noiseBlock; at < n; {
		at += copy(out[at:], out[:noiseBlock])
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
	_, err := l.http.do(ctx, http.MethodPut, "/link", noise(n), maxReplyBytes, nil)
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
