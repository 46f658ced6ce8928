package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"time"

	"tensorturn/broker/feed"
	"tensorturn/domain"
	"tensorturn/domain/event"
	render "tensorturn/projections/feed"
)

// Limits of event streams over HTTP.
const (
	maxStreams     = 256              // open at a time: each is a goroutine and a place in the log
	maxStreamsByIP = 64               // browsers open a few, scripts forget to close theirs
	streamAlive    = 15 * time.Second // a sign of life, below the idle limits of common proxies
	streamWrite    = 30 * time.Second // for one batch; a reader that stops is cut, and resumes where it was
	streamCheck    = time.Second      // between looks at whether the reader's key is still good
)

// Events are the log's events as other systems read them: broker/feed's Source.
type Events interface {
	Follow(ctx context.Context, after uint64) iter.Seq2[feed.Batch, error]
	Position() uint64
	Before(ctx context.Context, t time.Time) (uint64, error)
}

// eventQuery is what a stream asks for.
type eventQuery struct {
	run    domain.RunID
	kind   event.Kind
	after  uint64
	follow bool
}

// wants reports whether the message belongs to the stream.
func (q eventQuery) wants(m render.Message) bool {
	if q.run != "" && (m.Kind != event.KindRun || m.Agg != string(q.run)) {
		return false
	}
	return q.kind == "" || m.Kind == q.kind
}

// readQuery reads the parameters. Last-Event-ID, which a browser sends when it comes back, wins over after.
func (g *Gateway) readQuery(r *http.Request) (eventQuery, error) {
	const opName = "stream events"
	v := r.URL.Query()
	q := eventQuery{run: domain.RunID(v.Get("run")), kind: event.Kind(v.Get("kind")), follow: true}
	for name := range v {
		switch name {
		case "run", "kind", "after", "since", "follow":
		default:
			return q, domain.Invalid(opName, domain.Clip(name, 40)+" is not a parameter", "use run, kind, after, since, follow")
		}
	}
	if q.run != "" {
		found, err := g.findRun("read events of", string(q.run))
		if err != nil {
			return q, err
		}
		q.run = found.ID
	}
	if c := callerIn(r.Context()); c.run != "" {
		if q.run != "" && q.run != c.run {
			return q, noRun("read events of", string(q.run))
		}
		q.run = c.run
	}
	if q.kind != "" && !q.kind.Valid() {
		return q, domain.Invalid(opName, "kind is none of run, machine, pool", "")
	}
	if f := v.Get("follow"); f != "" {
		yes, err := strconv.ParseBool(f)
		if err != nil {
			return q, domain.Invalid(opName, "follow is neither true nor false", "")
		}
		q.follow = yes
	}
	if since := v.Get("since"); since != "" && v.Get("after") == "" {
		at, err := time.Parse(time.RFC3339, since)
		if err != nil {
			return q, domain.Invalid(opName, domain.Clip(since, 40)+" is not a time", "give it as 2026-11-30T12:00:00Z")
		}
		if q.after, err = g.cfg.Events.Before(r.Context(), at); err != nil {
			return q, err
		}
	}
	after := v.Get("after")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		after = last
	}
	switch after {
	case "":
	case "latest":
		q.after = g.cfg.Events.Position()
	default:
		n, err := strconv.ParseUint(after, 10, 64)
		if err != nil {
			return q, domain.Invalid(opName, domain.Clip(after, 20)+" is not a sequence", "give a sequence, or latest")
		}
		q.after = n
	}
	return q, nil
}

