package hub

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/forecast"
	"tensorturn/domain/machine"
	"tensorturn/domain/match"
	"tensorturn/domain/merge"
	"tensorturn/domain/plan"
	"tensorturn/domain/run"
)

// Wish asks what would become of a run, or what becomes of one. It changes nothing.
type Wish struct {
	Run  domain.RunID // of the log; or
	Spec *run.Spec    // resolved, of a run that is only thought of
	Data run.Dataset

	Params int64         // to reckon with where the run has no weights yet, 0 for what its spec tells
	Hub    forecast.Link // the hub's own links, where its owner knows them
}

// Explanation says for every machine whether it takes part in a run and why, and what a round costs.
type Explanation struct {
	Run      domain.RunID  `json:"run,omitempty"`
	Slots    int           `json:"slots" doc:"that take part"`
	Machines []MachinePart `json:"machines"`
	Params   int64         `json:"params" doc:"of the model; 0 when not known before its first weights"`
	Take     run.Memory    `json:"take" doc:"what one slot takes, as a dry step measured it; or at least, of a built-in model"`
	Measured bool          `json:"measured" doc:"a dry step measured it"`
	Round    forecast.Cost `json:"round" doc:"what a round costs; of a fused run"`
	HubLink  forecast.Link `json:"hubLink" doc:"with which the hub was reckoned"`
	Notes    []string      `json:"notes,omitempty" doc:"what its owner may not have meant"`
	HubGuess bool          `json:"hubGuess" doc:"the hub's links were not told: they are at least as fast as the fastest that a machine has measured"`
}

// MachinePart is one machine's part in a run.
type MachinePart struct {
	Machine domain.MachineID `json:"machine"`
	Name    string           `json:"name"`
	Slots   []plan.Place     `json:"slots"`
	Link    forecast.Link    `json:"link" doc:"as the machine's benchmark measured it"`
}

// thought is the id of a run that is only thought of. No run of the log can have it.
const thought = domain.RunID("(this run)")

// Explain answers a wish.
func (s *Service) Explain(ctx context.Context, w Wish) (e Explanation, err error) {
	asked := s.Read(ctx, func(c *Core) { e, err = c.Explain(w, s.now()) })
	return e, cmp.Or(asked, err)
}

// Idle says for each slot of a machine without a lease why it has none; nil when the hub cannot be asked.
func (s *Service) Idle(ctx context.Context, m domain.MachineID) (idle []plan.Place) {
	_ = s.Read(ctx, func(c *Core) { idle = plan.Idle(c.snapshot(s.now()), m) }) // a hub that stops has nobody to tell
	return idle
}

// Explain answers a wish from the state as it is between two steps.
func (c *Core) Explain(w Wish, now time.Time) (Explanation, error) {
	snap := c.snapshot(now)
	st, id := c.fold.runs[w.Run], w.Run
	if w.Spec != nil {
		id = thought
		facts, err := run.Decide(nil, run.Submit{Spec: *w.Spec, Data: w.Data})
		if err != nil {
			return Explanation{}, err
		}
		st = run.Evolve(nil, event.Envelope{Kind: event.KindRun, Agg: string(id), Data: facts[0]})
		snap.Runs = append(snap.Runs, st)
	}
	if st == nil {
		return Explanation{}, domain.NotFound("explain run "+string(id), "there is no such run", "list them: tensorturn run list")
	}
	if st.Phase.Ended() {
		return Explanation{}, domain.Conflict("explain run "+string(id), "the run is "+string(st.Phase), "see what it did: tensorturn run show "+string(id))
	}
	need := match.Of(&st.Spec, &st.Data, st.Take)
	e := Explanation{Run: id, Take: need.Take, Measured: need.Measured, Params: cmp.Or(st.Params, w.Params, run.Parameters(&st.Spec, &st.Data))}
	if w.Spec != nil {
		e.Run = ""
	}
	e.Notes = c.doubles(need.Machines)
	c.parts(&e, plan.Places(snap, id))
	c.reckon(&e, st, &snap, w)
	return e, nil
}

