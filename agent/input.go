package agent

import (
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Input is something that happened to the agent. Results of effects carry the slot and the epoch they were made under;
// Core ignores those of an epoch it no longer holds.
type Input interface{ isInput() }

// Inputs from the outside.
type (
	// Tick lets time pass; Core.Next says when one is due.
	Tick struct{}
	// Replied is the hub's answer to the sync with this counter; older counters are ignored.
	Replied struct {
		Counter uint64
		Reply   *wire.SyncReply
	}
	// SyncFailed says that the sync with this counter got no answer that could be read.
	SyncFailed struct{ Counter uint64 }
	// Woken is the hub's hint, or the link's return: sync now.
	Woken struct{}
	// CredentialSaved says that a fresh credential is in use and half of its life is over in RenewAfter.
	CredentialSaved struct{ RenewAfter time.Duration }
	// StopRequested asks to drain and end (SIGTERM).
	StopRequested struct{}
)

// Results of slot effects.
type (
	// Prepared ends Prepare: the trainer is open and, for a train unit, holds the base weights.
	Prepared struct {
		Slot  int
		Epoch domain.Epoch
	}
	// Moved reports bytes moved since the last report, in any effect.
	Moved struct {
		Slot  int
		Epoch domain.Epoch
		Bytes int64
	}
	// Stepped reports work of Train or RunEvaluate since the last report. Loss is the newest step's.
	Stepped struct {
		Slot    int
		Epoch   domain.Epoch
		Steps   int
		Samples int
		Seconds float64
		Loss    float64
	}
	// ChunkTrained ends Train: the weights hold the chunk and the snapshot of the boundary is on disk.
	ChunkTrained struct {
		Slot    int
		Epoch   domain.Epoch
		Chunk   domain.ChunkID
		Samples int
		Steps   int
		Seconds float64 // training and snapshot
		Loss    float64
		All     bool // the trainer has done the whole member in one go
	}
	// DeltaMade ends MakeDelta: the delta's parts and manifest are in the cache.
	DeltaMade struct {
		Slot     int
		Epoch    domain.Epoch
		Number   int
		Boundary int
		Blob     domain.Digest
	}
	// Uploaded ends Upload: the hub's store has all parts and the manifest.
	Uploaded struct {
		Slot  int
		Epoch domain.Epoch
		Blob  domain.Digest
	}
	// ResetDone ends Reset: the trainer holds the boundary's weights (0: the base).
	ResetDone struct {
		Slot     int
		Epoch    domain.Epoch
		Boundary int
	}
	// InitDone ends RunInit: the first base is in the cache.
	InitDone struct {
		Slot   int
		Epoch  domain.Epoch
		Base   domain.Digest
		Layout domain.Digest
		Params int64
		Take   *run.Memory // of a dry step, nil when it was not measured
	}
	// Evaluated ends RunEvaluate.
	Evaluated struct {
		Slot     int
		Epoch    domain.Epoch
		Samples  int
		Accuracy float64
		Loss     float64
		R2, MAE  *float64 // of a regression
	}
	// MemberKept ends KeepMember. Blob is empty when the trainer keeps no checkpoints.
	MemberKept struct {
		Slot  int
		Epoch domain.Epoch
		Blob  domain.Digest
		Bytes int64 // of the blob
	}
	// MemberFinished ends FinishMember.
	MemberFinished struct {
		Slot    int
		Epoch   domain.Epoch
		Weights domain.Digest
		Layout  domain.Digest
		Params  int64
	}
	// MemberPredicted ends PredictMember. Why says why there are no outputs.
	MemberPredicted struct {
		Slot    int
		Epoch   domain.Epoch
		Outputs run.MemberOutputs
		Why     string
	}
	// TaskError ends any slot effect with the trainer's own failure: it is reported and the slot stops.
	TaskError struct {
		Slot  int
		Epoch domain.Epoch
		Error string
		Tail  []string // the last lines that the trainer's program printed
	}
	// TransferError ends any slot effect with a failure of link or disk: it is tried again after a while. Local says
	// that what lay on this machine's disk is damaged or gone: it must be made again before it can be used.
	TransferError struct {
		Slot  int
		Epoch domain.Epoch
		Error string
		Local bool
	}
)

// Results of effects that belong to no slot.
type (
	// Resent ends UploadAgain. Missing: the cache no longer has the blob.
	Resent struct {
		Blob    domain.Digest
		Missing bool
	}
	// ResendFailed ends UploadAgain with a failure of the link; it is tried again while the hub asks.
	ResendFailed struct{ Blob domain.Digest }
)

func (Tick) isInput()            {}
func (Replied) isInput()         {}
func (SyncFailed) isInput()      {}
func (Woken) isInput()           {}
func (CredentialSaved) isInput() {}
func (StopRequested) isInput()   {}
func (Prepared) isInput()        {}
func (Moved) isInput()           {}
func (Stepped) isInput()         {}
func (ChunkTrained) isInput()    {}
func (DeltaMade) isInput()       {}
func (Uploaded) isInput()        {}
func (ResetDone) isInput()       {}
func (InitDone) isInput()        {}
func (Evaluated) isInput()       {}
func (MemberKept) isInput()      {}
func (MemberFinished) isInput()  {}
func (MemberPredicted) isInput() {}
func (TaskError) isInput()       {}
func (TransferError) isInput()   {}
func (Resent) isInput()          {}
func (ResendFailed) isInput()    {}
