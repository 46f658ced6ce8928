package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// maxEventLine bounds one line of the stream.
const maxEventLine = 8 << 20

// sseEvent is one event of the stream as the command line shows it.
type sseEvent struct {
	Sequence string    `json:"sequence"`
	Subject  string    `json:"subject"`
	Type     string    `json:"type"`
	Time     time.Time `json:"time"`
	Actor    string    `json:"actor"`
	Summary  string    `json:"summary"`
}

func eventsCommand(a *app) *cobra.Command {
	var run, kind, since string
	var follow bool
	c := &cobra.Command{Use: "events", Short: "show what has happened, one line an event; --follow goes on", Args: args(),
		Long: "Shows the pool's events from the beginning, or from --since, in order. With --json each line is a CloudEvent.\n" +
			"With --follow it goes on until interrupted, and over restarts of the hub; --follow --since now leaves out what has happened before.",
		RunE: func(c *cobra.Command, _ []string) error {
			q := url.Values{}
			if run != "" {
				q.Set("run", run)
			}
			if kind != "" && !event.Kind(kind).Valid() {
				return domain.Invalid("read --kind", fmt.Sprintf("there is no kind %q", domain.Clip(kind, 40)), "give run, machine or pool")
			}
			if kind != "" {
				q.Set("kind", kind)
			}
			if err := parseSince(since, q); err != nil {
				return err
			}
			q.Set("follow", strconv.FormatBool(follow))
			cl, err := a.client()
			if err != nil {
				return err
			}
			return a.showEvents(c.Context(), cl, q, follow)
		}}
	f := c.Flags()
	f.StringVar(&run, "run", "", "only the events of this run")
	f.StringVar(&kind, "kind", "", "only events of runs, machines or the pool: run, machine, pool")
	f.StringVar(&since, "since", "", "begin at a sequence (1200), a time (2026-11-30T12:00:00Z), some time ago (10m), or now")
	f.BoolVarP(&follow, "follow", "f", false, "after what has happened go on with what happens; with --since now: from now on")
	return c
}

func parseSince(s string, q url.Values) error {
	if s == "" {
		return nil
	}
	if s == "now" {
		q.Set("after", "latest")
		return nil
	}
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		q.Set("after", strconv.FormatUint(max(n, 1)-1, 10))
		return nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		q.Set("since", time.Now().Add(-d).UTC().Format(time.RFC3339))
		return nil
	}
	if _, err := time.Parse(time.RFC3339, s); err != nil {
		return domain.Invalid("read --since", fmt.Sprintf("%q is no sequence, time or duration", domain.Clip(s, 40)), "give 1200, 2026-11-30T12:00:00Z, 10m, or now")
	}
	q.Set("since", s)
	return nil
}

// showEvents prints the stream. A hub that goes away is waited for when following: the place is kept.
func (a *app) showEvents(ctx context.Context, cl *client, q url.Values, follow bool) error {
	last, silent := "", time.Duration(0)
	for {
		before := last
		err := a.readEvents(ctx, cl, q, &last)
		if !follow || ctx.Err() != nil || err != nil && domain.KindOf(err) != domain.KindUnavailable {
			return err
		}
		if last != before {
			silent = 0
		}
		if silent += watchRetry; silent > watchLimit {
			return err
		}
		if err := pause(ctx, watchRetry); err != nil {
			return err
		}
	}
}

func (a *app) readEvents(ctx context.Context, cl *client, q url.Values, last *string) error {
	header := http.Header{"Accept": {"text/event-stream"}}
	if *last != "" {
		header.Set("Last-Event-ID", *last)
	}
	resp, err := cl.get(ctx, "/api/v1/events?"+q.Encode(), header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 64<<10), maxEventLine)
	id := ""
	for lines.Scan() {
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		switch string(name) {
		case "id":
			id = string(value)
		case "data":
			if err := a.showEvent(value); err != nil {
				return err
			}
		case "":
			if id != "" {
				*last = id
			}
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.EOF) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return domain.Unavailable("read events", "the stream from the hub was cut", "try again", err)
	}
	return nil
}

func (a *app) showEvent(data []byte) error {
	if a.json {
		a.print("%s", data)
		return nil
	}
	var e sseEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return domain.Unavailable("read events", "the hub sent something else", "use the hub's version of this program", err)
	}
	name := strings.TrimPrefix(e.Type, "tensorturn.")
	if i := strings.LastIndex(name, ".v"); i > 0 {
		name = name[:i]
	}
	a.print("%7s  %s  %-28s %-24s %s", strings.TrimLeft(e.Sequence, "0"), e.Time.Format("2006-01-02 15:04:05.000"), clean(e.Subject), name, clean(e.Summary))
	return nil
}
