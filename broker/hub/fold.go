package hub

import (
	"slices"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

// fold is everything decided: the aggregates and the indexes over them. It is a function of the log alone; a fold made
// by replay equals the one that decided.
type fold struct {
	runs     map[domain.RunID]*run.State
	runOrder []domain.RunID // by submission
	live     []domain.RunID // not ended, by submission
	machines map[domain.MachineID]*machine.State
	order    []domain.MachineID // machines by id
	accounts map[string]domain.MachineID
	pool     *pool.State
	retired  map[domain.MachineID][]domain.Incarnation // earlier incarnations, newest last
	worked   map[domain.MachineID][]domain.RunID       // runs the machine had a lease of, newest last
	merged   map[domain.RunID][]mergedRound            // what each run's rounds left in the store
	decided  map[domain.SlotID]decided                 // the slot's last contribution that was accepted or refused
	causes   causes
}

// decided names a contribution about which the word has been spoken. An agent that has not heard it offers again, by
// then perhaps under a lease that has ended: that is a repetition and not work that came too late.
type decided struct {
	Epoch  domain.Epoch
	Number int
}

func newFold() *fold {
	return &fold{
		runs:     map[domain.RunID]*run.State{},
		machines: map[domain.MachineID]*machine.State{},
		accounts: map[string]domain.MachineID{},
		retired:  map[domain.MachineID][]domain.Incarnation{},
		worked:   map[domain.MachineID][]domain.RunID{},
		merged:   map[domain.RunID][]mergedRound{},
		decided:  map[domain.SlotID]decided{},
		causes:   causes{seen: map[domain.CommandID]struct{}{}},
	}
}

// apply obeys one event. It never looks at prev or ids' indexes: the committer has.
func (f *fold) apply(e event.Envelope) {
	switch e.Kind {
	case event.KindRun:
		f.applyRun(e)
	case event.KindMachine:
		f.applyMachine(e)
	case event.KindPool:
		f.pool = pool.Evolve(f.pool, e)
	}
	f.causes.add(e.Cause)
}

func (f *fold) applyRun(e event.Envelope) {
	id := domain.RunID(e.Agg)
	before, known := f.runs[id]
	s := run.Evolve(before, e)
	f.runs[id] = s
	if !known {
		f.runOrder = append(f.runOrder, id)
		f.live = append(f.live, id)
	}
	switch d := e.Data.(type) {
	case *run.LeaseGranted:
		f.noteWork(d.Slot.Machine(), id)
	case *run.ContributionAccepted:
		f.decided[d.Slot] = decided{d.Epoch, d.Number}
	case *run.ContributionRefused:
		f.decided[d.Slot] = decided{d.Epoch, d.Number}
	case *run.RoundMerged:
		f.merged[id] = append(f.merged[id], mergedRoundOf(d))
	}
	if s.Phase.Ended() {
		f.live = slices.DeleteFunc(f.live, func(r domain.RunID) bool { return r == id })
	}
}

func (f *fold) noteWork(m domain.MachineID, id domain.RunID) {
	w := slices.DeleteFunc(f.worked[m], func(r domain.RunID) bool { return r == id })
	w = append(w, id)
	if len(w) > maxWorked {
		w = w[len(w)-maxWorked:]
	}
	f.worked[m] = w
}

func (f *fold) applyMachine(e event.Envelope) {
	id := domain.MachineID(e.Agg)
	before, known := f.machines[id]
	var was domain.Incarnation
	if known {
		was = before.Incarnation
	}
	s := machine.Evolve(before, e)
	f.machines[id] = s
	if !known {
		i, _ := slices.BinarySearch(f.order, id)
		f.order = slices.Insert(f.order, i, id)
	}
	f.accounts[s.Account] = id
	if was != "" && was != s.Incarnation {
		r := append(f.retired[id], was)
		if len(r) > maxRetired {
			r = r[len(r)-maxRetired:]
		}
		f.retired[id] = r
	}
}

// lease finds the run whose lease the slot holds, nil when it holds none. A slot holds at most one over all runs.
func (f *fold) lease(slot domain.SlotID) (*run.State, *run.Lease) {
	for _, id := range f.live {
		if l := f.runs[id].Leases[slot]; l != nil {
			return f.runs[id], l
		}
	}
	return nil, nil
}

// leasesOf lists the leases of one run ordered by slot.
func leasesOf(s *run.State) []*run.Lease {
	ls := make([]*run.Lease, 0, len(s.Leases))
	for _, l := range s.Leases {
		ls = append(ls, l)
	}
	slices.SortFunc(ls, func(a, b *run.Lease) int { return strings.Compare(string(a.Slot), string(b.Slot)) })
	return ls
}

// holds reports whether any slot of the machine holds a lease.
func (f *fold) holds(m domain.MachineID) bool {
	for i := range f.machines[m].Slots {
		if _, l := f.lease(domain.Slot(m, i)); l != nil {
			return true
		}
	}
	return false
}

// members counts the machines that are not revoked.
func (f *fold) members() int {
	n := 0
	for _, m := range f.machines {
		if m.Standing != machine.Revoked {
			n++
		}
	}
	return n
}

// causes remembers the newest command ids, so that a Do may be repeated.
type causes struct {
	ring []domain.CommandID
	next int
	seen map[domain.CommandID]struct{}
	keys map[string]domain.CommandID // by idempotency key, of those in seen; follows from ring
}

func (c *causes) add(id domain.CommandID) {
	if strings.HasPrefix(string(id), ownPrefix) {
		return // the hub's own ids are never asked for again
	}
	if _, ok := c.seen[id]; ok {
		return
	}
	if len(c.ring) < maxCauses {
		c.ring = append(c.ring, id)
	} else {
		delete(c.seen, c.ring[c.next])
		c.forget(c.ring[c.next])
		c.ring[c.next] = id
		c.next = (c.next + 1) % maxCauses
	}
	c.seen[id] = struct{}{}
	c.remember(id)
}

func (c *causes) has(id domain.CommandID) bool {
	_, ok := c.seen[id]
	return ok
}
