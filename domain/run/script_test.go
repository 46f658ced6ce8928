package run_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// commands turns a line into the commands it stands for. Epoch, number, chunks and boundaries of agents' commands are
// the present ones unless the line says otherwise.
func (p *player) commands(a args) []run.Command {
	one := func(c run.Command) []run.Command { return []run.Command{c} }
	switch a.word {
	case "pause":
		return one(run.Pause{Reason: a.rest(0)})
	case "resume":
		return one(run.Resume{})
	case "cancel":
		return one(run.Cancel{Reason: a.rest(0)})
	case "grant":
		return one(run.GrantLease{Slot: a.slot(0), Unit: run.Unit(a.vals[1]), Round: a.int("round", p.round(a.vals[1])), Member: a.int("member", 0), Reason: a.rest(2)})
	case "release":
		return one(run.ReleaseLease{Slot: a.slot(0), Reason: a.rest(1)})
	case "expire":
		return one(run.ExpireLease{Slot: a.slot(0), Reason: a.rest(1), Silent: a.float("silent", 120)})
	case "open":
		return one(run.OpenRound{Expected: a.float("expected", 0)})
	case "assign":
		return one(run.AssignShard{Slot: a.slot(0), Chunks: chunks(a.t, a.vals[1]), Reason: a.rest(2)})
	case "return":
		return one(run.ReturnShard{Slot: a.slot(0), Reason: a.rest(1)})
	case "steal":
		return one(run.Steal{From: a.slot(0), To: a.slot(1), Count: number(a.t, a.vals[2]), Reason: a.rest(3)})
	case "copy": // copy SLOT FROM COUNT [reason…]
		return one(run.Copy{Slot: a.slot(0), From: a.slot(1), Count: number(a.t, a.vals[2]), Gain: a.float("gain", 0), Reason: a.rest(3)})
	case "adopt": // adopt SLOT late=EPOCH [number=N] chunks=… bounds=…
		c := run.AdoptDelta{Slot: a.slot(0), Late: domain.Epoch(a.int("late", 0)), Number: a.int("number", 1), Chunks: chunks(a.t, a.keys["chunks"])}
		for _, b := range chunks(a.t, a.keys["bounds"]) {
			c.Boundaries = append(c.Boundaries, int(b))
		}
		return one(c)
	case "claim":
		return one(run.Claim{Slot: a.slot(0), Count: number(a.t, a.vals[1])})
	case "request":
		return one(run.RequestContribution{Slot: a.slot(0), Reason: a.rest(1)})
	case "extend":
		return one(run.ExtendRound{Round: a.int("round", p.round("train"))})
	case "close":
		return one(run.CloseRound{Round: a.int("round", p.round("train"))})
	}
	return p.reports(a)
}

// reports turns the lines of agents and workers into commands.
func (p *player) reports(a args) []run.Command {
	one := func(c run.Command) []run.Command { return []run.Command{c} }
	switch a.word {
	case "initialise":
		c := p.world.initialise(a.slot(0))
		c.Epoch = p.under(a)
		return one(c)
	case "trained":
		var cs []run.Command
		for _, c := range chunks(a.t, a.vals[1]) {
			r := p.world.trained(a.slot(0), c)
			r.Epoch, r.Number = p.under(a), a.int("number", r.Number)
			r.Seconds, r.Loss = a.float("seconds", r.Seconds), a.float("loss", r.Loss)
			cs = append(cs, r)
		}
		return cs
	case "offer":
		return one(p.offered(a))
	case "accept":
		o := p.offered(a)
		o.Inspection = &run.Inspection{Norm: a.float("norm", 1)}
		return one(o)
	case "inspect": // inspect SLOT FINDING [note…]
		o := p.offered(a)
		o.Inspection = &run.Inspection{Why: run.Refusal(a.vals[1]), Note: a.rest(2)}
		return one(o)
	case "revoke":
		return one(run.RevokeContribution{Slot: a.slot(0), Number: number(a.t, a.vals[1]), Reason: a.rest(2)})
	case "merge":
		c := p.world.merge()
		c.Round = a.int("round", c.Round)
		return one(c)
	case "evaluation":
		c := run.RecordEvaluation{Slot: a.slot(0), Epoch: p.under(a), Samples: 25, Accuracy: a.float("accuracy", 0.9), Loss: a.float("loss", 0.3)}
		if a.keys["r2"] != "" {
			r2, mae := a.float("r2", 0), a.float("mae", 0)
			c.R2, c.MAE = &r2, &mae
		}
		return one(c)
	case "fail":
		return one(run.FailTask{Slot: a.slot(0), Epoch: p.under(a), Error: a.rest(1)})
	}
	return p.members(a)
}

