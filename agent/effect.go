package agent

import (
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// KeptBoundaries is how many snapshots of chunk boundaries a slot keeps, the newest ones; the base is a boundary as
// well and always there (design section 5).
const KeptBoundaries = 4

// Effect is something the world around Core must do. A slot has at most one effect under way (Prepare, Train,
// MakeDelta, Upload, Reset, RunInit, RunEvaluate); each ends with exactly one result: its own, TaskError or
// TransferError. Effects of one slot are performed in the order given.
type Effect interface{ isEffect() }

// Effects on a slot.
type (
	// Prepare makes the slot able to work for the unit: fetch the data's manifest and the base, open the run's trainer
	// (or go on with the open one), check its layout, for a train unit load the base. Ends with Prepared.
	Prepare struct {
		Slot  int
		Epoch domain.Epoch
		Run   domain.RunID
		Unit  run.Unit
		Round int // of the lease
		Job   wire.Job
		Base  domain.Digest // empty for an init unit, and for a member that begins anew
		// Increment leads to Base from weights that may be in the cache; nil: Base is fetched whole.
		Increment *wire.Increment
		// Of a member: which one, and whether Base is its trained weights rather than a checkpoint.
		Member  int
		Trained bool
		// Of a train unit whose first Keep chunks were trained before, 0 for none: their snapshots stay, for contribution Number.
		Keep, Number int
	}
	// Train trains one chunk on the present weights and saves them as the snapshot of Boundary, the number of chunks
	// they then hold; of the snapshots the newest KeptBoundaries stay. Ends with ChunkTrained.
	Train struct {
		Slot     int
		Epoch    domain.Epoch
		Number   int // of the contribution
		Chunk    domain.ChunkID
		Boundary int
	}
	// MakeDelta encodes the difference between the base and the boundary's snapshot. Ends with DeltaMade.
	MakeDelta struct {
		Slot     int
		Epoch    domain.Epoch
		Run      domain.RunID
		Round    int // the delta is kept until this round is in the log (DropDeltas)
		Number   int
		Boundary int
		Base     domain.Digest
		Codec    run.Codec
		// Of a codec with feedback: the samples of this delta by the job, and the slot's newest delta that counts.
		Samples int64
		Fed     domain.Digest
	}
	// Upload sends what the hub's store lacks of a blob in the cache. Ends with Uploaded.
	Upload struct {
		Slot  int
		Epoch domain.Epoch
		Blob  domain.Digest
	}
	// Reset loads the boundary's snapshot, or the base for 0, into the trainer. Ends with ResetDone.
	Reset struct {
		Slot     int
		Epoch    domain.Epoch
		Boundary int
		Base     domain.Digest
	}
	// RunInit makes the first weights from the seed and puts them into the cache. Ends with InitDone.
	RunInit struct {
		Slot  int
		Epoch domain.Epoch
	}
	// RunEvaluate loads the model and measures it on held-out data. Ends with Evaluated.
	RunEvaluate struct {
		Slot  int
		Epoch domain.Epoch
		Model domain.Digest
	}
	// KeepMember puts the member's weights and optimizer state into the cache. Ends with MemberKept.
	KeepMember struct {
		Slot  int
		Epoch domain.Epoch
	}
	// FinishMember puts the trained member's weights into the cache. Ends with MemberFinished.
	FinishMember struct {
		Slot  int
		Epoch domain.Epoch
	}
	// PredictMember has the trained member answer all held-out rows and puts the answers into the cache. Ends with MemberPredicted.
	PredictMember struct {
		Slot  int
		Epoch domain.Epoch
	}
	// Abandon ends the work under an epoch at once and forgets its snapshots, unless Keep says otherwise. It has no result; a
	// result of the epoch that still comes is ignored. The trainer stays open unless the work had to be torn off.
	Abandon struct {
		Slot  int
		Epoch domain.Epoch
		Keep  bool // the snapshots stay: the hub may still adopt what was trained
	}
	// CloseTrainer frees the trainer of a slot that has been without work for long. It has no result.
	CloseTrainer struct{ Slot int }
)

// Effects on the agent.
type (
	// SendSync sends the request; the performer adds telemetry. Ends with Replied or SyncFailed, once.
	SendSync struct{ Request wire.SyncRequest }
	// UploadAgain sends a blob the hub cannot read any more. Ends with Resent or ResendFailed. One at a time.
	UploadAgain struct{ Blob domain.Digest }
	// DropDeltas says that the run's deltas up to this round are in the log and may go.
	DropDeltas struct {
		Run   domain.RunID
		Round int
	}
	// SaveHead keeps the newest signed head of the log.
	SaveHead struct{ Head []byte }
	// SaveCredential keeps and uses a fresh credential. Ends with CredentialSaved when that worked.
	SaveCredential struct{ JWT string }
	// Exit ends the agent. Nothing follows it.
	Exit struct{ Reason string }
)

func (Prepare) isEffect()        {}
func (Train) isEffect()          {}
func (MakeDelta) isEffect()      {}
func (Upload) isEffect()         {}
func (Reset) isEffect()          {}
func (RunInit) isEffect()        {}
func (RunEvaluate) isEffect()    {}
func (KeepMember) isEffect()     {}
func (FinishMember) isEffect()   {}
func (PredictMember) isEffect()  {}
func (Abandon) isEffect()        {}
func (CloseTrainer) isEffect()   {}
func (SendSync) isEffect()       {}
func (UploadAgain) isEffect()    {}
func (DropDeltas) isEffect()     {}
func (SaveHead) isEffect()       {}
func (SaveCredential) isEffect() {}
func (Exit) isEffect()           {}
