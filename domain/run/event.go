package run

import "tensorturn/domain"

// Unit says what a lease is for.
type Unit string

// The units of a fused run.
const (
	UnitInit     Unit = "init"     // make the first base weights from the seed
	UnitTrain    Unit = "train"    // train chunks of one round
	UnitEvaluate Unit = "evaluate" // measure a model on held-out data
)

// The facts of a run, in the order in which a run meets them. Field comments give units where a name does not.
// Every list of chunks is in the order that matters to the fact (training order, queue order), never a map's.
type (
	// Submitted begins a run.
	Submitted struct {
		Spec Spec    `msgpack:"spec"`
		Data Dataset `msgpack:"data"`
	}
	// Paused stops the granting of new work; what runs may contribute.
	Paused struct {
		Reason string `msgpack:"reason"`
		Gate   bool   `msgpack:"gate,omitempty"` // the norm gate refused every slot of a round: a person must look
	}
	// Resumed ends a pause.
	Resumed struct{}
	// Cancelled ends a run by its owner's wish.
	Cancelled struct {
		Reason string `msgpack:"reason"`
	}
	// Failed ends a run that cannot go on.
	Failed struct {
		Reason string `msgpack:"reason"`
	}
	// Completed ends a run with a model.
	Completed struct {
		Model     domain.Digest `msgpack:"model"`
		Samples   int64         `msgpack:"samples"`           // counted by the ledger
		Evaluated bool          `msgpack:"evaluated"`         // false: failed MaxEvaluationFailures times, or nothing was held out
		Members   int           `msgpack:"members,omitempty"` // of an ensemble, which has no one model: how many are in
	}

	// LeaseGranted binds a unit to a slot. Its epoch is the sequence of this record.
	LeaseGranted struct {
		Slot   domain.SlotID `msgpack:"slot"`
		Unit   Unit          `msgpack:"unit"`
		Round  int           `msgpack:"round"`
		Reason string        `msgpack:"reason"`
		Member int           `msgpack:"member,omitempty"` // of a member unit
		Single bool          `msgpack:"single,omitempty"` // it is the model that is compared, not a voter
	}
	// LeaseReleased ends a lease in good order; Returned goes back to the pool.
	LeaseReleased struct {
		Slot     domain.SlotID    `msgpack:"slot"`
		Epoch    domain.Epoch     `msgpack:"epoch"`
		Reason   string           `msgpack:"reason"` // "idle", "drained", "round closed", "cancelled", "done"
		Returned []domain.ChunkID `msgpack:"returned,omitempty"`
	}
	// LeaseExpired ends a lease whose holder showed no progress or restarted; Requeued goes back to the pool.
	LeaseExpired struct {
		Slot     domain.SlotID    `msgpack:"slot"`
		Epoch    domain.Epoch     `msgpack:"epoch"`
		Reason   string           `msgpack:"reason"` // "no contact", "no progress", "agent restarted", "machine revoked"
		Silent   float64          `msgpack:"silent"` // seconds since the last renewal, as the hub measured it
		Requeued []domain.ChunkID `msgpack:"requeued,omitempty"`
	}
	// TaskFailed is an error of the trainer, not of a machine or link. It ends the lease.
	TaskFailed struct {
		Slot     domain.SlotID    `msgpack:"slot"`
		Epoch    domain.Epoch     `msgpack:"epoch"`
		Unit     Unit             `msgpack:"unit"`
		Error    string           `msgpack:"error"`
		Count    int              `msgpack:"count"` // failures of this unit so far
		Returned []domain.ChunkID `msgpack:"returned,omitempty"`
		Tail     []string         `msgpack:"tail,omitempty"` // the last lines that the program printed, at most MaxTailLines
	}

	// Initialised gives the run its first base.
	Initialised struct {
		Slot   domain.SlotID `msgpack:"slot"`
		Epoch  domain.Epoch  `msgpack:"epoch"`
		Base   domain.Digest `msgpack:"base"`
		Layout domain.Digest `msgpack:"layout"`         // digest of names, shapes and dtypes in canonical order
		Params int64         `msgpack:"params"`         // float parameters
		Take   *Memory       `msgpack:"take,omitempty"` // what a dry step took on the slot, nil when it was not measured
	}

	// RoundOpened puts chunks into the pool of a new round. The first one fixes B.
	RoundOpened struct {
		Round    int              `msgpack:"round"`
		Base     domain.Digest    `msgpack:"base"`
		Chunks   []domain.ChunkID `msgpack:"chunks"`             // carried ones first, then this round's own
		Carried  int              `msgpack:"carried"`            // how many of them were carried over
		Eta      float64          `msgpack:"eta"`                // outer learning rate
		Mu       float64          `msgpack:"mu"`                 // outer momentum
		Expected float64          `msgpack:"expected,omitempty"` // predicted seconds, 0 when no speed is known
		Deadline float64          `msgpack:"deadline"`           // seconds from now on the hub's clock
	}
	// ShardAssigned moves chunks from the pool to the tail of a slot's shard.
	ShardAssigned struct {
		Slot   domain.SlotID    `msgpack:"slot"`
		Chunks []domain.ChunkID `msgpack:"chunks"`
		Speed  float64          `msgpack:"speed"` // samples per second used for the decision, 0 when unknown
		Reason string           `msgpack:"reason"`
	}
	// ShardReturned moves chunks from a slot's shard back to the pool.
	ShardReturned struct {
		Slot   domain.SlotID    `msgpack:"slot"`
		Chunks []domain.ChunkID `msgpack:"chunks"`
		Reason string           `msgpack:"reason"`
	}
	// ChunksStolen moves chunks from the tail of one shard to the tail of another.
	ChunksStolen struct {
		From   domain.SlotID    `msgpack:"from"`
		To     domain.SlotID    `msgpack:"to"`
		Chunks []domain.ChunkID `msgpack:"chunks"`
		Gain   float64          `msgpack:"gain"` // seconds by which the finish comes forward
		Reason string           `msgpack:"reason"`
	}
	// ChunksClaimed moves chunks from the head of a slot's shard into its lease.
	ChunksClaimed struct {
		Slot   domain.SlotID    `msgpack:"slot"`
		Epoch  domain.Epoch     `msgpack:"epoch"`
		Chunks []domain.ChunkID `msgpack:"chunks"`
	}
	// ChunkTrained says that the slot's local weights now hold the chunk.
	ChunkTrained struct {
		Slot    domain.SlotID  `msgpack:"slot"`
		Epoch   domain.Epoch   `msgpack:"epoch"`
		Chunk   domain.ChunkID `msgpack:"chunk"`
		Steps   int            `msgpack:"steps"`
		Seconds float64        `msgpack:"seconds"` // on the agent's clock
		Loss    float64        `msgpack:"loss"`    // mean training loss of the chunk
	}

	// ContributionRequested tells a slot to stop claiming and upload what it has trained.
	ContributionRequested struct {
		Slot   domain.SlotID `msgpack:"slot"`
		Epoch  domain.Epoch  `msgpack:"epoch"`
		Number int           `msgpack:"number"`
		Reason string        `msgpack:"reason"`           // "nothing left", "limit", "drain", "deadline"
		Member int           `msgpack:"member,omitempty"` // of a member unit: to be kept in the store and given back
	}
	// ContributionAccepted counts chunks in the ledger.
	ContributionAccepted struct {
		Slot     domain.SlotID    `msgpack:"slot"`
		Epoch    domain.Epoch     `msgpack:"epoch"`
		Number   int              `msgpack:"number"`
		Chunks   []domain.ChunkID `msgpack:"chunks"`  // training order
		Samples  int64            `msgpack:"samples"` // by the ledger: the delta's weight
		Steps    int              `msgpack:"steps"`   // by the ledger, as the norm gate uses them
		Blob     domain.Digest    `msgpack:"blob"`
		Codec    Codec            `msgpack:"codec"`
		Norm     float64          `msgpack:"norm"`            // L2 norm of the delta
		Limit    float64          `msgpack:"limit,omitempty"` // the norm gate's limit on norm/√steps, 0 when it was not in force
		Returned []domain.ChunkID `msgpack:"returned,omitempty"`
		Bytes    int64            `msgpack:"bytes,omitempty"` // of the stored delta, as the inspection read it
		Base     domain.Digest    `msgpack:"base,omitempty"`  // a late delta's, when it is the previous round's and not this round's
	}
	// ContributionRefused returns the chunks of a contribution that failed a gate.
	ContributionRefused struct {
		Slot     domain.SlotID    `msgpack:"slot"`
		Epoch    domain.Epoch     `msgpack:"epoch"`
		Number   int              `msgpack:"number"`
		Blob     domain.Digest    `msgpack:"blob"`
		Why      Refusal          `msgpack:"why"`
		Reason   string           `msgpack:"reason"`
		Norm     float64          `msgpack:"norm,omitempty"`
		Limit    float64          `msgpack:"limit,omitempty"`
		Returned []domain.ChunkID `msgpack:"returned,omitempty"`
		Bytes    int64            `msgpack:"bytes,omitempty"` // of the stored delta, 0 when nobody read it
	}
	// ContributionCut asks the slot for the delta of its first Keep chunks and returns the rest.
	ContributionCut struct {
		Slot     domain.SlotID    `msgpack:"slot"`
		Epoch    domain.Epoch     `msgpack:"epoch"`
		Number   int              `msgpack:"number"`
		Keep     int              `msgpack:"keep"` // chunks kept, in training order; 0 starts again from the base
		Returned []domain.ChunkID `msgpack:"returned,omitempty"`
		Others   []domain.ChunkID `msgpack:"others,omitempty"` // chunks behind the cut of which another slot has a copy
		Reason   string           `msgpack:"reason"`
	}
	// ContributionRevoked takes an accepted contribution out of the ledger because its delta cannot be read.
	ContributionRevoked struct {
		Slot     domain.SlotID    `msgpack:"slot"`
		Number   int              `msgpack:"number"`
		Blob     domain.Digest    `msgpack:"blob"`
		Samples  int64            `msgpack:"samples"`
		Returned []domain.ChunkID `msgpack:"returned"`
		Reason   string           `msgpack:"reason"`
	}

	// RoundExtended doubles the deadline of a round that is below half of its chunks.
	RoundExtended struct {
		Round    int     `msgpack:"round"`
		Counted  int     `msgpack:"counted"` // chunks
		Chunks   int     `msgpack:"chunks"`
		Deadline float64 `msgpack:"deadline"` // seconds from the round's opening
	}
	// RoundClosed fixes what the round's merge will read. All train leases of the round are released just before it.
	RoundClosed struct {
		Round   int              `msgpack:"round"`
		Reason  string           `msgpack:"reason"` // "complete" or "deadline"
		Counted int              `msgpack:"counted"`
		Missing []domain.ChunkID `msgpack:"missing,omitempty"` // carried to the next round
	}
	// RoundMerged gives the run its next base. Anyone can recompute it from the named blobs. Without inputs (the only
	// contribution was revoked) base and momentum stay what they were.
	RoundMerged struct {
		Round        int           `msgpack:"round"`
		Base         domain.Digest `msgpack:"base"`
		Momentum     domain.Digest `msgpack:"momentum,omitempty"` // momentum before, empty in the first round
		Inputs       []MergeInput  `msgpack:"inputs"`             // ordered by (slot, number)
		Eta          float64       `msgpack:"eta"`
		Mu           float64       `msgpack:"mu"`
		NextBase     domain.Digest `msgpack:"next_base"`
		NextMomentum domain.Digest `msgpack:"next_momentum"`
		StepNorm     float64       `msgpack:"step_norm"`             // L2 norm of the applied outer step
		BaseBytes    int64         `msgpack:"base_bytes,omitempty"`  // of the stored base: what a machine fetched for the round
		InputBytes   int64         `msgpack:"input_bytes,omitempty"` // of all inputs
		// Of a coded way down: its codec, what the codes before left behind and what this one does, and the increment that
		// leads from Base to NextBase.
		Down           Codec         `msgpack:"down,omitempty"`
		Residual       domain.Digest `msgpack:"residual,omitempty"` // before, empty in the first round
		NextResidual   domain.Digest `msgpack:"next_residual,omitempty"`
		Increment      domain.Digest `msgpack:"increment,omitempty"`
		IncrementBytes int64         `msgpack:"increment_bytes,omitempty"` // of the stored increment
	}
	// Evaluated is a model measured on held-out data.
	Evaluated struct {
		Round    int           `json:"round" msgpack:"round"`
		Slot     domain.SlotID `json:"slot" msgpack:"slot"`
		Epoch    domain.Epoch  `json:"epoch" msgpack:"epoch"`
		Model    domain.Digest `json:"model" msgpack:"model"`
		Samples  int           `json:"samples" msgpack:"samples"`
		Accuracy float64       `json:"accuracy" msgpack:"accuracy"` // fraction
		Loss     float64       `json:"loss" msgpack:"loss"`         // mean cross-entropy, nats; of a regression the mean squared error
		// Of a regression alone: 1 − squared error / variance (absent where the numbers are all equal), and the mean absolute error.
		R2  *float64 `json:"r2,omitempty" msgpack:"r2,omitempty"`
		MAE *float64 `json:"mae,omitempty" msgpack:"mae,omitempty"`
	}
	// EvaluationFailed is an attempt to evaluate that ended in an error. It ends the lease.
	EvaluationFailed struct {
		Round  int           `msgpack:"round"`
		Slot   domain.SlotID `msgpack:"slot"`
		Epoch  domain.Epoch  `msgpack:"epoch"`
		Error  string        `msgpack:"error"`
		Count  int           `msgpack:"count"`
		GaveUp bool          `msgpack:"gave_up"`
		Tail   []string      `msgpack:"tail,omitempty"` // as in TaskFailed
	}
)

// MergeInput is one contribution as the merge read it.
type MergeInput struct {
	Slot    domain.SlotID `msgpack:"slot"`
	Number  int           `msgpack:"number"`
	Blob    domain.Digest `msgpack:"blob"`
	Codec   Codec         `msgpack:"codec"`
	Samples int64         `msgpack:"samples"`        // weight; one made from another base weighs four fifths
	Base    domain.Digest `msgpack:"base,omitempty"` // a late delta's, when it is the previous round's and not this round's
}

// Refusal is why a contribution was not counted.
type Refusal string

// The refusals.
const (
	RefusedFenced     Refusal = "fenced"     // old epoch
	RefusedUnreadable Refusal = "unreadable" // truncated, wrong digest, not a delta
	RefusedBase       Refusal = "base"       // made from another base
	RefusedLayout     Refusal = "layout"     // names, shapes or dtypes differ
	RefusedNotFinite  Refusal = "not_finite" // NaN or Inf
	RefusedNorm       Refusal = "norm"       // the norm gate
)
