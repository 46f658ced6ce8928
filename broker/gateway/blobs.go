package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"tensorturn/domain"
)

// maxMissing bounds one question for missing parts: the parts of a 2 GiB delta in one request.
const maxMissing = 256

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
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBodyBytes)).Decode(&q); err != nil {
		refuse(w, domain.Invalid("ask for missing parts", "the body is not JSON: "+domain.Clip(err.Error(), 120), ""))
		return
	}
	if len(q.Digests) > maxMissing {
		refuse(w, domain.Invalid("ask for missing parts", "too many digests in one request", "ask for at most "+strconv.Itoa(maxMissing)))
		return
	}
	for _, d := range q.Digests {
		if _, err := domain.ParseDigest(string(d)); err != nil {
			refuse(w, err)
			return
		}
	}
	has, err := g.cfg.Blobs.Has(r.Context(), q.Digests)
	if err != nil {
		refuse(w, err)
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

func digestOf(w http.ResponseWriter, r *http.Request) (domain.Digest, bool) {
	d, err := domain.ParseDigest(chi.URLParam(r, "digest"))
	if err != nil {
		refuse(w, err)
		return "", false
	}
	return d, true
}

// blobHead answers 200 when the part is stored and 404 when not.
func (g *Gateway) blobHead(w http.ResponseWriter, r *http.Request) {
	d, ok := digestOf(w, r)
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
	d, ok := digestOf(w, r)
	if !ok {
		return
	}
	data, err := g.cfg.Blobs.Get(r.Context(), d)
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.Header().Set("Cache-Control", "private, immutable, max-age=31536000")
	w.Write(data)
}

// blobPut stores a part under its digest; storing it again is no error. The answer comes after the part is durable.
func (g *Gateway) blobPut(w http.ResponseWriter, r *http.Request) {
	d, ok := digestOf(w, r)
	if !ok {
		return
	}
	if err := g.cfg.Hub.ReadOnly(); err != nil {
		refuse(w, err)
		return
	}
	if r.ContentLength < 0 || r.ContentLength > domain.MaxPartBytes {
		refuse(w, domain.Invalid("store part "+d.Short(), "its length is missing or above the limit", "cut blobs into parts of at most "+strconv.Itoa(domain.MaxPartBytes)+" bytes"))
		return
	}
	data := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, data); err != nil {
		refuse(w, domain.Invalid("store part "+d.Short(), "the body ended early", "send the part again"))
		return
	}
	if err := g.cfg.Blobs.Put(r.Context(), d, data); err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusCreated)
}
