package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
)

// Pace and sizes of reading logs.
const (
	logEvery = time.Second
	logTail  = 16 << 10 // bytes from the end, where nothing else is asked for
)

type logOptions struct {
	machine         string
	member, attempt int
	follow, all     bool
}

func runLogs(a *app) *cobra.Command {
	var o logOptions
	c := &cobra.Command{Use: "logs RUN", Short: "show what a run's script printed on its machines", Args: args("RUN"),
		Long: "Asks the machines of a run for what its script printed, in the newest attempt or the one named. Logs stay on the machines, which keep\n" +
			"up to 64 MiB of an attempt and the newest 32 attempts; what looks like a secret is replaced there. The last lines of\n" +
			"failed attempts are in the hub's log too, and are shown for machines that do not answer.",
		RunE: func(c *cobra.Command, got []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			r, err := cl.run(c.Context(), got[0])
			if err != nil {
				return err
			}
			if r.Spec.Trainer != run.Process && !a.json {
				a.say("%s is trained by the built-in trainer, which prints nothing: see tensorturn run show %s, or tensorturn events --run %s", r.ID, r.ID, r.ID)
				return nil
			}
			return (&logReader{app: a, client: cl, run: r, opts: o, at: map[domain.MachineID]position{}}).read(c.Context())
		}}
	f := c.Flags()
	f.StringVar(&o.machine, "machine", "", "one machine, by id or name")
	f.IntVar(&o.member, "member", -1, "one member of an ensemble (-1: any)")
	f.IntVar(&o.attempt, "attempt", -1, "one attempt of a machine (-1: the newest)")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on until the run ends")
	f.BoolVar(&o.all, "all", false, "from the beginning of what the machines keep, not only the last 16 KiB")
	return c
}

// position is how far the log of a machine has been read.
type position struct {
	attempt int
	next    int64
	half    string // a line whose end has not come yet
}

type logReader struct {
	app    *app
	client *client
	run    runs.Run
	opts   logOptions
	only   domain.MachineID // the machine that was named, "" for all
	at     map[domain.MachineID]position
}

// read shows what there is, and goes on as long as it is asked to.
func (l *logReader) read(ctx context.Context) error {
	logs, err := l.ask(ctx, l.opts.machine, l.opts.attempt, l.first())
	if err != nil {
		return err
	}
	if l.app.json && !l.opts.follow {
		return l.app.object(logs)
	}
	for _, m := range logs {
		if l.opts.machine != "" {
			l.only = m.Machine
		}
		if m.Problem != "" {
			l.app.say("%s: %s", m.Name, m.Problem)
			l.lastWords(m.Machine)
			continue
		}
		if err := l.show(m); err != nil {
			return err
		}
	}
	if len(logs) == 0 {
		l.app.say("no machine has worked for %s yet", l.run.ID)
	}
	for {
		more, err := l.catchUp(ctx)
		if err != nil {
			return err
		}
		if more {
			continue
		}
		if !l.opts.follow || l.run.Phase.Ended() {
			return l.flush()
		}
		if err := pause(ctx, logEvery); err != nil {
			return err
		}
		if l.run, err = l.client.run(ctx, string(l.run.ID)); err != nil {
			return err
		}
	}
}

func (l *logReader) first() int64 {
	if l.opts.all {
		return 0
	}
	return -logTail
}

// catchUp reads on where the machines' logs go on, and reports whether there was more of any.
func (l *logReader) catchUp(ctx context.Context) (more bool, err error) {
	for _, id := range l.machines() {
		at, begun := l.at[id]
		attempt, from := l.opts.attempt, l.first()
		if begun {
			attempt, from = at.attempt, at.next
		} else if !l.opts.follow {
			continue // it had nothing to say a moment ago
		}
		logs, err := l.ask(ctx, string(id), attempt, from)
		if err != nil {
			return false, err
		}
		for _, m := range logs {
			if m.Problem != "" {
				continue
			}
			newer := l.opts.follow && l.opts.attempt < 0 && begun && m.Next == m.Bytes && !m.Open && later(m, at.attempt)
			if newer && m.Text == "" {
				l.at[m.Machine] = position{attempt: nextAttempt(m, at.attempt)}
				more = true
				continue
			}
			more = more || m.Text != ""
			if err := l.show(m); err != nil {
				return false, err
			}
		}
	}
	return more, nil
}

