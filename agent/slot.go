package agent

import (
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// speedWeight is the weight of the newest chunk in a slot's speed: about the last five chunks count.
const speedWeight = 0.3

// operation is the one thing a slot is doing.
type operation string

const (
	opNone     operation = ""
	opPrepare  operation = "prepare"
	opTrain    operation = "train"
	opDelta    operation = "delta"
	opUpload   operation = "upload"
	opReset    operation = "reset"
	opInit     operation = "init"
	opEvaluate operation = "evaluate"
	opKeep     operation = "keep"    // a member's checkpoint
	opFinish   operation = "finish"  // a member's weights
	opPredict  operation = "predict" // a member's outputs
)

// slot is what outlives leases: measurements, and whether a trainer is open.
type slot struct {
	index       int
	lease       *lease
	newest      domain.Epoch // the highest epoch ever held: an epoch never comes back
	late        *late        // trained under a lease that has ended, nil when there is none
	trainerOpen bool
	idleSince   time.Duration // when the last lease ended

	progress uint64   // steps and bytes, grows only
	speed    float64  // samples per second, 0 unknown
	upload   float64  // seconds, 0 unknown
	loss     *float64 // newest step's
}

// lease is what a slot holds under one epoch. Everything in it moves forward: a chunk is added behind the others, a
// number only grows, a cut keeps a prefix; another epoch is another lease.
type lease struct {
	run   domain.RunID
	epoch domain.Epoch
	unit  run.Unit
	round int
	job   wire.Job
	want  want

	op       operation
	opAt     time.Duration // when it began
	prepared bool
	adopted  bool          // its chunks were trained under an earlier lease; the trainer may hold anything
	retryAt  time.Duration // no transfer before
	failures int           // of transfers in a row
	partial  partial       // of the chunk under way

	number     int
	trained    []wire.TrainedChunk
	floor      int   // chunks the hub may believe trained: as many are trained again if weights were lost
	boundaries []int // snapshots on disk, ascending, newest KeptBoundaries
	lost       bool  // the trainer's weights are not those of trained
	delta      *delta

	init     *wire.Init
	eval     *wire.Eval
	member   *memberWork // of a member unit
	uploaded bool        // of init: the base is in the hub's store
	err      string      // the trainer's; the slot has stopped
	spoiled  bool        // with err: what was trained before it is not to be trusted either
	tail     []string    // with err: the last lines of the trainer's program
	done     bool        // the hub has taken the result or the error
}

// want is the hub's newest word on the lease.
type want struct {
	base       domain.Digest
	increment  *wire.Increment // leads to base from the one before, nil: fetch base whole
	fed        domain.Digest   // newest delta that counts, for codecs with feedback
	number     int
	claims     []domain.ChunkID
	contribute bool
	saved      int  // of a member: chunks of its newest recorded checkpoint
	trained    bool // of a member: its weights are recorded
	cut        *int
}

// delta is a contribution on its way.
type delta struct {
	boundary int
	blob     domain.Digest
	uploaded bool
	began    time.Duration
}

// partial is the chunk under way.
type partial struct {
	chunk   domain.ChunkID
	samples int
	seconds float64
}

// held reports whether the boundary's snapshot is on disk.
func (l *lease) held(boundary int) bool {
	for _, b := range l.boundaries {
		if b == boundary {
			return true
		}
	}
	return false
}

// keep adds a boundary and forgets all but the newest KeptBoundaries.
func (l *lease) keep(boundary int) {
	l.boundaries = append(l.boundaries, boundary)
	if n := len(l.boundaries); n > KeptBoundaries {
		l.boundaries = append([]int(nil), l.boundaries[n-KeptBoundaries:]...)
	}
}

// fromBase forgets everything trained: the weights shall be the base's again.
func (l *lease) fromBase() {
	l.trained, l.boundaries, l.delta, l.lost = nil, nil, nil, true
}

// cutTo keeps the first k chunks, whose boundary must be held.
func (l *lease) cutTo(k int) {
	domain.Assert(l.held(k), "a cut is at a boundary whose snapshot is held")
	l.trained = l.trained[:k:k]
	for len(l.boundaries) > 0 && l.boundaries[len(l.boundaries)-1] > k {
		l.boundaries = l.boundaries[:len(l.boundaries)-1]
	}
	l.delta, l.floor, l.lost = nil, k, true
}

// goal is how many chunks the weights shall hold before the contribution, and whether to contribute then. A cut and a
// contribution ask for what is there; only weights that were lost are trained again.
func (l *lease) goal() (chunks int, contribute bool) {
	switch {
	case l.want.cut != nil && *l.want.cut > 0:
		return *l.want.cut, true
	case l.want.contribute:
		return max(l.floor, len(l.trained)), true
	case l.delta != nil: // asked once, never taken back
		return len(l.trained), true
	}
	return len(l.want.claims), false
}

// nextChunk is the first claim the weights do not hold.
func (l *lease) nextChunk() (domain.ChunkID, bool) {
	have := make(map[domain.ChunkID]bool, len(l.trained))
	for _, t := range l.trained {
		have[t.Chunk] = true
	}
	for _, c := range l.want.claims {
		if !have[c] {
			return c, true
		}
	}
	return 0, false
}

// offered gives the finished delta of what is trained, nil when there is none.
func (l *lease) offered() *delta {
	if l.delta != nil && l.delta.uploaded && l.delta.boundary == len(l.trained) {
		return l.delta
	}
	return nil
}

// due is when the slot wants a Tick.
func (s *slot) due(idleClose time.Duration) (time.Duration, bool) {
	switch {
	case s.lease == nil:
		return s.idleSince + idleClose, s.trainerOpen
	case s.lease.op == opNone && s.lease.retryAt > 0 && s.lease.err == "" && !s.lease.done:
		return s.lease.retryAt, true
	}
	return 0, false
}