// named gives for each name the machines of it that commands may mean, in the order of their enrolment.
func (c *Core) named() map[string][]domain.MachineID {
	of := map[string][]domain.MachineID{} // only looked up
	for _, id := range c.fold.order {
		if m := c.fold.machines[id]; m.Standing != machine.Revoked {
			of[m.Name] = append(of[m.Name], id)
		}
	}
	return of
}

// called is what people call a machine: its name, with its id where others have that name too.
func called(m *machine.State, id domain.MachineID, named map[string][]domain.MachineID) string {
	switch {
	case m.Name == "":
		return string(id)
	case len(named[m.Name]) > 1:
		return fmt.Sprintf("%s (%s)", m.Name, id)
	}
	return m.Name
}

// doubles says which names that a run gives mean more than one machine.
func (c *Core) doubles(wanted []string) (notes []string) {
	named := c.named()
	for _, name := range wanted {
		ids := named[name]
		if len(ids) < 2 {
			continue
		}
		said := make([]string, len(ids))
		for i, id := range ids {
			said[i] = string(id)
		}
		if more := len(said) - maxWhys; more > 0 {
			said = append(said[:maxWhys], fmt.Sprintf("%d more", more))
		}
		notes = append(notes, fmt.Sprintf("machines: %s means %d machines, %s; name one by its id to take that one alone", name, len(ids), strings.Join(said, ", ")))
	}
	return notes
}

// parts groups the places by machine, and adds the machines of which the planner knows nothing yet.
func (c *Core) parts(e *Explanation, places []plan.Place) {
	e.Machines = []MachinePart{}
	of := map[domain.MachineID][]plan.Place{} // only looked up
	for _, place := range places {
		id := place.Slot.Machine()
		of[id] = append(of[id], place)
	}
	for _, id := range slices.Sorted(slices.Values(c.fold.order)) {
		m := c.fold.machines[id]
		if m.Standing == machine.Revoked {
			continue
		}
		p := MachinePart{Machine: id, Name: m.Name, Slots: append([]plan.Place{}, of[id]...)}
		if m.Bench != nil {
			p.Link = forecast.Link{Up: m.Bench.Up, Down: m.Bench.Down}
		}
		for _, place := range p.Slots {
			if place.Role != plan.Out {
				e.Slots++
			}
		}
		if m.Standing == machine.Enrolled {
			for i := range m.Slots {
				p.Slots = append(p.Slots, plan.Place{Slot: domain.Slot(id, i), Role: plan.Out, Reason: "its machine was never online"})
			}
		}
		e.Machines = append(e.Machines, p)
	}
}

// reckon forecasts a round of those that take part.
func (c *Core) reckon(e *Explanation, st *run.State, snap *plan.Snapshot, w Wish) {
	if st.Ensemble != nil {
		return // members travel alone, once
	}
	chunks := st.Spec.Round.Chunks
	if st.Open != nil {
		chunks = len(st.Open.Chunks)
	}
	r := forecast.Round{
		Params: e.Params, Chunk: int64(st.Spec.Chunk), Samples: min(int64(chunks)*int64(st.Spec.Chunk), run.TotalSamples(st.Spec, st.Data)),
		UpBits: merge.BitsPerValue(merge.Codec(st.Spec.Codec)), DownBits: merge.BitsPerValue(merge.Codec(cmp.Or(st.Spec.Down(), run.CodecFP32))),
		Options: options(st.Spec), Hub: w.Hub, Most: int64(min(run.MaxRoundChunks, run.TotalChunks(st.Spec, st.Data))),
	}
	speeds := map[domain.SlotID]float64{} // of slots that train now; only looked up
	for _, slot := range snap.Slots {
		speeds[slot.ID] = slot.Speed
	}
	named := c.named()
	for i := range e.Machines {
		p := &e.Machines[i]
		worker := forecast.Worker{Name: called(c.fold.machines[p.Machine], p.Machine, named), Link: p.Link}
		for _, place := range p.Slots {
			if place.Role == plan.Out {
				continue
			}
			worker.Slots++
			worker.Speed += c.speedFor(st, place, e.Params, speeds)
		}
		if worker.Slots > 0 {
			r.Workers = append(r.Workers, worker)
		}
		r.Hub.Up, r.Hub.Down = bestOf(w.Hub.Up, r.Hub.Up, p.Link.Up), bestOf(w.Hub.Down, r.Hub.Down, p.Link.Down)
	}
	e.HubLink, e.HubGuess = r.Hub, w.Hub.Up == 0 || w.Hub.Down == 0
	e.Round = forecast.Reckon(r)
}

