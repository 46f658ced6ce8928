package gateway

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/broker/hub"
	"tensorturn/domain"
)

// idempotencyHeader lets a caller repeat a POST whose answer got lost (IETF draft-ietf-httpapi-idempotency-key-header).
const idempotencyHeader = "Idempotency-Key"

// maxIdempotencyKey bounds a key; 255 is what others allow.
const maxIdempotencyKey = 255

// drawBytes is how much randomness one request may draw from its key: a secret takes less than a tenth of it.
const drawBytes = 1024

// repeatable is a request that came under a key. What it makes follows from the key: command id, ids, secrets. A repeated
// one therefore decides nothing anew and finds the same things by the same names; nothing is kept for it but the command
// id, which the log has. Secrets can be told again without being stored: they follow from the key and a secret of the hub.
type repeatable struct {
	key     []byte // hash of the caller's secret and the key: callers cannot take each other's keys
	request []byte // hash of method, path and body
	done    atomic.Int64
}

type repeatableKey struct{}

// repeated finds the key's request in a context, nil when it came without one.
func repeated(ctx context.Context) *repeatable {
	r, _ := ctx.Value(repeatableKey{}).(*repeatable)
	return r
}

// idempotent reads the key of a POST.
func (g *Gateway) idempotent(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys := r.Header.Values(idempotencyHeader)
		if r.Method != http.MethodPost || len(keys) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		if !validKey(keys) {
			g.refuse(w, domain.Invalid("read "+idempotencyHeader, fmt.Sprintf("it is not one text of 1 to %d printable characters", maxIdempotencyKey), "draw a random one, such as a UUID"))
			return
		}
		body, err := io.ReadAll(r.Body)
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			tooLarge(w, large.Limit)
			return
		}
		if err != nil {
			return // the caller is gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		again := &repeatable{key: sum(bearer(r), keys[0]), request: sum(r.Method, r.URL.Path, string(body))}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), repeatableKey{}, again)))
	})
}

func validKey(keys []string) bool {
	return len(keys) == 1 && keys[0] != "" && len(keys[0]) <= maxIdempotencyKey &&
		!strings.ContainsFunc(keys[0], func(c rune) bool { return c < ' ' || c > '~' })
}

// sum hashes texts so that no two lists have the same hash.
func sum(texts ...string) []byte {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%d:%s", len(t), t)
	}
	return h.Sum(nil)
}

// command is the id of the next command of a request. One request may give several, in an order that is always the same.
func (g *Gateway) command(ctx context.Context) domain.CommandID {
	r := repeated(ctx)
	if r == nil {
		return domain.CommandID(g.cfg.NewID("c"))
	}
	n := r.done.Add(1)
	return hub.KeyedCommand(fmt.Appendf(r.key, "/%d", n), r.request)
}

// tail is the random end of an id that the request makes, always the same for the same key and request.
func (g *Gateway) tail(ctx context.Context, prefix string) string {
	r := repeated(ctx)
	if r == nil {
		return tailOf(g.cfg.NewID(prefix))
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum(prefix, string(r.key), string(r.request))))[:tailSize]
}

// random is where a request draws its secrets from: the system, or under a key what follows from the key and the hub's own
// secret, so that a repeated request is told the same.
func (g *Gateway) random(ctx context.Context, purpose string) (io.Reader, error) {
	r := repeated(ctx)
	if r == nil {
		return rand.Reader, nil
	}
	b, err := hkdf.Key(sha256.New, g.cfg.Secret, r.key, "tensorturn "+purpose+" "+string(r.request), drawBytes)
	if err != nil {
		return nil, fmt.Errorf("draw %s: %w", purpose, err)
	}
	return bytes.NewReader(b), nil
}

// describeKeys tells of the header at every POST of the OpenAPI document.
func describeKeys(doc *huma.OpenAPI) {
	limit := maxIdempotencyKey
	for _, path := range doc.Paths {
		if path.Post != nil {
			path.Post.Parameters = append(path.Post.Parameters, &huma.Param{Name: idempotencyHeader, In: "header",
				Schema:      &huma.Schema{Type: "string", MaxLength: &limit},
				Description: "a text of the caller's own: the same request under the same key is carried out once and answered alike; another request under it is a conflict (409)"})
		}
	}
}
