package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/projections/fleet"
	"tensorturn/projections/runs"
)

// Limits of one question for logs.
const (
	logWait     = 10 * time.Second // for a machine's answer: two syncs over a bad link
	maxLogAsked = 16               // machines asked at once; of a run with more, name one
)

// RunLog is a piece of what the program of a run printed on one machine, in its newest attempt or the one asked for.
type RunLog struct {
	Machine  domain.MachineID `json:"machine"`
	Name     string           `json:"name" doc:"the machine's name"`
	Attempt  int              `json:"attempt" doc:"0, 1, ... for each start of a program for this run on this machine; -1 when there is no log"`
	Member   int              `json:"member" doc:"of an ensemble; -1 in a fused run"`
	From     int64            `json:"from" doc:"position of the first byte of text in the attempt's log"`
	Next     int64            `json:"next" doc:"position behind text: ask from here for what comes next"`
	Bytes    int64            `json:"bytes" doc:"printed in all so far"`
	Open     bool             `json:"open" doc:"the program still runs"`
	Text     string           `json:"text" doc:"what was printed, with secrets and bytes that are no text replaced"`
	Attempts []LogAttempt     `json:"attempts" doc:"every log of the run that this machine keeps, oldest first"`
	Problem  string           `json:"problem,omitempty" doc:"why there is nothing"`
}

// LogAttempt is one log that a machine keeps.
type LogAttempt struct {
	Attempt int       `json:"attempt"`
	Member  int       `json:"member"`
	Bytes   int64     `json:"bytes"`
	Open    bool      `json:"open"`
	Changed time.Time `json:"changed"`
}

type (
	logsIn struct {
		RunPath
		Machine string `query:"machine" maxLength:"80" doc:"one machine, by id or name; every machine of the run when absent"`
		Member  int    `query:"member" minimum:"-1" default:"-1" doc:"of an ensemble; any when -1"`
		Attempt int    `query:"attempt" minimum:"-1" default:"-1" doc:"the newest when -1"`
		From    int64  `query:"from" default:"-16384" doc:"position of the first byte; negative: from the end"`
		Bytes   int    `query:"bytes" minimum:"1" maximum:"32768" default:"32768" doc:"at most"`
	}
	logsBody struct {
		Body struct {
			Logs []RunLog `json:"logs"`
		}
	}
)

func (g *Gateway) registerLogs(api huma.API) {
	huma.Register(api, op("run-logs", http.MethodGet, "/api/v1/runs/{id}/logs", "Ask the machines of a run for what its program printed"), g.runLogs)
}

func (g *Gateway) runLogs(ctx context.Context, in *logsIn) (*logsBody, error) {
	r, err := g.findRun("show", in.ID)
	if err != nil {
		return nil, g.problemOf(err)
	}
	ms, err := g.machinesOf(r, in.Machine)
	if err != nil {
		return nil, g.problemOf(err)
	}
	ctx, cancel := context.WithTimeout(ctx, logWait)
	defer cancel()
	out := &logsBody{}
	out.Body.Logs = make([]RunLog, len(ms))
	var wg sync.WaitGroup
	for i, m := range ms {
		wg.Go(func() {
			out.Body.Logs[i] = g.askLog(ctx, m, wire.LogWish{Run: r.ID, Attempt: in.Attempt, Member: in.Member, From: in.From, Bytes: in.Bytes})
		})
	}
	wg.Wait()
	return out, nil
}

// machinesOf gives the machines that work or worked for the run, in the order of its slots, or the one that is named.
func (g *Gateway) machinesOf(r runs.Run, key string) (ms []fleet.Machine, err error) {
	if key != "" {
		m, err := g.findMachine("ask", key)
		return []fleet.Machine{m}, err
	}
	g.cfg.Views.Engine.Read(func(uint64) {
		seen := map[domain.MachineID]bool{}
		for _, s := range r.Slots {
			id := s.Slot.Machine()
			if m, ok := g.cfg.Views.Fleet.Find(string(id)); ok && !seen[id] {
				seen[id] = true
				ms = append(ms, m)
			}
		}
	})
	if len(ms) > maxLogAsked {
		return nil, domain.Invalid("read logs", fmt.Sprintf("%d machines work for the run", len(ms)), "name one with machine")
	}
	return ms, nil
}

// askLog asks one machine. What goes wrong is told in its row: others may answer.
func (g *Gateway) askLog(ctx context.Context, m fleet.Machine, w wire.LogWish) RunLog {
	l := RunLog{Machine: m.ID, Name: m.Name, Attempt: -1, Member: -1, Attempts: []LogAttempt{}}
	if m.Standing != machine.Online && m.Standing != machine.Suspect {
		l.Problem = fmt.Sprintf("the machine is %s; its logs are on its own disk", m.Standing)
		return l
	}
	p, err := g.cfg.Agents.ReadLog(ctx, m.ID, w)
	if err != nil {
		l.Problem = err.Error()
		return l
	}
	for _, f := range p.Others {
		l.Attempts = append(l.Attempts, LogAttempt{Attempt: f.Attempt, Member: f.Member, Bytes: f.Bytes, Open: f.Open, Changed: time.Unix(f.Changed, 0).UTC()})
	}
	l.Problem = p.Problem
	if !p.Found {
		l.Problem = "no program of this run has started there, or its log is gone"
		return l
	}
	l.Attempt, l.Member, l.Bytes, l.Open = p.Log.Attempt, p.Log.Member, p.Log.Bytes, p.Log.Open
	l.From, l.Next, l.Text = p.From, p.From+int64(len(p.Data)), strings.ToValidUTF8(string(p.Data), "\uFFFD")
	return l
}
