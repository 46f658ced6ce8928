package gateway

import (
	"context"
	"log"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/rs/zerolog"

	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/domain/pool"
)

// bearer is the secret of an Authorization header, empty when there is none.
func bearer(r *http.Request) string {
	scheme, secret, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// keyed lets requests through whose key may do what they ask: everything by the operator, reading by observers.
func (g *Gateway) keyed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, fault := g.identify(bearer(r))
		if fault != nil {
			g.cfg.Counts.AuthFailed(fault.Reason)
			unauthorized(w, fault.Why, fault.Next)
			return
		}
		if err := g.permit(c, r); err != nil {
			g.cfg.Counts.AuthFailed(reasonScope)
			g.refuse(w, err)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		next.ServeHTTP(w, r.WithContext(withCaller(r.Context(), c)))
	})
}

// callerKey finds the caller of a blob request in its context: a machine's id, or "" for the operator.
type callerKey struct{}

func callerOf(r *http.Request) domain.MachineID {
	m, _ := r.Context().Value(callerKey{}).(domain.MachineID)
	return m
}

// blobCaller lets the operator and enrolled machines through. A machine shows a short-lived token that its own nkey
// signed; the key must be that of a machine that is not revoked.
func (g *Gateway) blobCaller(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secret := bearer(r)
		if identity.LooksLikeKey(secret) {
			c, fault := g.identify(secret)
			if fault != nil {
				g.cfg.Counts.AuthFailed(fault.Reason)
				unauthorized(w, fault.Why, fault.Next)
				return
			}
			if c.role != pool.RoleOperator {
				g.cfg.Counts.AuthFailed(reasonScope)
				g.refuse(w, domain.Denied("read blobs", "this key may not read what machines store", "use the operator's key"))
				return
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, domain.MachineID(""))))
			return
		}
		m, _, ok := g.machineOf(w, secret, identity.AudienceBlobs, "")
		if !ok {
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, m)))
	})
}

// recovered turns a panic of one request into a 500 and a log line; the hub's own state is not touched by handlers. An
// answer that has begun is cut, so that nobody takes it for whole.
func (g *Gateway) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := middleware.NewWrapResponseWriter(rw, r.ProtoMajor)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Date", g.cfg.Now().UTC().Format(http.TimeFormat)) // the clock that checks proofs: machines whose own is wrong go by it
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p)
			}
			g.cfg.Logger.Error().Interface("panic", p).Str("path", domain.Clip(r.URL.Path, 80)).Bytes("stack", debug.Stack()).Msg("request failed inside")
			if w.Status() != 0 {
				panic(http.ErrAbortHandler)
			}
			g.refuse(w, &domain.Error{Kind: domain.KindInternal, Op: "serve", Why: "panic"})
		}()
		next.ServeHTTP(w, r)
	})
}

// quietLog turns the http server's complaints about foreign clients into debug lines.
func quietLog(l zerolog.Logger) *log.Logger {
	return log.New(debugWriter{l}, "", 0)
}

type debugWriter struct{ l zerolog.Logger }

func (d debugWriter) Write(b []byte) (int, error) {
	d.l.Debug().Str("from", "http").Msg(strings.TrimSpace(string(b)))
	return len(b), nil
}
