package v2

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"tensorturn/broker/inference"
	"tensorturn/domain"
)

// headerLength says how long the JSON object is when bytes follow it.
const headerLength = "Inference-Header-Content-Length"

// infer answers POST .../infer. What is refused before the model is known counts for nobody's usage.
func (a *API) infer(w http.ResponseWriter, r *http.Request, name, version string) {
	began := time.Now()
	t, ok := a.target(w, r, name, version, true)
	if !ok {
		return
	}
	code, rows := a.predict(w, r, t)
	a.cfg.Counts.Inferred(t.model.Name, code, time.Since(began))
	a.usage.add(a.cfg.Now(), t, rows, code)
}

// predict answers and gives the status and the rows that were predicted.
func (a *API) predict(w http.ResponseWriter, r *http.Request, t target) (code, rows int) {
	if !a.cfg.NoRates {
		if f := a.rates.allow(t.caller, a.cfg.Now()); f != nil {
			return f.write(w), 0
		}
	}
	if f := acceptable(r); f != nil {
		return f.write(w), 0
	}
	leave, f := a.enter(t.caller.Key, r.ContentLength)
	if f != nil {
		return f.write(w), 0
	}
	defer leave()
	buf := buffers.Get().(*buffer)
	defer buf.free()
	v, said, q, f := a.ask(w, r, t, buf)
	if f != nil {
		return f.write(w), 0
	}
	buf.out = buf.out[:0]
	object := buf.answer(v, said, q)
	return http.StatusOK, a.send(w, buf, object, len(said.Class))
}

// send writes the answer in buf, whose first object bytes are JSON.
func (a *API) send(w http.ResponseWriter, buf *buffer, object, rows int) int {
	h := w.Header()
	if object < len(buf.out) {
		h.Set("Content-Type", "application/octet-stream")
		h.Set(headerLength, strconv.Itoa(object))
	} else {
		h.Set("Content-Type", "application/json")
	}
	h.Set("Content-Length", strconv.Itoa(len(buf.out)))
	if len(buf.out) > smallBody { // more than a socket takes at once: a reader that stops must not hold it
		rc := http.NewResponseController(w)
		rc.SetWriteDeadline(time.Now().Add(answerTime))
		defer rc.SetWriteDeadline(time.Time{})
	}
	w.Write(buf.out)
	return rows
}

// ask reads the request and lets the backend answer.
func (a *API) ask(w http.ResponseWriter, r *http.Request, t target, buf *buffer) (*inference.Version, inference.Answer, *request, *fail) {
	var none inference.Answer
	object, behind, f := buf.read(w, r)
	if f != nil {
		return nil, none, nil, f
	}
	q, f := parse(object)
	if f != nil {
		return nil, none, nil, f
	}
	if f := q.checkOutputs(); f != nil {
		return nil, none, nil, f
	}
	m, b, f := a.backend(t)
	if f != nil {
		return nil, none, nil, f
	}
	facts := m.facts.Load()
	if facts == nil {
		described, f := a.describe(r, t)
		if f != nil {
			return nil, none, nil, f
		}
		facts = &described
	}
	features, _, f := q.rows(facts, behind)
	if f != nil {
		return nil, none, nil, f
	}
	said, err := b.Predict(r.Context(), m.version, features)
	if err != nil {
		return nil, none, nil, a.failOf(err)
	}
	return m.version, said, q, nil
}

// checkOutputs refuses outputs that the model does not have.
func (q *request) checkOutputs() *fail {
	for i, o := range q.outputs {
		if o.name != probsName && o.name != labelName {
			return invalid(fmt.Sprintf("the model has no output %q; it has %q and %q", domain.Clip(o.name, 40), probsName, labelName))
		}
		if i > 0 && q.outputs[0].name == o.name || i > 1 {
			return invalid(fmt.Sprintf("output %q is asked for twice", o.name))
		}
	}
	return nil
}

// acceptable looks at the headers.
func acceptable(r *http.Request) *fail {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return &fail{code: http.StatusUnsupportedMediaType, why: "a body in Content-Encoding " + domain.Clip(e, 20) + " is not read; send it as it is"}
	}
	if r.ContentLength > MaxBody {
		return tooLarge()
	}
	return nil
}

func tooLarge() *fail {
	return &fail{code: http.StatusRequestEntityTooLarge, why: fmt.Sprintf("the body is larger than %d bytes", MaxBody)}
}

// buffer is the memory of one request: its body, and then its answer.
type buffer struct{ in, out []byte }

// buffers are kept between requests, the small ones.
var buffers = sync.Pool{New: func() any { return new(buffer) }}

func (b *buffer) free() {
	if cap(b.in) <= smallBody && cap(b.out) <= smallBody {
		buffers.Put(b)
	}
}

// read reads the body and cuts it into the JSON object and what follows it.
func (b *buffer) read(w http.ResponseWriter, r *http.Request) (object, behind []byte, f *fail) {
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	var err error
	if n := r.ContentLength; n >= 0 {
		if int64(cap(b.in)) < n {
			b.in = make([]byte, n)
		}
		b.in = b.in[:n]
		_, err = io.ReadFull(r.Body, b.in)
	} else {
		b.in, err = io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, nil, tooLarge()
	case err != nil:
		w.Header().Set("Connection", "close")
		return nil, nil, &fail{code: http.StatusRequestTimeout, why: "the body did not come whole, or not in time"}
	}
	length := r.Header.Get(headerLength)
	if length == "" {
		return b.in, nil, nil
	}
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > len(b.in) {
		return nil, nil, invalid(fmt.Sprintf("%s is %q, the body has %d bytes", headerLength, domain.Clip(length, 20), len(b.in)))
	}
	return b.in[:n], b.in[n:], nil
}
