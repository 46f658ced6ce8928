package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"tensorturn/broker/health"
	"tensorturn/broker/hub"
	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
	"tensorturn/projections/fleet"
	"tensorturn/projections/runs"
)

// maxTroubles bounds how many machines one line names.
const maxTroubles = 4

// waits says in one line what keeps the run from going on, or from going on as fast as its owner expects; it is empty
// when there is nothing. It names no durations, so that it changes only when something happened. unfit is why no machine can
// take the run, empty where one can or nobody was asked.
func waits(r runs.Run, ms []fleet.Machine, unfit string) string {
	switch {
	case r.Phase.Ended():
		return ""
	case r.Paused != "":
		return fmt.Sprintf("paused (%s): resume with: tensorturn run resume %s", r.Paused, r.ID)
	}
	var parts []string
	if s := poolTrouble(ms); s != "" {
		parts = append(parts, s)
	}
	work := slices.ContainsFunc(ms, usable)
	switch {
	case r.Phase == run.PhaseVoting:
		parts = append(parts, "waiting for the vote")
	case r.Phase == run.PhaseEvaluating:
		parts = append(parts, "waiting for evaluation")
	case unfit != "":
		parts = append(parts, unfit)
	case r.Rounds.Stalled:
		parts = append(parts, fmt.Sprintf("round %d is stalled: %d of %s counted at its deadline, which was doubled", r.Rounds.Open, r.Rounds.Counted, count(r.Rounds.Chunks, "chunk")))
	case work && elsewhere(r, ms):
		parts = append(parts, "every slot works for another run")
	case work && r.Phase == run.PhaseSubmitted:
		parts = append(parts, "waiting for its first weights")
	}
	return strings.Join(parts, "; ")
}

// waitsWith is waits, with what the hub says about its store before it. A hub that cannot be asked is no news here.
func (a *app) waitsWith(ctx context.Context, cl *client, r runs.Run, ms []fleet.Machine) string {
	if r.Phase.Ended() {
		return waits(r, ms, "")
	}
	said := waits(r, ms, cl.unfit(ctx, r, ms))
	s, err := cl.status(ctx)
	if err != nil {
		return said
	}
	return strings.Trim(storeTrouble(s.State)+"; "+said, "; ")
}

// unfit asks the hub why no machine takes part in a run that no slot works for. A hub that cannot be asked is no news here.
func (c *client) unfit(ctx context.Context, r runs.Run, ms []fleet.Machine) string {
	if r.Paused != "" || slices.ContainsFunc(ms, func(m fleet.Machine) bool {
		return slices.ContainsFunc(m.Slots, func(s fleet.Slot) bool { return s.Run == r.ID })
	}) {
		return ""
	}
	var e hub.Explanation
	if err := c.call(ctx, http.MethodGet, "/api/v1/runs/"+url.PathEscape(string(r.ID))+"/explain", nil, &e); err != nil {
		return ""
	}
	return nobodyFits(e, ms)
}

// nobodyFits says why each machine that could work cannot take the run; empty where one takes part, or none could work.
func nobodyFits(e hub.Explanation, ms []fleet.Machine) string {
	if e.Slots > 0 {
		return ""
	}
	var whys []string
	for _, m := range ms {
		i := slices.IndexFunc(e.Machines, func(p hub.MachinePart) bool { return p.Machine == m.ID })
		if usable(m) && i >= 0 && len(e.Machines[i].Slots) > 0 {
			whys = append(whys, nameOf(m, ms)+": "+e.Machines[i].Slots[0].Reason)
		}
	}
	if len(whys) == 0 {
		return ""
	}
	if more := len(whys) - maxTroubles; more > 0 {
		whys = append(whys[:maxTroubles], fmt.Sprintf("and %d more", more))
	}
	return "no machine can take it now: " + strings.Join(whys, "; ")
}

