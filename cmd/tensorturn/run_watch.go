package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
)

func runWatch(a *app) *cobra.Command {
	c := &cobra.Command{Use: "watch RUN", Short: "follow a run until it ends: a progress bar on a terminal, plain lines elsewhere", Args: args("RUN"),
		Long: "Follows a run until it ends. Above the progress stand merges, measurements and trouble; --verbose adds everything else.\n" +
			"With --json the run is printed once, at its end; with --json --stream once for each update, one line each, the end last.",
		RunE: func(c *cobra.Command, got []string) error {
			if a.stream && !a.json {
				return domain.Invalid("watch run", "--stream says how JSON is printed", "give --json --stream")
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			id := domain.RunID(got[0])
			if r, err := cl.run(c.Context(), got[0]); err == nil {
				id = r.ID // a name may become another run's, too
			} else if domain.KindOf(err) != domain.KindUnavailable {
				return err
			}
			return a.watch(c.Context(), cl, id)
		}}
	watchFlags(a, c)
	c.Flags().BoolVar(&a.stream, "stream", false, "with --json: one line for each update")
	return c
}

func watchFlags(a *app, c *cobra.Command) {
	c.Flags().BoolVarP(&a.verbose, "verbose", "v", false, "print every event while watching")
}

// watch follows the run to its end. A hub that goes away for a while is waited for: the run goes on without the screen.
func (a *app) watch(ctx context.Context, cl *client, id domain.RunID) error {
	r, err := a.follow(ctx, cl, id)
	if err != nil {
		return err
	}
	if a.json && !a.stream {
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
	a.say("take the model out with: tensorturn model export %s DIR", id)
	if r.Members != nil {
		a.say("compute the vote again with: tensorturn run replay %s --verify", id)
	} else {
		a.say("compute every merge again with: tensorturn run replay %s --verify", id)
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
	after, first, silent, pool := uint64(0), uint64(0), time.Duration(0), watchedPool{}
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
		if first == 0 {
			first = r.LastSeq
		}
		for _, l := range lines.Lines {
			if a.verbose || loudFacts[l.Name] {
				bar.line(fmt.Sprintf("%s  %s", l.Time.Format("15:04:05"), l.Text))
			}
		}
		if after >= first { // what holds now comes after what was before
			if news := pool.look(ctx, a, cl, r); news != "" {
				bar.line(fmt.Sprintf("%s  %s", time.Now().Format("15:04:05"), news))
			}
		}
		bar.show(r)
		if a.stream {
			if err := a.line(r); err != nil {
				return r, err
			}
		}
		if r.Phase.Ended() {
			return r, nil
		}
	}
}

// loudFacts are printed above the bar: what moved the model, and trouble. The bar shows the rest as movement.
var loudFacts = map[string]bool{
	run.NameRoundMerged: true, run.NameEvaluated: true, run.NameCompleted: true,
	run.NamePaused: true, run.NameResumed: true, run.NameCancelled: true, run.NameFailed: true,
	run.NameLeaseExpired: true, run.NameTaskFailed: true, run.NameEvaluationFailed: true,
	run.NameMemberPredicted: true, run.NameMemberRequeued: true, run.NameMemberDropped: true, run.NameMemberMuted: true, run.NameVoted: true,
	run.NameContributionRefused: true, run.NameContributionRevoked: true, run.NameRoundExtended: true,
}

// poolEvery spaces the looks at the machines while a run is watched.
const poolEvery = 2 * time.Second

// watchedPool asks now and then what the run waits for.
type watchedPool struct {
	asked time.Time
	told  string
}

// look gives what the run waits for when that has changed. A pool that cannot be read is no news.
func (p *watchedPool) look(ctx context.Context, a *app, cl *client, r runs.Run) string {
	if r.Phase.Ended() || time.Since(p.asked) < poolEvery {
		return ""
	}
	p.asked = time.Now()
	ms, err := cl.machines(ctx)
	if err != nil {
		return ""
	}
	now := a.waitsWith(ctx, cl, r, ms)
	news := now != p.told
	if p.told = now; news && now == "" {
		return "the run goes on"
	} else if news {
		return now
	}
	return ""
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
