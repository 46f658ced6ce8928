package run

import "tensorturn/domain"

// Command is a wish to change a run. Commands of agents carry the epoch they hold; commands of the planner and of the
// hub name the slot alone and act on the lease it holds now.
type Command interface{ isCommand() }

// The commands.
type (
	// Submit begins the run; Spec must be resolved.
	Submit struct {
		Spec Spec
		Data Dataset
		// Anyway takes it although no machine of the pool fits: one may join. The hub looks at it, the log does not keep it.
		Anyway bool
	}
	Pause  struct{ Reason string }
	Resume struct{}
	Cancel struct{ Reason string }

	GrantLease struct {
		Slot   domain.SlotID
		Unit   Unit
		Round  int // the open round, or the round to evaluate
		Member int // of a member unit
		Reason string
	}
	ReleaseLease struct {
		Slot   domain.SlotID
		Reason string
	}
	ExpireLease struct {
		Slot   domain.SlotID
		Reason string
		Silent float64 // seconds
	}
	OpenRound struct {
		Expected float64 // seconds, 0 when unknown; the deadline follows from it and the spec
	}
	AssignShard struct {
		Slot   domain.SlotID
		Chunks []domain.ChunkID // must be in the pool
		Speed  float64
		Reason string
	}
	ReturnShard struct {
		Slot   domain.SlotID
		Reason string
	}
	Steal struct {
		From, To domain.SlotID
		Count    int // chunks from the tail of From's shard
		Gain     float64
		Reason   string
	}
	Claim struct {
		Slot  domain.SlotID
		Count int // chunks from the head of the slot's shard
	}
	RequestContribution struct {
		Slot   domain.SlotID
		Reason string
	}
	ExtendRound struct{ Round int }
	CloseRound  struct{ Round int } // complete, or at the deadline with at least half

	// Initialise reports the first base of the init unit.
	Initialise struct {
		Slot   domain.SlotID
		Epoch  domain.Epoch
		Base   domain.Digest
		Layout domain.Digest
		Params int64
		Take   *Memory // of a dry step, nil when it was not measured
	}
	// ReportTrained says that contribution Number holds one more chunk. The number is needed: a report that was on its
	// way when its contribution was refused must not count for the next one under the same lease.
	ReportTrained struct {
		Slot    domain.SlotID
		Epoch   domain.Epoch
		Number  int
		Chunk   domain.ChunkID
		Steps   int
		Seconds float64
		Loss    float64
	}
	// OfferContribution with Inspection nil asks only whether the offer may be inspected: it yields a cut, a fenced
	// refusal, or nothing. With Inspection it is accepted or refused.
	OfferContribution struct {
		Slot       domain.SlotID
		Epoch      domain.Epoch
		Number     int
		Chunks     []domain.ChunkID // training order
		Boundaries []int            // prefix lengths whose weights the agent still holds, ascending
		Steps      int
		Blob       domain.Digest
		Codec      Codec
		Inspection *Inspection
	}
	RevokeContribution struct {
		Slot   domain.SlotID
		Number int
		Reason string
	}
	RecordMerge struct {
		Round        int
		NextBase     domain.Digest
		NextMomentum domain.Digest
		StepNorm     float64
		BaseBytes    int64 // of the base and of all inputs, as the merge read them
		InputBytes   int64
		// Of a coded way down, which the spec asks for or not; empty otherwise.
		NextResidual   domain.Digest
		Increment      domain.Digest
		IncrementBytes int64
	}
	RecordEvaluation struct {
		Slot     domain.SlotID
		Epoch    domain.Epoch
		Samples  int
		Accuracy float64
		Loss     float64
		R2, MAE  *float64 // of a regression
	}
	// FailTask reports an error of the trainer under the lease.
	FailTask struct {
		Slot  domain.SlotID
		Epoch domain.Epoch
		Error string
		Tail  []string // the last lines that the trainer's program printed, oldest first
	}
)

// Inspection is what the hub's worker found when it read an offered delta from the store.
type Inspection struct {
	Why  Refusal // empty when every measurable gate passed (the norm gate is judged in Decide)
	Note string  // detail for people: which tensor, which position
	Norm float64 // L2 norm of base − local over all float tensors

	Bytes int64 // of the stored delta, 0 when it is not there
}

func (Submit) isCommand()              {}
func (Pause) isCommand()               {}
func (Resume) isCommand()              {}
func (Cancel) isCommand()              {}
func (GrantLease) isCommand()          {}
func (ReleaseLease) isCommand()        {}
func (ExpireLease) isCommand()         {}
func (OpenRound) isCommand()           {}
func (AssignShard) isCommand()         {}
func (ReturnShard) isCommand()         {}
func (Steal) isCommand()               {}
func (Claim) isCommand()               {}
func (RequestContribution) isCommand() {}
func (ExtendRound) isCommand()         {}
func (CloseRound) isCommand()          {}
func (Initialise) isCommand()          {}
func (ReportTrained) isCommand()       {}
func (OfferContribution) isCommand()   {}
func (RevokeContribution) isCommand()  {}
func (RecordMerge) isCommand()         {}
func (RecordEvaluation) isCommand()    {}
func (FailTask) isCommand()            {}
func (RecordCheckpoint) isCommand()    {}
func (RecordMember) isCommand()        {}
func (RecordOutputs) isCommand()       {}
func (DropMember) isCommand()          {}
func (RecordVote) isCommand()          {}