// streamEvents sends events as server-sent events: id is the sequence in the log, event the CloudEvents type, data the
// CloudEvent. Without follow it ends at the present end.
func (g *Gateway) streamEvents(w http.ResponseWriter, r *http.Request) {
	q, err := g.readQuery(r)
	if err != nil {
		g.refuse(w, err)
		return
	}
	release, ok := g.streams.enter(r.RemoteAddr)
	if !ok {
		g.refuse(w, domain.Unavailable("stream events", "too many event streams are open", "close some, or try again later", nil))
		return
	}
	defer release()
	s := &eventStream{w: w, rc: http.NewResponseController(w), q: q, ended: g.endOf(callerIn(r.Context()))}
	s.rc.SetReadDeadline(time.Time{}) // the limit of a request's body would end the stream
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy in front must not collect
	if s.send([]byte(": tensorturn events\nretry: 2000\n\n")) != nil {
		return
	}
	if err := s.run(r.Context(), g.cfg.Events); err != nil {
		g.cfg.Logger.Warn().Err(err).Msg("event stream ended")
	}
}

// eventStream is one open stream.
type eventStream struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	q    eventQuery
	told uint64 // newest id the reader knows
	// ended says whether the reader's key has ended since: a stream must not outlive it.
	ended func() bool
}

// run sends until the reader goes. Its error is the log's, not the reader's.
func (s *eventStream) run(ctx context.Context, events Events) error {
	ctx, stop := context.WithCancel(ctx)
	end := events.Position()
	if !s.q.follow && s.q.after >= end {
		stop()
		return nil
	}
	batches, failed := make(chan feed.Batch), make(chan error, 1)
	go func() { // apart from the sending, so that a quiet log does not silence the signs of life
		defer close(batches)
		for b, err := range events.Follow(ctx, s.q.after) {
			if err != nil {
				failed <- err
				return
			}
			select {
			case batches <- b:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		stop()
		for range batches { // wait for its end
		}
	}()
	return s.deliver(batches, failed, end)
}

func (s *eventStream) deliver(batches <-chan feed.Batch, failed <-chan error, end uint64) error {
	alive := time.NewTicker(streamAlive)
	defer alive.Stop()
	check := time.NewTicker(streamCheck)
	defer check.Stop()
	upto := s.q.after
	for {
		select {
		case <-check.C:
			if s.ended() {
				return nil
			}
		case b, ok := <-batches:
			if !ok {
				select {
				case err := <-failed:
					return err
				default:
					return nil
				}
			}
			if upto = b.Upto; s.ended() {
				return nil
			}
			if s.send(s.render(b, end)) != nil || !s.q.follow && upto >= end {
				return nil
			}
		case <-alive.C:
			// An id without data moves the place from which a reader resumes past events that are not for it.
			if s.send(s.place(upto)) != nil {
				return nil
			}
		}
	}
}

func (s *eventStream) place(upto uint64) []byte {
	if upto == s.told {
		return []byte(":\n\n")
	}
	s.told = upto
	return fmt.Appendf(nil, "id: %d\n\n", upto)
}

// render writes the events of a batch that the stream wants; without follow none behind end.
func (s *eventStream) render(b feed.Batch, end uint64) []byte {
	var out bytes.Buffer
	for _, m := range b.Messages {
		if s.q.wants(m) && (s.q.follow || m.Seq <= end) {
			fmt.Fprintf(&out, "id: %d\nevent: %s\ndata: %s\n\n", m.Seq, m.Type, m.Data)
			s.told = m.Seq
		}
	}
	return out.Bytes()
}

func (s *eventStream) send(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	s.rc.SetWriteDeadline(time.Now().Add(streamWrite))
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	return s.rc.Flush()
}

// eventSchemas answers GET /api/v1/events/schemas: what the data of each event type holds.
func (g *Gateway) eventSchemas(w http.ResponseWriter, _ *http.Request) {
	all := render.Schemas(g.cfg.Registry)
	all["envelope"] = render.EnvelopeSchema()
	w.Header().Set("Content-Type", "application/schema+json")
	json.NewEncoder(w).Encode(all)
}

// eventDocument answers GET /api/v1/events/asyncapi.json: the feed on NATS.
func (g *Gateway) eventDocument(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(render.AsyncAPI(g.cfg.Registry))
}
