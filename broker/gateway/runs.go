package gateway

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/broker/hub"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
	"tensorturn/projections/timeline"
)

// SubmitRun is the body of POST /api/v1/runs. The data set's blob must be stored before.
type SubmitRun struct {
	ID   string      `json:"id,omitempty" maxLength:"48" doc:"the run's id; repeating a submission under one id is safe; made by the hub when empty"`
	Spec run.Spec    `json:"spec"`
	Data run.Dataset `json:"data"`
	// Anyway takes a run that no machine of the pool can take.
	Anyway bool `json:"anyway,omitempty" doc:"take it although no machine of the pool meets its requirements: one may join"`
}

// Reasoned is the body of commands that may carry a reason.
type Reasoned struct {
	Reason string `json:"reason,omitempty" maxLength:"200"`
}

func (r *Reasoned) reason() string {
	if r == nil {
		return ""
	}
	return r.Reason
}

// RunEvents is a page of a run's timeline.
type RunEvents struct {
	Lines []timeline.Line `json:"lines"`
	Last  uint64          `json:"last" doc:"sequence of the last line, or the one asked after when there is none"`
}

// RunPath is the run of a path, by id, name, or the beginning of an id; huma fills embedded structs only when they are exported.
type RunPath struct {
	ID string `path:"id" maxLength:"80"`
}

type (
	runReason struct {
		RunPath
		Body *Reasoned // may be left out
	}
	runBody  struct{ Body runs.Run }
	eventsIn struct {
		RunPath
		After uint64 `query:"after" doc:"return lines behind this sequence"`
		Limit int    `query:"limit" minimum:"0" maximum:"1000" doc:"how many at most; 500 when absent"`
		Wait  int    `query:"wait" minimum:"0" maximum:"25" doc:"seconds to wait for the first line"`
	}
	eventsBody struct {
		Link string `header:"Link" doc:"the next page, while there is one: <path>; rel=\"next\""`
		Body RunEvents
	}
)

func (g *Gateway) registerRuns(api huma.API) {
	huma.Register(api, op("list-runs", http.MethodGet, "/api/v1/runs", "List runs, oldest first"),
		func(ctx context.Context, in *Page) (*listBody[runs.Run], error) {
			var all []runs.Run
			g.cfg.Views.Engine.Read(func(uint64) { all = g.cfg.Views.Runs.List() })
			c := callerIn(ctx)
			all = slices.DeleteFunc(all, func(r runs.Run) bool { return !c.sees(r.ID) })
			return pageOf(g, *in, "/api/v1/runs", all, func(r runs.Run) string { return string(r.ID) })
		})
	huma.Register(api, op("submit-run", http.MethodPost, "/api/v1/runs", "Submit a run"),
		func(ctx context.Context, in *struct{ Body SubmitRun }) (*runBody, error) {
			return g.submitRun(ctx, in.Body)
		})
	huma.Register(api, op("show-run", http.MethodGet, "/api/v1/runs/{id}", "Show a run with every default in force"),
		func(ctx context.Context, in *RunPath) (*runBody, error) { return g.showRun("show", in.ID) })
	huma.Register(api, op("run-events", http.MethodGet, "/api/v1/runs/{id}/events", "Read a run's timeline, waiting for news if asked"), g.runEvents)
	for _, c := range []struct {
		verb, summary string
		command       func(reason string) run.Command
	}{
		{"cancel", "End a run", func(r string) run.Command { return run.Cancel{Reason: r} }},
		{"pause", "Give out no new work of a run", func(r string) run.Command { return run.Pause{Reason: r} }},
		{"resume", "End a pause", func(string) run.Command { return run.Resume{} }},
	} {
		huma.Register(api, op(c.verb+"-run", http.MethodPost, "/api/v1/runs/{id}/"+c.verb, c.summary),
			func(ctx context.Context, in *runReason) (*runBody, error) {
				r, err := g.showRun(c.verb, in.ID)
				if err != nil {
					return nil, err
				}
				id := string(r.Body.ID)
				if err := g.do(ctx, hub.Target{Kind: event.KindRun, ID: id, Command: c.command(in.Body.reason())}); err != nil {
					return nil, err
				}
				return g.showRun(c.verb, id)
			})
	}
}

