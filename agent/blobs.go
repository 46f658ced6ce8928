package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/blob"
)

// Limits of one request for a part.
const (
	// StallLimit ends a request that moves nothing. A slow uplink hides up to 4 MB in the kernel's buffer after the last
	// byte was taken from us: a minute at 0.5 Mbit/s.
	StallLimit    = 2 * time.Minute
	maxReplyBytes = 1 << 20 // of an answer that is no part
)

// HTTPBlobs reaches the hub's store over HTTPS: HEAD, GET and PUT /blobs/<sha256>, POST /blobs/missing.
type HTTPBlobs struct {
	base   string
	client *http.Client
	token  func() (string, error)
	stall  time.Duration
}

// NewHTTPBlobs reaches the store of the hub at base, for example https://hub.example.org:7443. token is asked before
// every request for a bearer token that is valid now.
func NewHTTPBlobs(base string, client *http.Client, token func() (string, error)) (*HTTPBlobs, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, domain.Invalid("reach the hub's blobs", fmt.Sprintf("%q is not an address", domain.Clip(base, 200)), "give it as https://hub.example.org:7443")
	}
	return &HTTPBlobs{base: (&url.URL{Scheme: u.Scheme, Host: u.Host}).String(), client: client, token: token, stall: StallLimit}, nil
}

// NewHTTPClient makes a client for parts: through HTTPS_PROXY where set, and over several HTTP/1.1 connections, since
// one connection of HTTP/2 shares one loss window among all parts.
func NewHTTPClient(t *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: t, TLSHandshakeTimeout: 20 * time.Second,
		MaxIdleConnsPerHost: MaxWidth, IdleConnTimeout: 90 * time.Second, DisableCompression: true,
	}}
}

// Missing implements Blobs.
func (h *HTTPBlobs) Missing(ctx context.Context, ds []domain.Digest) ([]domain.Digest, error) {
	domain.Assert(len(ds) <= MaxAsked, "a question for missing parts names at most MaxAsked")
	body, err := json.Marshal(map[string]any{"digests": ds})
	if err != nil {
		return nil, fmt.Errorf("ask for missing parts: %w", err)
	}
	answer, err := h.do(ctx, http.MethodPost, "/blobs/missing", body, maxReplyBytes, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for missing parts: %w", err)
	}
	var reply struct {
		Missing []domain.Digest `json:"missing"`
	}
	if err := json.Unmarshal(answer, &reply); err != nil {
		return nil, domain.Unavailable("ask for missing parts", "the answer is not what a hub says", "check the hub's address", err)
	}
	lacks := make(map[domain.Digest]bool, len(reply.Missing))
	for _, d := range reply.Missing {
		lacks[d] = true
	}
	var missing []domain.Digest
	for _, d := range ds {
		if lacks[d] {
			missing = append(missing, d)
		}
	}
	return missing, nil
}

// Put implements Blobs.
func (h *HTTPBlobs) Put(ctx context.Context, d domain.Digest, data []byte, moved func(int64)) error {
	if _, err := h.do(ctx, http.MethodPut, "/blobs/"+string(d), data, maxReplyBytes, moved); err != nil {
		return fmt.Errorf("send part %s: %w", d.Short(), err)
	}
	return nil
}

// Get implements Blobs.
func (h *HTTPBlobs) Get(ctx context.Context, d domain.Digest, moved func(int64)) ([]byte, error) {
	data, err := h.do(ctx, http.MethodGet, "/blobs/"+string(d), nil, domain.MaxPartBytes, moved)
	if err != nil {
		return nil, fmt.Errorf("fetch part %s: %w", d.Short(), err)
	}
	if blob.Sum(data) != d {
		return nil, domain.Integrity("fetch part "+d.Short(), "its bytes have another SHA-256", "check the hub's store with log verify")
	}
	return data, nil
}

// do makes one request for a path of the hub and reads its whole answer. It ends when nothing has moved for the stall limit.
func (h *HTTPBlobs) do(ctx context.Context, method, path string, body []byte, limit int64, moved func(int64)) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(h.stall, func() { cancel(errStalled) })
	defer watch.Stop()
	count := func(n int64) {
		watch.Reset(h.stall)
		if moved != nil {
			moved(n)
		}
	}
	token, err := h.token()
	if err != nil {
		return nil, fmt.Errorf("sign the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, h.base+path, nil)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Body = io.NopCloser(&counted{r: bytes.NewReader(body), moved: count})
		req.ContentLength = int64(len(body))
		req.GetBody = func() (io.ReadCloser, error) {
			return io.NopCloser(&counted{r: bytes.NewReader(body), moved: count}), nil
		}
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, unreachable(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(&counted{r: io.LimitReader(resp.Body, limit+1), moved: count})
	switch {
	case resp.StatusCode >= 300:
		return nil, refusal(resp.StatusCode, answer)
	case err != nil:
		return nil, unreachable(ctx, err)
	case int64(len(answer)) > limit:
		return nil, domain.Unavailable("read the hub's answer", fmt.Sprintf("it is longer than %d bytes", limit), "", nil)
	}
	return answer, nil
}

var errStalled = errors.New("nothing moved for too long")

// unreachable tells a link that failed from a caller that gave up.
func unreachable(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStalled):
		err = cause
	case cause != nil:
		return cause
	}
	return domain.Unavailable("reach the hub", "the transfer was cut", "it is tried again; check the network if this goes on", err)
}

// refusal makes an error of the hub's answer; its body is a problem (RFC 9457) with our kinds.
func refusal(status int, body []byte) error {
	var p struct {
		Detail string      `json:"detail"`
		Kind   domain.Kind `json:"kind"`
		Next   string      `json:"next"`
	}
	kind := domain.KindUnavailable
	switch {
	case status == http.StatusNotFound:
		kind = domain.KindNotFound
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		kind = domain.KindDenied
	case status == http.StatusTooManyRequests:
	case status >= 400 && status < 500:
		kind = domain.KindInvalid
	}
	why := fmt.Sprintf("the hub answered %d", status)
	if json.Unmarshal(body, &p) == nil && p.Detail != "" {
		why = domain.Clip(p.Detail, domain.MaxReasonLength)
	}
	return &domain.Error{Kind: kind, Why: why, Next: domain.Clip(p.Next, domain.MaxReasonLength)}
}

// counted reports what is read through it.
type counted struct {
	r     io.Reader
	moved func(int64)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if n > 0 {
		c.moved(int64(n))
	}
	return n, err
}
