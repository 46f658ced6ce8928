package gateway

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/event"
	"tensorturn/projections/archive"
	"tensorturn/projections/runs"
)

// HeaderKey carries the hub's public key beside an export, in hex: what the file is verified by anywhere.
const HeaderKey = "Tensorturn-Key"

// exportRun streams a run as one signed file: its records, the digests of those between them, and the blobs that are still
// stored of all that its facts name. ?events_only=true leaves the blobs out. What fails on the way cuts the stream: a file
// without its end is none.
func (g *Gateway) exportRun(w http.ResponseWriter, r *http.Request) {
	run, err := g.findRun("export", chi.URLParam(r, "run"))
	if err != nil {
		g.refuse(w, err)
		return
	}
	x := &exporter{g: g, ctx: r.Context(), run: run, eventsOnly: r.URL.Query().Get("events_only") == "true", out: &patient{w: w, rc: http.NewResponseController(w)},
		seen: map[domain.Digest]bool{}}
	x.out.rc.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set(HeaderKey, hex.EncodeToString(g.cfg.HeadKey))
	err = x.records()
	if err == nil && !x.eventsOnly {
		err = x.blobs()
	}
	if err == nil {
		err = x.file.Close()
	}
	switch {
	case err == nil:
	case x.file == nil:
		g.refuse(w, err)
	default:
		if r.Context().Err() == nil {
			g.cfg.Logger.Warn().Str("run", string(run.ID)).Err(err).Msg("export cut")
		}
		panic(http.ErrAbortHandler)
	}
}

// patient gives each write some time: a reader that stops must not hold the stream for ever.
type patient struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

// Write implements io.Writer. A frame has at most 8 MiB: as much as one part, and as much time.
func (p *patient) Write(b []byte) (int, error) {
	p.rc.SetWriteDeadline(time.Now().Add(bodyTimeout))
	return p.w.Write(b)
}

// exporter is one export under way.
type exporter struct {
	g          *Gateway
	ctx        context.Context
	run        runs.Run
	eventsOnly bool
	out        *patient
	file       *archive.Writer
	named      []domain.Digest // in the facts, each once
	seen       map[domain.Digest]bool
}

// records writes from the run's first record to the last it has now.
func (x *exporter) records() error {
	for rec, err := range x.g.cfg.Log.Read(x.ctx, x.run.FirstSeq) {
		if err != nil {
			return err
		}
		e, err := event.Decode(x.g.cfg.Registry, rec.Seq, rec.Data)
		if err != nil {
			return err
		}
		if x.file == nil {
			h := archive.Header{Run: x.run.ID, First: x.run.FirstSeq, Last: x.run.LastSeq, Before: e.Prev, EventsOnly: x.eventsOnly, Program: "tensorturn " + x.g.cfg.Version, Micros: x.g.cfg.Now().UnixMicro()}
			if x.file, err = archive.NewWriter(x.out, x.g.cfg.Export, h); err != nil {
				return err
			}
		}
		if e.Kind != event.KindRun || domain.RunID(e.Agg) != x.run.ID {
			err = x.file.Hide(rec.Seq, rec.Data)
		} else {
			x.note(e.Data)
			err = x.file.Record(rec.Seq, rec.Data)
		}
		if err != nil || rec.Seq == x.run.LastSeq {
			return err
		}
	}
	return event.Break(x.run.LastSeq, "the log ends before the run's last record", nil)
}

func (x *exporter) note(d event.Data) {
	for _, n := range archive.Mentions(d) {
		if !x.seen[n] {
			x.seen[n] = true
			x.named = append(x.named, n)
		}
	}
}

// blobs writes manifests and parts of what is stored. What the keep policy has dropped is not there, and is no error: a
// verification says which rounds it could not compute again.
func (x *exporter) blobs() error {
	for _, d := range x.named {
		m, err := x.object(d)
		if domain.KindOf(err) == domain.KindNotFound {
			continue
		}
		if err != nil {
			return err
		}
		manifest, err := blob.Parse(m)
		if err != nil {
			continue // named, stored, and no blob: it is in the file as it is
		}
		for _, p := range manifest.Parts {
			if _, err := x.object(p); err != nil {
				return fmt.Errorf("part of blob %s: %w", d.Short(), err)
			}
		}
	}
	return nil
}

func (x *exporter) object(d domain.Digest) ([]byte, error) {
	b, err := x.g.cfg.Blobs.Get(x.ctx, d)
	if err != nil {
		return nil, err
	}
	return b, x.file.Object(d, b)
}
