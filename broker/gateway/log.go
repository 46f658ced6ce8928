package gateway

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Verified is the result of verifying the whole log.
type Verified struct {
	OK       bool          `json:"ok"`
	Records  uint64        `json:"records" doc:"records whose chain holds"`
	Head     domain.Digest `json:"head" doc:"digest of the last good record"`
	Key      string        `json:"key,omitempty" doc:"public key of this hub, in hex: heads and exports are verified by it"`
	FirstBad uint64        `json:"first_bad,omitempty" doc:"sequence of the first bad record"`
	Reason   string        `json:"reason,omitempty"`
	ReadOnly string        `json:"read_only,omitempty" doc:"why the hub takes no commands"`
}

// LogRecord is one line of GET /api/v1/log: a stored record as it is, so that the reader can verify it alone.
type LogRecord struct {
	Seq  uint64 `json:"seq"`
	ID   string `json:"id"`
	Data []byte `json:"data"` // base64: the msgpack envelope
	// Error ends the stream when a record cannot be read; Kind says whether that is damage (integrity: Seq is then the
	// first bad sequence) or may heal (unavailable).
	Error string      `json:"error,omitempty"`
	Kind  domain.Kind `json:"kind,omitempty"`
}

func (g *Gateway) registerLog(api huma.API) {
	huma.Register(api, op("verify-log", http.MethodPost, "/api/v1/log/verify", "Verify the hash chain of the whole log"),
		func(ctx context.Context, _ *struct{}) (*struct{ Body Verified }, error) {
			v := g.verify(ctx)
			v.Key = hex.EncodeToString(g.cfg.HeadKey)
			if ro := g.cfg.Hub.ReadOnly(); ro != nil {
				v.ReadOnly = ro.Error()
			}
			return &struct{ Body Verified }{v}, nil
		})
}

// verify reads the whole log and checks every link.
func (g *Gateway) verify(ctx context.Context) Verified {
	c := event.NewVerifier(g.cfg.Registry)
	out := Verified{OK: true}
	for rec, err := range g.cfg.Log.Read(ctx, 1) {
		if err == nil {
			_, err = c.Next(rec.Seq, rec.Data)
		}
		if err != nil {
			out.OK, out.Reason = false, err.Error()
			out.FirstBad, _ = event.FirstBad(err)
			break
		}
	}
	out.Records, out.Head = c.Head()
	return out
}

// readLog streams the records from sequence ?from= to the present end as lines of JSON. An unreadable record ends the
// stream with a line that says so.
func (g *Gateway) readLog(w http.ResponseWriter, r *http.Request) {
	from := uint64(1)
	if q := r.URL.Query().Get("from"); q != "" {
		n, err := strconv.ParseUint(q, 10, 64)
		if err != nil || n == 0 {
			g.refuse(w, domain.Invalid("read log", "from="+domain.Clip(q, 20)+" is not a sequence", "sequences begin at 1"))
			return
		}
		from = n
	}
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Time{}) // a long log may take longer than any body
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	next := from
	for rec, err := range g.cfg.Log.Read(r.Context(), from) {
		line := LogRecord{Seq: rec.Seq, ID: rec.ID, Data: rec.Data}
		if err != nil {
			line = badRecord(next, err)
		}
		if next%deadlineEvery == from%deadlineEvery || err != nil {
			rc.SetWriteDeadline(time.Now().Add(headerTimeout)) // a reader that stops must not hold the stream for ever
		}
		if enc.Encode(line) != nil || err != nil {
			return
		}
		next = rec.Seq + 1
	}
}

// deadlineEvery is how many records are written under one deadline: at most 128 MiB, a few MiB as a rule.
const deadlineEvery = 256

// badRecord is the last line of a stream that fails at seq.
func badRecord(seq uint64, err error) LogRecord {
	text := err.Error()
	if b := new(event.BreakError); errors.As(err, &b) {
		seq, text = b.Seq, b.Error() // the sequence stands beside it
	}
	return LogRecord{Seq: seq, Error: text, Kind: domain.KindOf(err)}
}
