package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/domain"
)

// problemType is the media type of every refusal (RFC 9457).
const problemType = "application/problem+json"

// retryAfter is in seconds: what heals by itself mostly does so within a restart of the hub.
const retryAfter = "2"

// problem is an error body in the shape of RFC 9457, with the kind and the hint of a domain error.
type problem struct {
	Status int         `json:"status" doc:"HTTP status"`
	Title  string      `json:"title" doc:"its text"`
	Detail string      `json:"detail" doc:"what failed and why"`
	Kind   domain.Kind `json:"kind" enum:"invalid,not_found,denied,conflict,fenced,unavailable,integrity,internal" doc:"what a caller can do about it; command lines make their exit code from it"`
	Next   string      `json:"next,omitempty" doc:"what a person can do next"`
}

func (p *problem) Error() string             { return p.Detail }
func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) ContentType(string) string { return problemType }

// GetHeaders gives huma the headers that go with the status.
func (p *problem) GetHeaders() http.Header {
	switch p.Status {
	case http.StatusServiceUnavailable:
		return http.Header{"Retry-After": {retryAfter}}
	case http.StatusUnauthorized:
		return http.Header{"Www-Authenticate": {"Bearer"}}
	}
	return nil
}

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

// problemOf turns an error into a body. What has no kind is ours: its text goes to the log and not to the caller.
func (g *Gateway) problemOf(err error) *problem {
	k := domain.KindOf(err)
	p := &problem{Status: status(k), Title: http.StatusText(status(k)), Detail: err.Error(), Kind: k, Next: domain.NextOf(err)}
	if k == domain.KindInternal {
		g.cfg.Logger.Error().Err(err).Msg("request failed inside")
		p.Detail, p.Next = "the hub failed inside", "look into the hub's log"
	}
	return p
}

// refuse answers outside of huma's routes.
func (g *Gateway) refuse(w http.ResponseWriter, err error) { g.problemOf(err).write(w) }

func (p *problem) write(w http.ResponseWriter) {
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p)
}

// unauthorized answers a request without a valid key or token.
func unauthorized(w http.ResponseWriter, why, next string) {
	p := &problem{Status: http.StatusUnauthorized, Title: http.StatusText(http.StatusUnauthorized), Detail: why, Kind: domain.KindDenied, Next: next}
	p.write(w)
}

// tooLarge answers a body beyond its limit.
func tooLarge(w http.ResponseWriter, limit int64) {
	p := &problem{Status: http.StatusRequestEntityTooLarge, Title: http.StatusText(http.StatusRequestEntityTooLarge), Kind: domain.KindInvalid,
		Detail: fmt.Sprintf("the body is longer than %d bytes", limit), Next: "the API is described at /api/v1/openapi.json"}
	p.write(w)
}

// notAllowed answers a method that the path does not know.
func notAllowed(w http.ResponseWriter, r *http.Request) {
	p := &problem{Status: http.StatusMethodNotAllowed, Title: http.StatusText(http.StatusMethodNotAllowed), Kind: domain.KindInvalid,
		Detail: domain.Clip(r.Method, 20) + " does not fit " + domain.Clip(r.URL.Path, 80), Next: "the API is described at /api/v1/openapi.json"}
	p.write(w)
}

// maxFaults bounds how many of huma's complaints about one body are told.
const maxFaults = 4

// ownProblem gives huma's own refusals (a body that does not fit its schema, too long, of another type) our shape. huma
// would have us replace a variable of its package; a transformer changes this API alone.
func ownProblem(_ huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := &problem{Status: m.Status, Title: m.Title, Detail: m.Detail, Kind: domain.KindInvalid}
	if m.Status >= http.StatusInternalServerError {
		p.Kind = domain.KindInternal
	}
	if m.Status == http.StatusUnprocessableEntity {
		p.Next = "compare it with /api/v1/openapi.json"
	}
	var faults []string
	for _, e := range m.Errors {
		if len(faults) == maxFaults {
			faults = append(faults, "and more")
			break
		}
		faults = append(faults, strings.TrimPrefix(domain.Clip(e.Location, 80)+": ", ": ")+domain.Clip(e.Message, 160))
	}
	if len(faults) > 0 {
		p.Detail += ": " + strings.Join(faults, "; ")
	}
	return p, nil
}

// describeProblems makes the OpenAPI document say what ownProblem does.
func describeProblems(doc *huma.OpenAPI) {
	schemas := doc.Components.Schemas
	own := schemas.Schema(reflect.TypeFor[problem](), true, "Problem")
	for _, path := range doc.Paths {
		for _, o := range []*huma.Operation{path.Get, path.Put, path.Post, path.Delete} {
			if o == nil {
				continue
			}
			for _, r := range o.Responses {
				if c, ok := r.Content[problemType]; ok {
					c.Schema = own
				}
			}
		}
	}
	delete(schemas.Map(), "HumaErrorModel")
	delete(schemas.Map(), "HumaErrorDetail")
}