// op describes an operation of the operator's API. huma's own time for a body, 5 s, would also end the context of the
// command that the body asked for.
func op(id, method, path, summary string) huma.Operation {
	return huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, MaxBodyBytes: maxBodyBytes, BodyReadTimeout: bodyTimeout}
}

// do hands commands to the hub in the name of the request's caller. The hub feeds the views before it answers, so that a
// read after this sees the change. A caller that gives up leaves the command to the hub: it is decided or not, and under
// an idempotency key a repetition is safe whatever it asks for.
func (g *Gateway) do(ctx context.Context, targets ...hub.Target) error {
	err := g.cfg.Hub.Do(ctx, hub.Do{Command: g.command(ctx), Actor: callerIn(ctx).actor(), Targets: targets})
	if err != nil {
		return g.problemOf(err)
	}
	return nil
}

func (g *Gateway) submitRun(ctx context.Context, in SubmitRun) (*runBody, error) {
	if err := g.cfg.Health.NewWork(); err != nil {
		return nil, g.problemOf(err)
	}
	id := in.ID
	if id == "" {
		id = readableID(in.Spec.Name, "run", g.tail(ctx, "r"))
	}
	if _, err := domain.ParseID[domain.RunID]("run", id); err != nil {
		return nil, g.problemOf(err)
	}
	if _, err := domain.ParseDigest(string(in.Data.Blob)); err != nil {
		return nil, g.problemOf(err)
	}
	has, err := g.cfg.Blobs.Has(ctx, []domain.Digest{in.Data.Blob})
	if err != nil {
		return nil, g.problemOf(err)
	}
	if !has[0] {
		return nil, g.problemOf(domain.Invalid("submit run", "the data set "+in.Data.Blob.Short()+" is not stored", "upload the data set first; run submit does"))
	}
	if in.Data.Bytes, err = g.sizeOf(ctx, in.Data.Blob); err != nil {
		return nil, g.problemOf(err)
	}
	spec, err := run.Resolve(in.Spec, in.Data)
	if err != nil {
		return nil, g.problemOf(err)
	}
	if err := g.do(ctx, hub.Target{Kind: event.KindRun, ID: id, Command: run.Submit{Spec: spec, Data: in.Data, Anyway: in.Anyway}}); err != nil {
		return nil, err
	}
	return g.showRun("submit", id)
}

// sizeOf is the size of a stored blob.
func (g *Gateway) sizeOf(ctx context.Context, d domain.Digest) (int64, error) {
	r, err := blob.Open(ctx, d, g.cfg.Blobs.Get)
	if err != nil {
		return 0, err
	}
	return r.Size(), nil
}

// showRun answers with the run; verb is what the caller wants of it.
func (g *Gateway) showRun(verb, key string) (*runBody, error) {
	r, err := g.findRun(verb, key)
	if err != nil {
		return nil, g.problemOf(err)
	}
	return &runBody{Body: r}, nil
}

// defaultLines is a page of a run's timeline.
const defaultLines = 500

// runEvents waits at most in.Wait seconds for a line behind in.After.
func (g *Gateway) runEvents(ctx context.Context, in *eventsIn) (*eventsBody, error) {
	r, err := g.showRun("show", in.ID)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(in.Limit, defaultLines)
	wait, cancel := context.WithTimeout(ctx, min(time.Duration(in.Wait)*time.Second, maxWait))
	defer cancel()
	for {
		out := &eventsBody{Body: RunEvents{Last: in.After}}
		var at uint64
		g.cfg.Views.Engine.Read(func(position uint64) {
			at = position
			out.Body.Lines = g.cfg.Views.Timeline.Since(r.Body.ID, in.After, limit+1)
		})
		if len(out.Body.Lines) > limit {
			out.Body.Lines = out.Body.Lines[:limit]
			out.Link = nextLink("/api/v1/runs/"+string(r.Body.ID)+"/events", url.Values{"after": {strconv.FormatUint(out.Body.Lines[limit-1].Seq, 10)}, "limit": {strconv.Itoa(limit)}})
		}
		if n := len(out.Body.Lines); n > 0 {
			out.Body.Last = out.Body.Lines[n-1].Seq
		}
		if len(out.Body.Lines) > 0 || in.Wait == 0 {
			return out, nil
		}
		select {
		case <-g.cfg.Views.Engine.Moved(at):
		case <-wait.Done():
			return out, nil
		}
	}
}
