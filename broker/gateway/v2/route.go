package v2

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/pool"
	"tensorturn/projections/models"
)

// ServeHTTP answers every path under /v2. Paths are matched here and by no library, so that no answer has another body.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer a.recovered(w, r)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch path := strings.TrimSuffix(r.URL.Path, "/"); path {
	case "/v2/health/live":
		a.get(w, r, a.live)
	case "/v2/health/ready":
		a.get(w, r, a.ready)
	case "/v2":
		a.get(w, r, a.server)
	default:
		rest, ok := strings.CutPrefix(path, "/v2/models/")
		if !ok || r.URL.RawPath != "" { // names need no escapes: what has some is none
			refuse(w, http.StatusNotFound, "there is no "+domain.Clip(r.URL.Path, 80)+"; the paths are those of the Open Inference Protocol V2")
			return
		}
		a.model(w, r, rest)
	}
}

// get lets GET through.
func (a *API) get(w http.ResponseWriter, r *http.Request, h http.HandlerFunc) {
	if a.method(w, r, http.MethodGet) {
		h(w, r)
	}
}

func (a *API) method(w http.ResponseWriter, r *http.Request, method string) bool {
	if r.Method == method {
		return true
	}
	w.Header().Set("Allow", method)
	refuse(w, http.StatusMethodNotAllowed, domain.Clip(r.Method, 20)+" does not fit this path, "+method+" does")
	return false
}

// model answers NAME[/versions/V][/ready|/infer].
func (a *API) model(w http.ResponseWriter, r *http.Request, path string) {
	parts := strings.Split(path, "/")
	name, rest, version := parts[0], parts[1:], ""
	if len(rest) >= 2 && rest[0] == "versions" {
		version, rest = rest[1], rest[2:]
		if version == "" {
			version = "?"
		}
	}
	what := strings.Join(rest, "/")
	method := http.MethodGet
	if what == "infer" {
		method = http.MethodPost
	}
	if name == "" || what != "" && what != "ready" && what != "infer" {
		refuse(w, http.StatusNotFound, "there is no "+domain.Clip(r.URL.Path, 80)+"; the paths are those of the Open Inference Protocol V2")
		return
	}
	if !a.method(w, r, method) {
		return
	}
	switch what {
	case "infer":
		a.infer(w, r, name, version)
	case "ready":
		a.modelReady(w, r, name, version)
	default:
		a.metadata(w, r, name, version)
	}
}

// caller finds who asks, or answers.
func (a *API) caller(w http.ResponseWriter, r *http.Request) (Caller, bool) {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		secret = ""
	}
	c, fault := a.cfg.Identify(strings.TrimSpace(secret))
	if fault == nil {
		return c, true
	}
	a.cfg.Counts.AuthFailed(fault.Reason)
	w.Header().Set("Www-Authenticate", "Bearer")
	refuse(w, http.StatusUnauthorized, fault.Why)
	return c, false
}

// target is a deployed version that a caller may know.
type target struct {
	caller  Caller
	model   models.Model
	version models.Version
}

// target finds who asks for which version, or answers. A key for another model is told so whether or not the model it asks
// for exists.
func (a *API) target(w http.ResponseWriter, r *http.Request, name, version string, asks bool) (t target, ok bool) {
	if t.caller, ok = a.caller(w, r); !ok {
		return t, false
	}
	why := ""
	switch {
	case t.caller.Role == pool.RoleModel && string(t.caller.Model) != name:
		why = "this key is for another model"
	case t.caller.Role != pool.RoleModel && asks:
		why = "this key may not ask for predictions; make one: tensorturn key create --model " + domain.Clip(name, domain.MaxIDLength)
	case t.caller.Role == pool.RoleObserver:
		why = "this key may not ask about models"
	}
	if why != "" {
		a.cfg.Counts.AuthFailed("scope")
		refuse(w, http.StatusForbidden, why)
		return t, false
	}
	if t.model, ok = a.cfg.Model(domain.ModelID(name)); !ok || t.model.Retired {
		refuse(w, http.StatusNotFound, fmt.Sprintf("no model %q is deployed", domain.Clip(name, domain.MaxIDLength)))
		return t, false
	}
	number := 0
	if version != "" {
		n, err := strconv.Atoi(version)
		if err != nil || n < 1 || strconv.Itoa(n) != version {
			n = -1
		}
		number = n
	}
	if t.version, ok = t.model.Find(number); !ok {
		refuse(w, http.StatusNotFound, fmt.Sprintf("model %q has no version %q", name, domain.Clip(version, 20)))
		return t, false
	}
	return t, true
}

// recovered turns a panic into a 500 and a log line.
func (a *API) recovered(w http.ResponseWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	a.cfg.Logger.Error().Interface("panic", p).Str("path", domain.Clip(r.URL.Path, 80)).Bytes("stack", debug.Stack()).Msg("request failed inside")
	refuse(w, http.StatusInternalServerError, "the hub failed inside")
}
