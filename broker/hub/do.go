package hub

import (
	"fmt"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

// do decides a command of the API: all its targets or none, in one group.
func (b *batch) do(i int, d Do) {
	if b.c.fold.causes.has(d.Command) {
		b.refuse(i, nil) // decided before: a repetition is answered as the first one was
		return
	}
	if b.c.fold.causes.taken(d.Command) {
		b.refuse(i, domain.Conflict("repeat a request", "its idempotency key was used for another one", "use a fresh key for each request"))
		return
	}
	decided, err := b.decideAll(d)
	if err != nil {
		b.refuse(i, err)
		return
	}
	b.begin(d.Command, d.Actor, string(d.Command))
	for k, t := range d.Targets {
		if t.Kind != event.KindMachine {
			b.emitAll(t.Kind, t.ID, decided[k])
		}
	}
	for k, t := range d.Targets { // last, because what follows from a machine's facts may open another part
		if t.Kind == event.KindMachine {
			b.emitMachine(domain.MachineID(t.ID), decided[k])
		}
	}
	b.refuse(i, nil)
}

// decideAll decides every target against the present state without applying anything. Targets must be different
// aggregates, so that no decision depends on another.
func (b *batch) decideAll(d Do) ([][]event.Data, error) {
	op := "command " + domain.Clip(string(d.Command), domain.MaxIDLength)
	if !domain.ValidID(string(d.Command)) || len(d.Command) > maxCommandID || strings.HasPrefix(string(d.Command), ownPrefix) {
		return nil, domain.Invalid(op, "the command has no valid id", fmt.Sprintf("use a fresh id of at most %d characters that does not begin with %s", maxCommandID, ownPrefix))
	}
	if len(d.Targets) < 1 || len(d.Targets) > MaxTargets {
		return nil, domain.Invalid(op, fmt.Sprintf("it has %d targets, 1 to %d are allowed", len(d.Targets), MaxTargets), "")
	}
	out := make([][]event.Data, len(d.Targets))
	total := 0
	for k, t := range d.Targets {
		for _, u := range d.Targets[:k] {
			if t.Kind == u.Kind && t.ID == u.ID {
				return nil, domain.Invalid(op, fmt.Sprintf("%s %s is named twice", t.Kind, t.ID), "send one command after the other")
			}
		}
		ds, err := b.decide(t)
		if err != nil {
			return nil, err
		}
		out[k] = ds
		total += len(ds)
	}
	if total > domain.MaxBatchEvents {
		return nil, domain.Invalid(op, fmt.Sprintf("it would take %d events, at most %d are written as one", total, domain.MaxBatchEvents), "send it in parts")
	}
	return out, nil
}

// decide asks the aggregate, after the rules that no single aggregate can see.
func (b *batch) decide(t Target) ([]event.Data, error) {
	f := b.c.fold
	switch t.Kind {
	case event.KindRun:
		cmd, ok := t.Command.(run.Command)
		if !ok {
			return nil, domain.Invalid("decide", fmt.Sprintf("%T is not a command of a run", t.Command), "")
		}
		if _, err := domain.ParseID[domain.RunID]("run", t.ID); err != nil {
			return nil, err
		}
		if _, submit := cmd.(run.Submit); submit && f.runs[domain.RunID(t.ID)] == nil && len(f.live) >= MaxLiveRuns {
			return nil, domain.Conflict("submit run "+t.ID, fmt.Sprintf("%d runs have not ended, at most %d may", len(f.live), MaxLiveRuns),
				"cancel one: tensorturn run cancel RUN")
		}
		if sub, submit := cmd.(run.Submit); submit && f.runs[domain.RunID(t.ID)] == nil && !sub.Anyway {
			if err := b.c.fits(t.ID, &sub.Spec, &sub.Data); err != nil {
				return nil, err
			}
		}
		if _, submit := cmd.(run.Submit); !submit && f.runs[domain.RunID(t.ID)] == nil {
			return nil, domain.NotFound("run "+t.ID, "there is no such run", "list them: tensorturn run list")
		}
		return b.c.cfg.Decide(f.runs[domain.RunID(t.ID)], cmd)
	case event.KindMachine:
		cmd, ok := t.Command.(machine.Command)
		if !ok {
			return nil, domain.Invalid("decide", fmt.Sprintf("%T is not a command of a machine", t.Command), "")
		}
		return b.decideMachine(domain.MachineID(t.ID), cmd)
	case event.KindPool:
		if c, ok := t.Command.(pool.DeployModel); ok {
			filled, err := f.deployment(c)
			if err != nil {
				return nil, err
			}
			t.Command = filled
		}
		return decidePool(f.pool, t.Command)
	}
	return nil, domain.Invalid("decide", fmt.Sprintf("%q is no kind of aggregate", t.Kind), "")
}

// decideMachine refuses an enrolment that the pool has no room for or whose account belongs to another machine: the
// account is who a request comes from.
func (b *batch) decideMachine(id domain.MachineID, cmd machine.Command) ([]event.Data, error) {
	f := b.c.fold
	if c, ok := cmd.(machine.Enrol); ok && f.machines[id] == nil {
		op := "enrol machine " + domain.Clip(string(id), domain.MaxIDLength)
		if c.ID != id {
			return nil, domain.Invalid(op, "the command names another machine", "")
		}
		if n := f.members(); n >= domain.MaxMachines {
			return nil, domain.Conflict(op, fmt.Sprintf("the pool has %d machines, which is its limit", n), "revoke one: tensorturn machine revoke MACHINE")
		}
		if other, taken := f.accounts[c.Account]; taken {
			return nil, domain.Conflict(op, fmt.Sprintf("its account belongs to machine %s", other), "make a new account for it")
		}
	}
	return machine.Decide(f.machines[id], cmd)
}
