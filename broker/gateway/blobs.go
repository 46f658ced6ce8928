package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"tensorturn/domain"
)

// Limits of the blob routes.
const (
	maxMissing      = 256                 // digests of one question: the parts of a 2 GiB delta
	maxMissingBytes = 128*maxMissing + 64 // a digest in JSON has 67 bytes
	maxParts        = 64                  // parts in work: 512 MiB of memory at the most
	maxPartsBy      = 16                  // of them for one caller; an agent sends 8 at a time, and reads too
)

// missingRequest and missingReply are the bodies of POST /blobs/missing.
type missingRequest struct {
	Digests []domain.Digest `json:"digests"`
}
type missingReply struct {
	Missing []domain.Digest `json:"missing"`
}

// blobsMissing says which parts still have to be sent, so that a cut transfer resumes at its part.
func (g *Gateway) blobsMissing(w http.ResponseWriter, r *http.Request) {
	var q missingRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMissingBytes)).Decode(&q); err != nil {
		g.refuse(w, domain.Invalid("ask for missing parts", "the body is not JSON: "+domain.Clip(err.Error(), 120), ""))
		return
	}
	if len(q.Digests) > maxMissing {
		g.refuse(w, domain.Invalid("ask for missing parts", "too many digests in one request", "ask for at most "+strconv.Itoa(maxMissing)))
		return
	}
	for _, d := range q.Digests {
		if _, err := domain.ParseDigest(string(d)); err != nil {
			g.refuse(w, err)
			return
		}
	}
	has, err := g.cfg.Blobs.Has(r.Context(), q.Digests)
	if err != nil {
		g.refuse(w, err)
		return
	}
	reply := missingReply{Missing: []domain.Digest{}}
	for i, d := range q.Digests {
		if !has[i] {
			reply.Missing = append(reply.Missing, d)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(reply)
}

func (g *Gateway) digestOf(w http.ResponseWriter, r *http.Request) (domain.Digest, bool) {
	d, err := domain.ParseDigest(chi.URLParam(r, "digest"))
	if err != nil {
		g.refuse(w, err)
		return "", false
	}
	return d, true
}

// blobHead answers 200 when the part is stored and 404 when not.
func (g *Gateway) blobHead(w http.ResponseWriter, r *http.Request) {
	d, ok := g.digestOf(w, r)
	if !ok {
		return
	}
	has, err := g.cfg.Blobs.Has(r.Context(), []domain.Digest{d})
	switch {
	case err != nil:
		w.WriteHeader(status(domain.KindOf(err)))
	case !has[0]:
		w.WriteHeader(http.StatusNotFound)
	}
}

// blobGet sends a part after its digest was checked.
func (g *Gateway) blobGet(w http.ResponseWriter, r *http.Request) {
	d, ok := g.digestOf(w, r)
	if !ok {
		return
	}
	release, err := g.parts.enter(callerOf(r))
	if err != nil {
		g.refuse(w, err)
		return
	}
	defer release()
	data, err := g.cfg.Blobs.Get(r.Context(), d)
	if err != nil {
		g.refuse(w, err)
		return
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bodyTimeout)) // a reader that stops must not hold the part for ever
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.Header().Set("Cache-Control", "private, immutable, max-age=31536000")
	w.Write(data)
}

// blobPut stores a part under its digest; storing it again is no error. The answer comes after the part is durable.
func (g *Gateway) blobPut(w http.ResponseWriter, r *http.Request) {
	d, ok := g.digestOf(w, r)
	if !ok {
		return
	}
	op := "store part " + d.Short()
	if err := g.cfg.Hub.ReadOnly(); err != nil {
		g.refuse(w, err)
		return
	}
	if err := g.room(callerOf(r)); err != nil {
		g.refuse(w, err)
		return
	}
	if r.ContentLength < 0 || r.ContentLength > domain.MaxPartBytes {
		g.refuse(w, domain.Invalid(op, "its length is missing or above the limit", "cut blobs into parts of at most "+strconv.Itoa(domain.MaxPartBytes)+" bytes"))
		return
	}
	release, err := g.parts.enter(callerOf(r))
	if err != nil {
		g.refuse(w, err)
		return
	}
	defer release()
	var data bytes.Buffer // grows with what has come, not with what was announced
	if n, err := data.ReadFrom(r.Body); err != nil || n != r.ContentLength {
		g.refuse(w, domain.Invalid(op, "the body ended early", "send the part again"))
		return
	}
	if err := g.cfg.Blobs.Put(r.Context(), d, data.Bytes()); err != nil {
		if r.Context().Err() == nil && domain.KindOf(err) == domain.KindUnavailable {
			g.storeSaid.Do(func() {
				g.cfg.Logger.Error().Err(err).Str("next", domain.NextOf(err)).Msg("a part could not be stored; its sender keeps it")
			})
		}
		g.refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// room is nil when the store has room for the caller's bytes: the operator brings new work, machines finish what there is.
func (g *Gateway) room(caller domain.MachineID) error {
	if caller == "" {
		return g.cfg.Health.NewWork()
	}
	return g.cfg.Health.Bytes()
}

// partsInFlight bounds the memory that transfers hold, in all and for each caller.
type partsInFlight struct {
	mu  sync.Mutex
	all int
	by  map[domain.MachineID]int
}

func newPartsInFlight() *partsInFlight { return &partsInFlight{by: map[domain.MachineID]int{}} }

func (p *partsInFlight) enter(m domain.MachineID) (release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= maxParts || p.by[m] >= maxPartsBy {
		return nil, domain.Unavailable("move part", "too many parts are being moved", "the agent tries again by itself", nil)
	}
	p.all++
	p.by[m]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.all--
		if p.by[m]--; p.by[m] == 0 {
			delete(p.by, m)
		}
	}, nil
}
