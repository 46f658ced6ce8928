package plan

import (
	"cmp"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/match"
	"tensorturn/domain/run"
)

// Slot is one unit of compute as the hub sees it at this moment. Speeds, uploads and busy times are the hub's memory,
// never facts: a decision that used one says so in its reason.
type Slot struct {
	ID          domain.SlotID
	Usable      bool    // online, neither draining nor quarantined: may be given work
	Suspect     bool    // silent for L/8: its unclaimed chunks move
	Draining    bool    // contributes what it has trained and leaves
	Paused      string  // why this slot alone is draining, empty when it is not
	Away        string  // for people: why it is not usable where no flag says it
	Quarantined bool    // three refused contributions in a row: what it holds goes to others
	Speed       float64 // samples per second while it trains, 0 when unknown
	Upload      float64 // seconds its last delta took to make and send, 0 when unknown
	Busy        float64 // seconds since it began the chunk under way, 0 when it trains none
	Shown       float64 // of Busy, the seconds up to its machine's newest word: what is beyond them is silence, and tells of no hang
	Power       Power   // by its machine's newest benchmark: what to reckon with until it has trained
	Link        float64 // bytes per second of its share of the way to the hub, by the same; 0 when unknown
	Free        bool    // holds no lease of any run
	Done        int64   // samples its member has seen, as its agent reported; 0 when it trains none
}

// Power is what a slot can compute, in floating point operations per second; 0 when unknown.
type Power struct {
	Own float64 // its share of its GPU, or of the CPU where it has none
	CPU float64 // its share of the CPU, which is what the built-in trainer uses
}

// Snapshot is everything a plan may look at. Plan reads the runs and never changes them.
type Snapshot struct {
	Slots    []Slot          // every slot of the pool, ordered by id
	Machines []match.Machine // what they belong to, ordered by id; one that is missing meets no requirement
	Runs     []*run.State    // by submission: of those with the highest priority the first is served first
	Timing   domain.Timing
	RoundAge map[domain.RunID]float64 // seconds since the open round was opened, or an ensemble's first lease, on the hub's clock
}

// Action is one proposal: a command for one run, to be decided by run.Decide.
type Action struct {
	Run     domain.RunID
	Command run.Command
}

// Next proposes what to do now, in the order in which it must be decided. The caller applies the actions and asks again
// until there are none; a few calls settle a snapshot. An action that run.Decide refuses is a defect of this package.
func Next(s Snapshot) []Action {
	var out []Action
	s.each(false, func(b *board, _ []domain.RunID) {
		b.plan()
		out = append(out, b.out...)
	})
	return out
}

// mayAct reports whether any rule could propose something for the run: it holds a lease, its round is open, its members may be
// overdue, or a slot that it could use is free. Of hundreds that wait for slots most may not, and a board of every slot for each of
// them, in every step of a hub, would be the dearest thing the hub does.
func (s *Snapshot) mayAct(r *run.State, free []bool, k *known) bool {
	if len(r.Leases) > 0 || r.Open != nil && !r.Open.Closed || r.Ensemble != nil && r.Spec.Ensemble.Deadline > 0 {
		return true
	}
	v := k.verdict(s, r)
	for i := range free {
		if free[i] && v.of(s, i) == "" {
			return true
		}
	}
	return false
}

// each draws the board of every live run that may act, of all of them and with every slot when they are wanted whole, in the order in
// which they are served; the free slots that a run keeps are not free on the boards behind it. kept names for each slot the earlier run
// that keeps it, "" for none.
func (s *Snapshot) each(whole bool, look func(b *board, kept []domain.RunID)) {
	free := make([]bool, len(s.Slots))
	for i, sl := range s.Slots {
		free[i] = sl.Free && sl.Usable
	}
	kept := make([]domain.RunID, len(s.Slots))
	before := make([]bool, len(free))
	k := &known{}
	for _, r := range s.ordered() {
		if r.Phase.Ended() {
			continue
		}
		if !whole && !s.mayAct(r, free, k) {
			continue
		}
		b := newBoard(s, r, free, k, whole)
		look(b, kept)
		copy(before, free)
		b.reserve(free)
		for i := range free {
			if before[i] && !free[i] {
				kept[i] = r.ID
			}
		}
	}
}

// ordered gives the runs as they are served: by priority, then by submission.
func (s *Snapshot) ordered() []*run.State {
	first := func(x, y *run.State) int { return cmp.Compare(y.Spec.Priority, x.Spec.Priority) }
	if slices.IsSortedFunc(s.Runs, first) {
		return s.Runs
	}
	runs := slices.Clone(s.Runs)
	slices.SortStableFunc(runs, first)
	return runs
}

// plan runs the rules in the order in which one makes room for the next. Each changes the board as its actions will
// change the run, so that the rules behind it see the effect.
func (b *board) plan() {
	if b.r.Ensemble != nil {
		b.ensemble()
		return
	}
	if b.closing() {
		return // everything else depends on what follows
	}
	b.retreat()
	if b.r.Paused != "" {
		return
	}
	if b.r.Phase == run.PhaseSubmitted {
		b.initialise()
		return
	}
	if b.alone() {
		b.evaluate() // nobody else will: it comes before the slot's next train lease
	}
	if b.opening() {
		return
	}
	if b.open() {
		b.deal()
		b.steal()
		b.claim()
		b.contribute()
		b.speculate()
		b.release()
	}
	b.evaluate()
}
