package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
)

func runWatch(a *app) *cobra.Command {
	return &cobra.Command{Use: "watch RUN", Short: "follow a run until it ends: a progress bar on a terminal, plain lines elsewhere", Args: args("RUN"),
		RunE: func(c *cobra.Command, got []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			return a.watch(c.Context(), cl, domain.RunID(got[0]))
		}}
}

// watch follows the run to its end. A hub that goes away for a while is waited for: the run goes on without the screen.
func (a *app) watch(ctx context.Context, cl *client, id domain.RunID) error {
	r, err := a.follow(ctx, cl, id)
	if err != nil {
		return err
	}
	if a.json {
		if err := a.object(r); err != nil {
			return err
		}
	}
	switch r.Phase {
	case run.PhaseFailed:
		return withExit(exitRunFailed, domain.Conflict("run "+string(id), "it failed: "+r.Reason, "see: tensorturn run replay "+string(id)))
	case run.PhaseCancelled:
		return withExit(exitRunFailed, domain.Conflict("run "+string(id), "it was cancelled: "+r.Reason, ""))
	}
	if !r.Evaluated {
		return withExit(exitDegraded, domain.Conflict("run "+string(id), "it completed, but could not be evaluated", "see: tensorturn run replay "+string(id)))
	}
	return nil
}

// Patience of a watcher whose hub does not answer.
const (
	watchRetry = time.Second
	watchLimit = 10 * time.Minute
)

func (a *app) follow(ctx context.Context, cl *client, id domain.RunID) (runs.Run, error) {
	bar := newBar(a.terminal)
	defer bar.done()
	after, silent := uint64(0), time.Duration(0)
	for {
		r, lines, err := cl.poll(ctx, id, after)
		if domain.KindOf(err) == domain.KindUnavailable && silent < watchLimit {
			bar.note("the hub does not answer; waiting")
			silent += watchRetry
			if err := pause(ctx, watchRetry); err != nil {
				return r, err
			}
			continue
		}
		if err != nil {
			return r, err
		}
		after, silent = lines.Last, 0
		for _, l := range lines.Lines {
			if quietFacts[l.Name] {
				continue
			}
			bar.line(fmt.Sprintf("%s  %s", l.Time.Format("15:04:05"), l.Text))
		}
		bar.show(r)
		if r.Phase.Ended() {
			return r, nil
		}
	}
}

// quietFacts happen many times a second; the bar shows them as movement.
var quietFacts = map[string]bool{
	run.NameChunkTrained: true, run.NameChunksClaimed: true, run.NameLeaseGranted: true, run.NameLeaseReleased: true,
	run.NameContributionRequested: true, run.NameShardAssigned: true, run.NameRoundOpened: true, run.NameRoundClosed: true,
}

// poll waits for news behind after, then reads the run.
func (c *client) poll(ctx context.Context, id domain.RunID, after uint64) (runs.Run, gateway.RunEvents, error) {
	var lines gateway.RunEvents
	path := "/api/v1/runs/" + url.PathEscape(string(id))
	if err := c.call(ctx, http.MethodGet, fmt.Sprintf("%s/events?after=%d&wait=5", path, after), nil, &lines); err != nil {
		return runs.Run{}, lines, err
	}
	r, err := c.run(ctx, string(id))
	return r, lines, err
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// bar is one redrawn line on a terminal, or a plain line every few seconds elsewhere.
type bar struct {
	t     *terminal
	began time.Time
	last  time.Time
	drawn bool
}

// plainEvery spaces the lines where nothing can be redrawn.
const plainEvery = 5 * time.Second

func newBar(t *terminal) *bar { return &bar{t: t, began: time.Now()} }

func (b *bar) clear() {
	if b.drawn {
		fmt.Fprint(b.t.err, "\r\x1b[K")
		b.drawn = false
	}
}

// line prints something that happened, above the bar.
func (b *bar) line(s string) {
	b.clear()
	b.t.say("%s", clean(s))
}

func (b *bar) note(s string) {
	if b.t.live && !b.t.quiet {
		b.clear()
		fmt.Fprint(b.t.err, s)
		b.drawn = true
	}
}

// show draws the run's progress.
func (b *bar) show(r runs.Run) {
	s := fmt.Sprintf("round %d/%d  %s of samples counted  loss %.3f  %s", max(r.Rounds.Open, r.Rounds.Merged), r.Rounds.Planned,
		percent(r.Ledger.Counted, r.Ledger.Expected), r.Loss, phase(r))
	switch {
	case b.t.quiet:
	case !b.t.live:
		if time.Since(b.last) >= plainEvery || r.Phase.Ended() {
			b.last = time.Now()
			b.t.say("%s", s)
		}
	default:
		room := max(b.t.width-len(s)-6, 4)
		full := 0
		if r.Ledger.Expected > 0 {
			full = int(int64(room) * r.Ledger.Counted / r.Ledger.Expected)
		}
		b.clear()
		fmt.Fprint(b.t.err, domain.Clip("["+strings.Repeat("=", full)+strings.Repeat(" ", room-full)+"] "+s, b.t.width-1))
		b.drawn = true
	}
}

func (b *bar) done() { b.clear() }
