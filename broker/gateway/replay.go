package gateway

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/domain"
	"tensorturn/projections/replay"
	"tensorturn/projections/timeline"
)

// Replayed is a run as its log tells it. Verifying is not done here: whoever wants to trust nothing but the bytes reads
// /api/v1/log and the blobs, as `run replay --verify` does.
type Replayed struct {
	Story   []timeline.Line `json:"story,omitempty" doc:"line by line, without at; by pages; after is the sequence of the last line seen"`
	At      *replay.Point   `json:"at,omitempty" doc:"the run as it stood behind a sequence"`
	To      *replay.Point   `json:"to,omitempty" doc:"and behind a later one"`
	Changes []replay.Change `json:"changes,omitempty" doc:"what changed from the one to the other"`
}

type replayIn struct {
	RunPath
	Page
	At   uint64 `query:"at" doc:"show the run as it stood behind this sequence of the log"`
	Diff uint64 `query:"diff" doc:"with at: and what changed from there to this sequence"`
}

// lineageIn asks where a model comes from; pages name merges by their rounds, and members by their numbers.
type lineageIn struct {
	RunPath
	Page
}

type replayBody struct {
	Link string `header:"Link" doc:"the story's next page, while there is one: <path>; rel=\"next\""`
	Body Replayed
}

func (g *Gateway) registerReplay(api huma.API) {
	huma.Register(api, op("replay-run", http.MethodGet, "/api/v1/runs/{id}/replay", "Tell a run from its log alone, or as it stood at any point"), g.replayRun)
	huma.Register(api, op("run-lineage", http.MethodGet, "/api/v1/runs/{id}/lineage", "Tell which deltas of which machines made the model, merge by merge"),
		func(ctx context.Context, in *lineageIn) (*listBody[replay.Ancestor], error) {
			l, err := g.readRun(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			return pageOf(g, in.Page, "/api/v1/runs/"+url.PathEscape(in.ID)+"/lineage", l.Lineage(), func(a replay.Ancestor) string { return strconv.Itoa(a.Round) })
		})
	huma.Register(api, op("run-members", http.MethodGet, "/api/v1/runs/{id}/members", "Tell which machines trained which part of each member of an ensemble, and its weight in the vote"),
		func(ctx context.Context, in *lineageIn) (*listBody[replay.Origin], error) {
			l, err := g.readRun(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			return pageOf(g, in.Page, "/api/v1/runs/"+url.PathEscape(in.ID)+"/members", l.Members(), func(o replay.Origin) string { return strconv.Itoa(o.Member) })
		})
}

func (g *Gateway) replayRun(ctx context.Context, in *replayIn) (*replayBody, error) {
	if in.Diff > 0 && in.At == 0 {
		return nil, g.problemOf(domain.Invalid("replay run", "diff has nothing to differ from", "give at and diff"))
	}
	l, err := g.readRun(ctx, in.ID, in.At, in.Diff)
	if err != nil {
		return nil, err
	}
	out := &replayBody{}
	if in.At == 0 {
		page, err := pageOf(g, in.Page, "/api/v1/runs/"+url.PathEscape(in.ID)+"/replay", l.Story(), func(l timeline.Line) string { return strconv.FormatUint(l.Seq, 10) })
		if err != nil {
			return nil, err
		}
		out.Link, out.Body.Story = page.Link, page.Body
		return out, nil
	}
	at, err := l.Point(in.At)
	if err != nil {
		return nil, g.problemOf(err)
	}
	out.Body.At = &at
	if in.Diff > 0 {
		to, err := l.Point(in.Diff)
		if err != nil {
			return nil, g.problemOf(err)
		}
		out.Body.To, out.Body.Changes = &to, replay.Difference(at, to)
	}
	return out, nil
}

// readRun folds one run out of the whole log, whose chain is checked on the way. One at a time: it is as dear as the log is
// long.
func (g *Gateway) readRun(ctx context.Context, key string, marks ...uint64) (*replay.Log, error) {
	r, err := g.findRun(verbShow, key)
	if err != nil {
		return nil, g.problemOf(err)
	}
	select {
	case g.replays <- struct{}{}:
		defer func() { <-g.replays }()
	case <-ctx.Done():
		return nil, g.problemOf(domain.Unavailable("replay run", "another replay is under way", "try again", ctx.Err()))
	}
	l := replay.New(g.cfg.Registry, r.ID)
	for _, seq := range marks {
		if seq > 0 {
			l.Mark(seq)
		}
	}
	for rec, err := range g.cfg.Log.Read(ctx, 1) {
		if err == nil {
			err = l.Add(rec.Seq, rec.Data)
		}
		if err != nil {
			return nil, g.problemOf(err)
		}
	}
	return l, nil
}
