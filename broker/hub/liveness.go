package hub

import (
	"time"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// liveness is what the hub has learnt and not decided: contact, progress, speeds, jobs under way. It is lost with the
// process and learnt again within the grace after a start.
type liveness struct {
	since    time.Time // the start, later by the time in which the hub itself did not run
	contacts map[domain.MachineID]*contact
	hardware map[domain.MachineID]hardware // as each machine last told it
	slots    map[domain.SlotID]*slotMemory
	rounds   map[domain.RunID]roundMemory
	inspect  map[domain.SlotID]*inspection
	merges   map[domain.RunID]*merging
	votes    map[domain.RunID]*counting
	wanted   map[domain.Digest]*want
	late     map[domain.SlotID]lateWork

	allowances map[domain.MachineID]*allowances
}

func newLiveness(now time.Time) *liveness {
	return &liveness{
		since:    now,
		contacts: map[domain.MachineID]*contact{},
		hardware: map[domain.MachineID]hardware{},
		slots:    map[domain.SlotID]*slotMemory{},
		rounds:   map[domain.RunID]roundMemory{},
		inspect:  map[domain.SlotID]*inspection{},
		merges:   map[domain.RunID]*merging{},
		votes:    map[domain.RunID]*counting{},
		wanted:   map[domain.Digest]*want{},
		late:     map[domain.SlotID]lateWork{},

		allowances: map[domain.MachineID]*allowances{},
	}
}

// contact is when a machine was last heard.
type contact struct {
	last        time.Time
	closed      time.Time // when its link was closed, zero once it is heard again
	incarnation domain.Incarnation
	counter     uint64

	former        domain.Incarnation // the one heard before it
	formerCounter uint64             // its newest

	rival rival
}

// rival is an agent process that goes on although another one has taken its machine's place.
type rival struct {
	incarnation domain.Incarnation
	counter     uint64    // its newest that was refused
	refused     int       // refusals with a growing counter
	last        time.Time // of them
}

// minRivals is how many refusals make a rival of it: one or two may be what an ended process had still on its way.
const minRivals = 3

// refuse notes that a process was sent away for another one.
func (c *contact) refuse(inc domain.Incarnation, counter uint64, now time.Time) {
	switch r := &c.rival; {
	case r.incarnation != inc:
		*r = rival{incarnation: inc, counter: counter, refused: 1, last: now}
	case counter > r.counter:
		r.counter, r.refused, r.last = counter, r.refused+1, now
	}
}

// slotMemory is what a slot has shown.
type slotMemory struct {
	run      domain.RunID
	epoch    domain.Epoch
	progress uint64
	moved    time.Time // when progress last grew, or waiting without need of it last was seen
	phase    string    // as last reported under this epoch
	chunks   int       // trained chunks in the last report
	began    time.Time // when the chunk under way began
	speed    float64   // samples per second, moving average, 0 unknown
	upload   float64   // seconds, moving average, 0 unknown
	done     int64     // samples that its member has seen, as last reported
}

// roundMemory is how long a round has been open, on this process's clock: a hub that was off for a night must not find
// every deadline passed.
type roundMemory struct {
	number int
	opened time.Time
}

// inspection is an offered delta that a worker reads or will read.
type inspection struct {
	job      InspectJob
	running  bool
	attempts int
	retry    time.Time
}

// merging is a closed round that a worker merges or will merge.
type merging struct {
	job      MergeJob
	running  bool
	attempts int
	retry    time.Time
}

// want is a blob that the hub cannot read and has asked its maker for.
type want struct {
	machine domain.MachineID
	since   time.Time
	missing bool // the agent says that it has it no more
}

// speedWeight is the share of a new measurement in the moving averages: three reports make most of the value, so that a
// laptop on battery is noticed within a few chunks, and one odd chunk does not deal the shards anew.
const speedWeight = 0.4

func average(old, measured float64) float64 {
	switch {
	case measured <= 0:
		return old
	case old <= 0:
		return measured
	}
	return old + speedWeight*(measured-old)
}

// unlinked notes that a machine's link is closed.
func (m *liveness) unlinked(id domain.MachineID, now time.Time) {
	if c := m.contacts[id]; c != nil {
		c.closed = now
	}
}

// away is for how long the machine's link has been closed, 0 while it is open or nobody has said.
func (m *liveness) away(id domain.MachineID, now time.Time) time.Duration {
	if c := m.contacts[id]; c != nil && !c.closed.IsZero() {
		return now.Sub(c.closed)
	}
	return 0
}

// slot finds or makes the memory of a slot.
func (m *liveness) slot(id domain.SlotID, now time.Time) *slotMemory {
	s := m.slots[id]
	if s == nil {
		s = &slotMemory{moved: now}
		m.slots[id] = s
	}
	return s
}

// lease turns the slot's memory to the lease it holds now. The clock of a new one begins at now.
func (s *slotMemory) lease(id domain.RunID, epoch domain.Epoch, now time.Time) {
	if s.run == id && s.epoch == epoch {
		return
	}
	s.run, s.epoch, s.progress, s.moved, s.phase, s.chunks, s.began = id, epoch, 0, now, "", 0, time.Time{}
	s.done = 0
}

// forgive takes time in which the hub did not listen out of every silence and age.
func (m *liveness) forgive(gap time.Duration) {
	m.since = m.since.Add(gap)
	for _, c := range m.contacts {
		c.last, c.rival.last = c.last.Add(gap), c.rival.last.Add(gap)
		if !c.closed.IsZero() {
			c.closed = c.closed.Add(gap)
		}
	}
	for _, s := range m.slots {
		s.moved = s.moved.Add(gap)
		if !s.began.IsZero() {
			s.began = s.began.Add(gap)
		}
	}
	for id, r := range m.rounds {
		r.opened = r.opened.Add(gap)
		m.rounds[id] = r
	}
	for _, w := range m.wanted {
		w.since = w.since.Add(gap)
	}
}

// prune forgets what no longer has a counterpart in the fold.
func (m *liveness) prune(f *fold) {
	m.forgetHardware(f)
	for slot, in := range m.inspect {
		s := f.runs[in.job.Run]
		if s == nil || s.Phase.Ended() || s.Leases[slot] == nil || s.Leases[slot].Epoch != in.job.Epoch {
			delete(m.inspect, slot)
		}
	}
	for id := range m.rounds {
		if s := f.runs[id]; s == nil || s.Open == nil {
			delete(m.rounds, id)
		}
	}
	for slot, w := range m.late {
		if s := f.runs[w.run]; s == nil || !s.Late[slot].Is(w.work) {
			delete(m.late, slot)
		}
	}
	for id := range m.merges {
		if !awaitsMerge(f.runs[id]) {
			delete(m.merges, id)
		}
	}
	for id := range m.votes {
		if s := f.runs[id]; s == nil || s.Phase != run.PhaseVoting {
			delete(m.votes, id)
		}
	}
}

// awaitsMerge reports whether the run's round is closed and not merged.
func awaitsMerge(s *run.State) bool {
	if s == nil {
		return false
	}
	_, waits := s.NeedsMerge()
	return waits
}