// bestOf is what was told, or else the faster of what is known: the hub has served the fastest link that was measured.
func bestOf(told, known, measured float64) float64 {
	if told > 0 {
		return told
	}
	return max(known, measured)
}

// efficiency is the share of its matrix product's speed that a slot has been seen to reach when it trains; small models reach less.
const efficiency = 0.3

// flopsPerParameter of one sample: two forward, four backward.
const flopsPerParameter = 6

// speedFor is the slot's speed in this run: measured while it holds its lease, else reckoned for built-in models from the machine's
// benchmark. Speeds in other runs say nothing.
func (c *Core) speedFor(st *run.State, p plan.Place, params int64, speeds map[domain.SlotID]float64) float64 {
	if p.Role == plan.Works && speeds[p.Slot] > 0 {
		return speeds[p.Slot]
	}
	builtin := st.Spec.Trainer == run.Builtin
	if !builtin || params <= 0 {
		return 0
	}
	return efficiency * c.fold.machines[p.Slot.Machine()].Power(p.Slot.Index(), builtin) / (flopsPerParameter * float64(params))
}

// options are the codecs that send less than the run's.
func options(s run.Spec) []forecast.Option {
	var out []forecast.Option
	up, down := merge.BitsPerValue(merge.Codec(s.Codec)), merge.BitsPerValue(merge.Codec(cmp.Or(s.Down(), run.CodecFP32)))
	for _, codec := range []run.Codec{run.CodecE3M0} {
		if bits := merge.BitsPerValue(merge.Codec(codec)); bits < up {
			out = append(out, forecast.Option{Name: fmt.Sprintf("codec: %s", codec), UpBits: bits})
		}
	}
	for _, codec := range []run.Codec{run.CodecInt8, run.CodecE3M0} {
		if bits := merge.BitsPerValue(merge.Codec(codec)); bits < down {
			out = append(out, forecast.Option{Name: fmt.Sprintf("codec_down: %s", codec), DownBits: bits})
		}
	}
	return out
}

// fits refuses a run that no machine of the pool can take, with the figures of each. A machine that may turn out to, and a pool
// without machines, refuse nothing.
func (c *Core) fits(id string, s *run.Spec, d *run.Dataset) error {
	need := match.Of(s, d, run.Memory{})
	var whys []string
	named := c.named()
	for _, id := range c.fold.order {
		st := c.fold.machines[id]
		if st.Standing == machine.Revoked {
			continue
		}
		m := c.matched(st)
		first := ""
		for i := range st.Slots {
			why, unknown := need.Slot(&m, i)
			if why == "" || unknown {
				return nil
			}
			first = cmp.Or(first, why)
		}
		whys = append(whys, fmt.Sprintf("%s: %s", called(st, id, named), first))
	}
	if len(whys) == 0 {
		return nil
	}
	if more := len(whys) - maxWhys; more > 0 {
		whys = append(whys[:maxWhys], fmt.Sprintf("and %d machines more", more))
	}
	return domain.Conflict("submit run "+id, "no machine of the pool can take it: "+strings.Join(whys, "; "),
		"ask for less, add a machine, or let it wait for one: run submit --wait-for-machine")
}

// maxWhys bounds how many machines a refusal names.
const maxWhys = 8
