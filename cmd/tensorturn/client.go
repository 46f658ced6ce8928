package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"tensorturn/domain"
)

// client speaks to a hub's API with the operator key.
type client struct {
	ctx  operatorContext
	http *http.Client
}

// hubTLS trusts the hub's own CA, and the system's when the hub uses a public certificate.
func hubTLS(caPEM []byte) (*tls.Config, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if len(caPEM) > 0 && !pool.AppendCertsFromPEM(caPEM) {
		return nil, domain.Invalid("read the hub's CA", "it is not PEM", "copy operator.json from the hub's directory again")
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, nil
}

func newClient(c operatorContext) (*client, error) {
	cfg, err := hubTLS([]byte(c.CA))
	if err != nil {
		return nil, err
	}
	t := &http.Transport{TLSClientConfig: cfg, Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 8,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 5 * time.Minute}
	return &client{ctx: c, http: &http.Client{Transport: t}}, nil
}

// do sends a request and returns its open response, or the hub's refusal as an error that keeps its kind and hint.
func (c *client) do(ctx context.Context, method, path string, body io.Reader, length int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.ctx.URL+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.ContentLength = length
		req.Header.Set("Content-Type", "application/json")
	}
	return c.send(req)
}

func (c *client) send(req *http.Request) (*http.Response, error) {
	req.Header.Set("Authorization", "Bearer "+c.ctx.Key)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(c.ctx.URL, err)
	}
	if resp.StatusCode < 400 {
		return resp, nil
	}
	defer resp.Body.Close()
	err = refusal(req.Method+" "+req.URL.Path, resp)
	if own, ok := errors.AsType[*domain.Error](err); ok && resp.StatusCode == http.StatusUnauthorized && c.ctx.file != "" {
		own.Why += " (it was read from " + c.ctx.file + ")"
	}
	return nil, err
}

// get opens a stream; header adds to the request's own.
func (c *client) get(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.ctx.URL+path, nil)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	return c.send(req)
}

// refusal reads a problem body.
func refusal(op string, resp *http.Response) error {
	var p struct {
		Detail string            `json:"detail"`
		Kind   domain.Kind       `json:"kind"`
		Next   string            `json:"next"`
		Errors []json.RawMessage `json:"errors"`
	}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if json.Unmarshal(b, &p) != nil || p.Detail == "" {
		p.Detail = fmt.Sprintf("the hub answered %s", resp.Status)
	}
	if len(p.Errors) > 0 {
		p.Detail += ": " + domain.Clip(string(p.Errors[0]), 300)
	}
	if p.Kind == "" {
		p.Kind = kindOfStatus(resp.StatusCode)
	}
	_ = op
	return &domain.Error{Kind: p.Kind, Why: p.Detail, Next: p.Next}
}

func kindOfStatus(code int) domain.Kind {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return domain.KindDenied
	case http.StatusNotFound:
		return domain.KindNotFound
	case http.StatusConflict:
		return domain.KindConflict
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusTooManyRequests:
		return domain.KindUnavailable
	}
	if code < 500 {
		return domain.KindInvalid
	}
	return domain.KindInternal
}

// unreachable explains a failed connection.
func unreachable(hub string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	next := "check that the hub runs and that this machine reaches " + hub + "; tensorturn doctor says what is in the way"
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var op *net.OpError
	why := "the connection failed"
	switch {
	case errors.As(err, &unknown):
		why, next = "its certificate is not from the CA in the context", "copy operator.json from the hub's directory again"
	case errors.As(err, &name):
		why, next = "its certificate has another name", "start the hub with --public-url "+hub
	case errors.As(err, &op) && op.Op == "dial":
		why = "nothing answers there"
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return domain.Unavailable("reach the hub at "+hub, why, next, err)
}

// call sends in as JSON (nil for none) and decodes the answer into out (nil to drop it).
func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	resp, err := c.repeat(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out)
}

// maxAnswer bounds one answer of the API.
const maxAnswer = 64 << 20

// maxAttempts is how often a request is sent whose answer got lost on the way.
const maxAttempts = 3

// repeat sends a request. A POST carries an idempotency key, so that it may be sent again when the link breaks before the
// answer is here: the hub carries it out once.
func (c *client) repeat(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	key := newID("cli")
	for attempt := 1; ; attempt++ {
		req, err := http.NewRequestWithContext(ctx, method, c.ctx.URL+path, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		if len(body) > 0 {
			req.Header.Set("Content-Type", "application/json")
		}
		if method == http.MethodPost {
			req.Header.Set("Idempotency-Key", key)
		}
		resp, err := c.send(req)
		if err == nil || attempt == maxAttempts || !cut(err) {
			return resp, err
		}
		if err := pause(ctx, retryCut); err != nil {
			return nil, err
		}
	}
}

// retryCut is the wait before a request is sent again.
const retryCut = 500 * time.Millisecond

// cut reports whether the link broke after the hub was reached: the request may have been carried out or not. A hub that
// cannot be reached at all is said at once.
func cut(err error) bool {
	var op *net.OpError
	dial := errors.As(err, &op) && op.Op == "dial"
	return !dial && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE))
}

// putPart stores one part or manifest.
func (c *client) putPart(ctx context.Context, d domain.Digest, data []byte) error {
	resp, err := c.do(ctx, http.MethodPut, "/blobs/"+string(d), bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// getPart fetches one part or manifest; the caller checks its digest.
func (c *client) getPart(ctx context.Context, d domain.Digest) ([]byte, error) {
	resp, err := c.do(ctx, http.MethodGet, "/blobs/"+string(d), nil, 0)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, domain.MaxPartBytes+1))
}
