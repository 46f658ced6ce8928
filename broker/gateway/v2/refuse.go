package v2

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"tensorturn/domain"
)

// maxError bounds the text of a refusal.
const maxError = 400

// retryAfter is what a caller is told to wait when nobody knows better.
const retryAfter = time.Second

// refuse answers with the protocol's error body.
func refuse(w http.ResponseWriter, code int, why string) {
	if why = domain.Clip(why, maxError); !utf8.ValidString(why) {
		why = string([]rune(why)) // a cut letter becomes U+FFFD
	}
	b, _ := json.Marshal(map[string]string{"error": why}) // a text cannot fail
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(code)
	w.Write(b)
}

// refuseUntil answers that the caller shall come again later.
func refuseUntil(w http.ResponseWriter, code int, why string, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(wait.Seconds())))))
	refuse(w, code, why)
}

// fail is a refusal on its way to the caller.
type fail struct {
	code int
	why  string
	wait time.Duration // Retry-After, 0 for none
}

func invalid(why string) *fail { return &fail{code: http.StatusBadRequest, why: why} }

func (f *fail) write(w http.ResponseWriter) int {
	if f.wait > 0 {
		refuseUntil(w, f.code, f.why, f.wait)
	} else {
		refuse(w, f.code, f.why)
	}
	return f.code
}

// failOf turns an error of a backend into a refusal. What is ours goes to the log and not to the caller.
func (a *API) failOf(err error) *fail {
	switch domain.KindOf(err) {
	case domain.KindInvalid:
		return invalid(err.Error())
	case domain.KindNotFound, domain.KindIntegrity:
		return &fail{http.StatusServiceUnavailable, "the model's weights are missing or damaged; it is not served", 5 * retryAfter}
	case domain.KindUnavailable, domain.KindConflict:
		return &fail{http.StatusServiceUnavailable, err.Error(), retryAfter}
	}
	a.cfg.Logger.Error().Err(err).Msg("prediction failed inside")
	return &fail{code: http.StatusInternalServerError, why: "the hub failed inside"}
}