// machines gives the one that was named, or those of the run.
func (l *logReader) machines() (ids []domain.MachineID) {
	if l.only != "" {
		return []domain.MachineID{l.only}
	}
	seen := map[domain.MachineID]bool{}
	for _, s := range l.run.Slots {
		if id := s.Slot.Machine(); !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}

// later reports whether the machine has a newer attempt.
func later(m gateway.RunLog, attempt int) bool { return nextAttempt(m, attempt) > attempt }

func nextAttempt(m gateway.RunLog, attempt int) int {
	next := attempt
	for _, other := range m.Attempts {
		if other.Attempt > attempt && (next == attempt || other.Attempt < next) {
			next = other.Attempt
		}
	}
	return next
}

func (l *logReader) ask(ctx context.Context, machine string, attempt int, from int64) ([]gateway.RunLog, error) {
	q := url.Values{"attempt": {strconv.Itoa(attempt)}, "member": {strconv.Itoa(l.opts.member)}, "from": {strconv.FormatInt(from, 10)}}
	if machine != "" {
		q.Set("machine", machine)
	}
	var out struct {
		Logs []gateway.RunLog `json:"logs"`
	}
	err := l.client.call(ctx, http.MethodGet, "/api/v1/runs/"+url.PathEscape(string(l.run.ID))+"/logs?"+q.Encode(), nil, &out)
	return out.Logs, err
}

// show prints whole lines; the half of one waits for its end.
func (l *logReader) show(m gateway.RunLog) error {
	at, begun := l.at[m.Machine]
	if !begun || at.attempt != m.Attempt {
		of := ""
		if m.Member >= 0 {
			of = fmt.Sprintf(", member %d", m.Member)
		}
		if !l.app.json {
			l.app.say("%s, attempt %d%s:", m.Name, m.Attempt, of)
		}
		at = position{attempt: m.Attempt}
	} else if m.From > at.next {
		l.app.say("%s: %d bytes are not kept any more", m.Name, m.From-at.next)
	}
	if l.app.json {
		at.next = m.Next
		l.at[m.Machine] = at
		if m.Text == "" {
			return nil
		}
		return l.app.line(m)
	}
	text := at.half + m.Text
	end := strings.LastIndexByte(text, '\n') + 1
	for line := range strings.Lines(text[:end]) {
		l.print(m.Name, line)
	}
	at.next, at.half = m.Next, text[end:]
	l.at[m.Machine] = at
	return nil
}

// print writes a line without what would steer a terminal; its machine stands before it where there are several.
func (l *logReader) print(name, line string) {
	line = strings.TrimRight(line, "\r\n")
	if at := strings.LastIndexByte(line, '\r'); at >= 0 {
		line = line[at+1:] // a progress bar: its newest state
	}
	line = strings.Map(func(r rune) rune {
		if r != '\t' && unicode.IsControl(r) {
			return -1
		}
		return r
	}, line)
	if l.opts.machine == "" && len(l.run.Slots) > 1 {
		line = name + ": " + line
	}
	l.app.print("%s", line)
}

// flush prints what has no line end.
func (l *logReader) flush() error {
	for m, at := range l.at {
		if at.half != "" {
			l.print(string(m), at.half)
		}
	}
	return nil
}

// lastWords prints what the hub's log holds of a machine that does not answer.
func (l *logReader) lastWords(m domain.MachineID) {
	for i := len(l.run.Failures) - 1; i >= 0; i-- {
		if f := l.run.Failures[i]; f.Slot.Machine() == m && len(f.Tail) > 0 {
			l.app.say("the last lines before its failure at %s (%s):", f.Time.Format(time.RFC3339), f.Error)
			for _, line := range f.Tail {
				l.print(string(m), line)
			}
			return
		}
	}
}
