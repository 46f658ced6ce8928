package gateway

import (
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/domain"
)

// problem is an error body in the shape of RFC 9457, with the kind and the hint of a domain error.
type problem struct {
	Status int         `json:"status"`
	Title  string      `json:"title"`
	Detail string      `json:"detail"`
	Kind   domain.Kind `json:"kind"`
	Next   string      `json:"next,omitempty"`
}

func (p *problem) Error() string             { return p.Detail }
func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) ContentType(string) string { return "application/problem+json" }

var _ huma.StatusError = (*problem)(nil)

// status is the table from kinds to HTTP statuses.
func status(k domain.Kind) int {
	switch k {
	case domain.KindInvalid:
		return http.StatusBadRequest
	case domain.KindNotFound:
		return http.StatusNotFound
	case domain.KindDenied:
		return http.StatusForbidden
	case domain.KindConflict, domain.KindFenced:
		return http.StatusConflict
	case domain.KindUnavailable:
		return http.StatusServiceUnavailable
	case domain.KindIntegrity:
		return http.StatusBadGateway
	}
	return http.StatusInternalServerError
}

// problemOf turns an error into a body. What has no kind is ours: its text stays inside.
func problemOf(err error) *problem {
	k := domain.KindOf(err)
	p := &problem{Status: status(k), Title: http.StatusText(status(k)), Detail: err.Error(), Kind: k, Next: domain.NextOf(err)}
	if k == domain.KindInternal {
		p.Detail, p.Next = "the hub failed inside", "look into the hub's log"
	}
	return p
}

// refuse writes a problem outside of huma's routes.
func refuse(w http.ResponseWriter, err error) {
	p := problemOf(err)
	w.Header().Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "2")
	}
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p)
}

// unauthorized answers a request without a valid key or token.
func unauthorized(w http.ResponseWriter, why, next string) {
	p := &problem{Status: http.StatusUnauthorized, Title: http.StatusText(http.StatusUnauthorized), Detail: why, Kind: domain.KindDenied, Next: next}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("WWW-Authenticate", "Bearer")
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p)
}
