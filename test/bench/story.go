package main

import (
	"slices"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/test/kit"
)

// story is what the log says about one run's time.
type story struct {
	began, ended time.Time // first round opened, last round merged
	samples      int
	rounds       int
	steals       int
	chunks       int
	closing      time.Duration // from a round's close to its merge, all rounds
	opening      time.Duration // from a merge to the next round
	slots        []*slotStory  // ordered by slot
}

// slotStory is one slot's time. The parts add up to ended − began.
type slotStory struct {
	slot    domain.SlotID
	trained []chunkStory
	samples int
	fewest  int // chunks in the round in which it had the fewest

	training float64 // seconds on the agent's clock
	begin    float64 // from a round's opening to the slot's first chunk
	between  float64 // between two chunks
	sending  float64 // from a chunk's end to the acceptance of its delta
	waiting  float64 // from there to the round's close
}

type chunkStory struct {
	samples int
	seconds float64
}

// teller reads a run's facts in order.
type teller struct {
	story
	spec   run.Spec
	data   run.Dataset
	opened time.Time
	closed time.Time
	merged time.Time
	free   map[domain.SlotID]time.Time // since when the slot could work
	inTurn map[domain.SlotID]int       // chunks in this round
}

func readStory(d *bed, p *kit.Pool, id domain.RunID) *story {
	t := &teller{free: map[domain.SlotID]time.Time{}, inTurn: map[domain.SlotID]int{}}
	for _, e := range facts(d, p) {
		if e.Agg == string(id) {
			t.tell(e.Time, e.Data)
		}
	}
	if t.rounds == 0 {
		d.Fatalf("run %s has no merged round", id)
	}
	slices.SortFunc(t.slots, func(a, b *slotStory) int { return strings.Compare(string(a.slot), string(b.slot)) })
	return &t.story
}

func (t *teller) tell(at time.Time, data any) {
	switch e := data.(type) {
	case *run.Submitted:
		t.spec, t.data = e.Spec, e.Data
	case *run.RoundOpened:
		if t.began.IsZero() {
			t.began = at
		} else {
			t.opening += at.Sub(t.merged)
		}
		t.opened, t.chunks = at, t.chunks+len(e.Chunks)
		clear(t.free)
		clear(t.inTurn)
	case *run.ChunksStolen:
		t.steals++
	case *run.ChunkTrained:
		t.train(at, e)
	case *run.ContributionAccepted:
		s := t.slot(e.Slot)
		s.sending += at.Sub(t.free[e.Slot]).Seconds()
		t.free[e.Slot] = at
		t.samples += int(e.Samples)
	case *run.RoundClosed:
		t.closed = at
		for _, s := range t.slots {
			if since, ok := t.free[s.slot]; ok {
				s.waiting += at.Sub(since).Seconds()
			} else {
				s.waiting += at.Sub(t.opened).Seconds()
			}
			if n := t.inTurn[s.slot]; n < s.fewest {
				s.fewest = n
			}
		}
	case *run.RoundMerged:
		t.merged, t.ended = at, at
		t.closing += at.Sub(t.closed)
		t.rounds++
	}
}

// train books a chunk. What lies before it, back to the slot's last moment, was idle.
func (t *teller) train(at time.Time, e *run.ChunkTrained) {
	s := t.slot(e.Slot)
	n := run.ChunkSamples(t.spec, t.data, e.Chunk)
	s.trained = append(s.trained, chunkStory{n, e.Seconds})
	s.samples += n
	s.training += e.Seconds
	if since, ok := t.free[e.Slot]; ok {
		s.between += at.Sub(since).Seconds() - e.Seconds
	} else {
		s.begin += at.Sub(t.opened).Seconds() - e.Seconds
	}
	t.free[e.Slot] = at
	t.inTurn[e.Slot]++
}

func (t *teller) slot(id domain.SlotID) *slotStory {
	for _, s := range t.slots {
		if s.slot == id {
			return s
		}
	}
	s := &slotStory{slot: id, fewest: 1 << 30}
	t.slots = append(t.slots, s)
	return s
}

// seconds is the measured time.
func (s *story) seconds() float64 { return s.ended.Sub(s.began).Seconds() }