// storeTrouble says what a store without room means for a run; empty when there is room.
func storeTrouble(s health.State) string {
	switch s {
	case health.Low:
		return "the hub's store is nearly full; this run goes on (tensorturn hub status)"
	case health.Full:
		return "the hub's store is full; make room on its disk: what is trained waits on the machines (tensorturn hub status)"
	case health.ReadOnly:
		return "the hub is read-only: its log is not to be trusted (tensorturn log verify)"
	}
	return ""
}

func usable(m fleet.Machine) bool {
	return m.Standing == machine.Online && !m.Draining && m.Quarantined == ""
}

// poolTrouble names the machines that do not work; empty when all do.
func poolTrouble(ms []fleet.Machine) string {
	members, online, working := 0, 0, 0
	var troubles []string
	for _, m := range ms {
		if m.Standing == machine.Revoked {
			continue
		}
		members++
		if m.Standing == machine.Online {
			online++
		}
		if usable(m) {
			working++
		} else {
			troubles = append(troubles, trouble(m, nameOf(m, ms)))
		}
	}
	switch {
	case members == 0:
		return "no machine has joined: tensorturn token create"
	case online == 0:
		return fmt.Sprintf("no machine is online (the pool has %d)", members)
	case working == members:
		return ""
	}
	if more := len(troubles) - maxTroubles; more > 0 {
		troubles = append(troubles[:maxTroubles], fmt.Sprintf("and %d more", more))
	}
	verb := "work"
	if working == 1 {
		verb = "works"
	}
	return fmt.Sprintf("%d of %d machines %s; %s", working, members, verb, strings.Join(troubles, "; "))
}

// trouble says why the machine does not work and, where a person must do something, what.
func trouble(m fleet.Machine, name string) string {
	switch {
	case m.Quarantined != "":
		return fmt.Sprintf("%s quarantined (%s): tensorturn machine resume %s", name, m.Quarantined, name)
	case m.Stopped:
		return name + "'s agent was stopped"
	case m.Standing == machine.Drained:
		return name + " has left in good order"
	case m.Draining:
		return fmt.Sprintf("%s is draining", name)
	case m.Standing == machine.Enrolled:
		return name + " was never online"
	}
	return fmt.Sprintf("%s is %s", name, m.Standing)
}

// nameOf is the machine's name, or its id where another one that is not revoked has the same name: what a command can be given.
func nameOf(m fleet.Machine, ms []fleet.Machine) string {
	if hasTwin(m, ms) {
		return string(m.ID)
	}
	return m.Name
}

// hasTwin reports whether another machine that is not revoked has the machine's name.
func hasTwin(m fleet.Machine, ms []fleet.Machine) bool {
	return slices.ContainsFunc(ms, func(o fleet.Machine) bool {
		return o.ID != m.ID && o.Name == m.Name && o.Standing != machine.Revoked
	})
}

// called is what people call a machine in a list: its name, with its id where another one of the list has that name.
func called(name string, id domain.MachineID, twin bool) string {
	switch {
	case name == "":
		return string(id)
	case twin:
		return fmt.Sprintf("%s (%s)", name, id)
	}
	return name
}

// elsewhere reports whether every slot that could work holds work of other runs.
func elsewhere(r runs.Run, ms []fleet.Machine) bool {
	for _, m := range ms {
		if !usable(m) {
			continue
		}
		for _, s := range m.Slots {
			if s.Run == "" || s.Run == r.ID {
				return false
			}
		}
	}
	return true
}

// tinyChunk is the time below which reporting a chunk costs more than training it is worth.
const tinyChunk = 0.1 // seconds

// chunkHint speaks of chunks that are too short, once a speed is known; empty when they are not.
func chunkHint(r runs.Run) string {
	if r.Members != nil {
		return "" // nobody waits for a chunk of a member
	}
	chunks, seconds := 0, 0.0
	for _, s := range r.Slots {
		chunks, seconds = chunks+s.Chunks, seconds+s.Seconds
	}
	if chunks == 0 || seconds <= 0 || seconds/float64(chunks) >= tinyChunk {
		return ""
	}
	return fmt.Sprintf("chunks last %.2g ms: raise chunk for less overhead", 1000*seconds/float64(chunks))
}