// round is the round that a command means when the line names none.
func (p *player) round(unit string) int {
	switch {
	case unit == "evaluate" && p.state.Evaluation != nil:
		return p.state.Evaluation.Round
	case unit == "train" && p.state.Open != nil:
		return p.state.Open.Number
	}
	return 0
}

func (p *player) under(a args) domain.Epoch {
	return domain.Epoch(a.int("epoch", int(p.epoch(a.slot(0)))))
}

func (p *player) offered(a args) run.OfferContribution {
	o := p.world.offer(a.slot(0))
	o.Epoch, o.Number = p.under(a), a.int("number", o.Number)
	if v := a.keys["chunks"]; v != "" {
		o.Chunks = chunks(a.t, v)
	}
	if v, ok := a.keys["bounds"]; ok {
		o.Boundaries = nil
		for _, b := range chunks(a.t, v) {
			o.Boundaries = append(o.Boundaries, int(b))
		}
	}
	if v := a.keys["blob"]; v != "" {
		o.Blob = digest(v)
	}
	return o
}

// show draws the state: who holds what.
func show(s *run.State) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s", s.Phase)
	if s.Paused != "" {
		fmt.Fprintf(&b, ", paused: %s", s.Paused)
	}
	if s.Open != nil {
		fmt.Fprintf(&b, ", %s", s.Open)
		if s.Open.Stalled {
			b.WriteString(", stalled")
		}
		if s.Open.Closed {
			b.WriteString(", waiting for its merge")
		}
		fmt.Fprintf(&b, "\n  pool %v", s.Open.Pool)
	}
	if s.Ensemble != nil {
		return b.String() + showMembers(s)
	}
	if s.Tally != nil {
		return b.String() + showTally(s)
	}
	fmt.Fprintf(&b, "\n  carried %v\n", s.Carried)
	for _, slot := range s.Slots() {
		l := s.LeaseOf(slot)
		fmt.Fprintf(&b, "  %s %s under %d: shard %v claimed %v trained %v", slot, l.Unit, l.Epoch, s.ShardOf(slot), l.Claimed, l.Trained)
		if l.Contribute != "" {
			fmt.Fprintf(&b, " contribute (%s)", l.Contribute)
		}
		if l.Cut != nil {
			fmt.Fprintf(&b, " cut to %d", *l.Cut)
		}
		if l.Sealed {
			b.WriteString(" sealed")
		}
		b.WriteString("\n")
	}
	for _, m := range slices.Sorted(maps.Keys(s.Refusals)) {
		fmt.Fprintf(&b, "  machine %s: %d refused in a row\n", m, s.Refusals[m])
	}
	if e := s.Evaluation; e != nil {
		fmt.Fprintf(&b, "  evaluation of round %d wanted, final %v, %d failures\n", e.Round, e.Final, e.Failures)
	}
	return b.String()
}

// showTally draws what an ended run keeps.
func showTally(s *run.State) string {
	var b strings.Builder
	if s.Tally.Round > 0 {
		fmt.Fprintf(&b, ", round %d was open, accepted: %d", s.Tally.Round, s.Tally.Deltas)
	}
	b.WriteString("\n ")
	for status, n := range s.Counts() {
		if n > 0 {
			fmt.Fprintf(&b, " %d %s", n, run.ChunkStatus(status))
		}
	}
	return b.String() + "\n"
}
