package run

import (
	"tensorturn/domain"
)

// Limits of a run.
const (
	MaxLeases             = 900     // leases of one run at a time: they must end in one atomic batch with what ends them
	MaxChunks             = 1 << 20 // chunks over all epochs; the state holds 24 bytes for each until the run ends
	MaxRoundChunks        = 1 << 15 // chunks of one round; a RoundOpened event must stay below domain.MaxEventBytes
	MaxContributions      = 1 << 11 // accepted deltas of one round: RoundMerged names each with some 170 bytes
	MaxTailLines          = 20      // of what a failed program printed, in the fact
	MaxTailLine           = 300     // bytes of such a line; with MaxTailLines 6 KB a failure, three of which end a run
	MaxTaskFailures       = 3       // task errors of one unit before the run fails
	MaxEvaluationFailures = 3       // after these the run completes "not evaluated"
	MaxRefusals           = 3       // refusals in a row that quarantine a machine
	NormGate              = 10.0    // norm/√steps may be at most this times the moving average
	NormGateFrom          = 3       // merges before the norm gate is in force: it judges from the fourth on
)

// Phase is where a run stands.
type Phase string

// The phases.
const (
	PhaseSubmitted  Phase = "submitted"  // waits for its first base
	PhaseTraining   Phase = "training"   // rounds
	PhaseEvaluating Phase = "evaluating" // all chunks merged, final evaluation pending
	PhaseCompleted  Phase = "completed"
	PhaseFailed     Phase = "failed"
	PhaseCancelled  Phase = "cancelled"
)

// Ended reports whether the phase is final.
func (p Phase) Ended() bool {
	return p == PhaseCompleted || p == PhaseFailed || p == PhaseCancelled
}

// ChunkStatus is where a chunk stands.
type ChunkStatus uint8

// The chunk states, in the order of a chunk's life.
const (
	StatusUnplanned   ChunkStatus = iota // no round owns it yet, or it is carried to the next
	StatusQueued                         // in the round's pool or in a shard
	StatusClaimed                        // in a lease, not reported
	StatusTrained                        // in a lease's local weights
	StatusContributed                    // counted, its delta is accepted
	StatusMerged                         // counted, its delta is in the model
)

// Chunk is the state of one chunk.
type Chunk struct {
	Status ChunkStatus
	Slot   domain.SlotID // of the shard, lease or contribution that holds it; empty in the pool
}

// State is everything a run's decisions need. Evolve owns it: it is changed in place and must not be shared.
type State struct {
	ID    domain.RunID
	Seq   uint64 // sequence of the last event applied
	Phase Phase
	// Paused is the reason of a pause, empty when the run is not paused.
	Paused string
	Gate   bool   // the norm gate paused it
	Reason string // why it failed or was cancelled
	Spec   Spec
	Data   Dataset

	Base     domain.Digest // present base weights, empty before Initialised
	Momentum domain.Digest // outer momentum, empty before the first merge
	Layout   domain.Digest
	Params   int64
	// Of a coded way down: what the codes have left behind, and the increment that leads from Previous to Base. Empty when
	// there is none.
	Residual  domain.Digest
	Increment domain.Digest
	// Fed is each slot's newest accepted delta, for codecs with feedback: what it lost may be added to the next one.
	Fed  map[domain.SlotID]domain.Digest
	Take Memory // what one slot takes, as the dry step on the first one measured it; zero when it did not

	Chunks    []Chunk // all epochs × chunks per epoch
	NextChunk int     // first chunk no round has owned
	Carried   []domain.ChunkID
	Budget    int // B, fixed by the first round; 0 before
	Merged    int // rounds merged
	Open      *OpenRoundState
	Leases    map[domain.SlotID]*Lease
	Tally     *Tally // of a run that has ended, nil before; Chunks, Carried and Open are gone then

	Ensemble *Ensembling // members of an ensemble, nil in a fused run

	Counted     int64       // samples counted by the ledger
	NormPeak    float64     // highest value NormAverage has had: what was usual when the run took its largest steps
	NormAverage float64     // moving average of norm/√steps over accepted contributions
	Evaluation  *Evaluation // wanted or under way, nil when none
	Evaluations []Evaluated // results, newest last, at most MaxEvaluationsKept
	InitFails   int
	TaskFails   map[domain.SlotID]int          // task errors in a row, by slot
	Refusals    map[domain.MachineID]int       // refused contributions in a row
	Ended       map[domain.SlotID]domain.Epoch // epoch of the slot's last lease that ended
	FencedAt    map[domain.SlotID]domain.Epoch // newest epoch refused as fenced, so that it is recorded once
	Previous    domain.Digest                  // base before the present one: late deltas may still be made from it
	Late        map[domain.SlotID]*LateWork    // what the slot's last lease held at its end, while it may still be adopted
}

// MaxEvaluationsKept bounds the list in the state; the log holds all.
const MaxEvaluationsKept = 64

// OpenRoundState is the round under way, from RoundOpened to RoundMerged.
type OpenRoundState struct {
	Number        int // from 1
	Base          domain.Digest
	Chunks        []domain.ChunkID
	Pool          []domain.ChunkID                   // queued, nobody's
	Shards        map[domain.SlotID][]domain.ChunkID // queued, by slot
	Contributions []Contribution                     // accepted, in order of acceptance
	Numbers       map[domain.SlotID]int              // contributions decided so far: accepted, refused, or cut to nothing
	Counted       int                                // chunks contributed
	Eta, Mu       float64
	Deadline      float64 // seconds from opening, doubled by each extension
	Stalled       bool
	Closed        bool                             // waits for its merge
	NormRefused   map[domain.SlotID]bool           // slots the norm gate refused in this round
	Copies        map[domain.ChunkID]domain.SlotID // second live copies, by the slot whose lease holds them
}

// Contribution is an accepted delta.
type Contribution struct {
	Slot    domain.SlotID
	Number  int
	Chunks  []domain.ChunkID
	Samples int64
	Steps   int
	Blob    domain.Digest
	Codec   Codec
	Base    domain.Digest // of a late delta that was made from the previous round's base
}

// Lease is a unit bound to a slot.
type Lease struct {
	Slot       domain.SlotID
	Epoch      domain.Epoch
	Unit       Unit
	Round      int
	Member     int              // of a member unit, from 1
	Claimed    []domain.ChunkID // claimed, not reported, in claim order
	Trained    []domain.ChunkID // reported since the last contribution, in training order
	Contribute string           // reason of the request, empty when none
	Cut        *int             // chunks to keep, after a cut
	Sealed     bool             // takes no further chunk before its contribution is decided
	Copying    domain.SlotID    // whose chunks it trains copies of, empty when none
	Late       domain.Epoch     // of the ended lease under which its contribution was trained, 0 when under this one
	Base       domain.Digest    // the weights it was trained from, when they are not the round's
}

// Evaluation is a wanted measurement of a model.
type Evaluation struct {
	Round    int // merged rounds at the time; the model is that round's
	Model    domain.Digest
	Final    bool
	Failures int
}

// String names the status as it stands in the picture of a chunk's life.
func (c ChunkStatus) String() string {
	switch c {
	case StatusUnplanned:
		return "unplanned"
	case StatusQueued:
		return "queued"
	case StatusClaimed:
		return "claimed"
	case StatusTrained:
		return "trained"
	case StatusContributed:
		return "contributed"
	case StatusMerged:
		return "merged"
	}
	return "unknown"
}
