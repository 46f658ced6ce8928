// Package hub is the one writer: it takes requests, decides, commits, answers.
//
// Core is a step function over the log, with no goroutine, clock or network of its own; a simulator drives it alone.
// Service is the goroutine around it: it collects inputs, gives time, runs the workers for inspections, merges and
// garbage collection, and carries answers. Nothing else writes to the log. The hub never schedules (domain/plan does),
// never judges (the aggregates do), and never trusts what a message says about its sender.
//
// Callers: cmd wires Service; broker/gateway sends it commands; agents reach it through a Link. DESIGN.md has the path
// of one sync and the reasons.
package hub

import (
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// Input is something that happened to the hub. Core.Step takes a batch of them, decides each in order against the fold
// of the log plus what the batch has decided so far, and commits all events of the batch as one atomic append.
type Input interface{ isInput() }

// The inputs.
type (
	// Sync is an agent's request. Machine comes from the account token, never from the payload.
	Sync struct {
		Machine domain.MachineID
		Request wire.SyncRequest
	}
	// Do is a command from the API: all targets or none.
	Do struct {
		Command domain.CommandID // the caller's id: repeating it is safe
		Actor   event.Actor
		Targets []Target
	}
	// Inspected is a worker's finding on an offered delta.
	Inspected struct {
		Job   InspectJob
		Found run.Inspection
		// Err is set when the store could not be read for a reason that time may heal: try again.
		Err error
	}
	// Merged is a worker's result.
	Merged struct {
		Job      MergeJob
		Base     domain.Digest
		Momentum domain.Digest
		StepNorm float64
		// Residual and Increment of a coded way down, empty without one.
		Residual, Increment domain.Digest
		IncrementBytes      int64
		// BaseBytes and InputBytes are the sizes of the base and of all inputs.
		BaseBytes, InputBytes int64
		// Unreadable lists inputs whose blobs are missing or damaged; Err is any other failure: try again.
		Unreadable []run.MergeInput
		Err        error
	}
	// Unlinked says that a machine's link is closed, as the end of its process closes it. Unless it is heard again within one sync interval
	// it is suspect: nobody needs to wait for longer. A loss is allowed, silence tells the same later.
	Unlinked struct{ Machine domain.MachineID }
	// Tick lets time pass: expiry, deadlines, planning. Full says that the store takes no bytes: a slot that cannot upload
	// shows no progress then, and that is not its fault.
	Tick struct{ Full bool }
)

// Target is one command for one aggregate. Command is a run.Command, machine.Command or pool.Command.
type Target struct {
	Kind    event.Kind
	ID      string
	Command any
}

// Output is something the world around Core must do. Outputs are given only after the batch is durable.
type Output interface{ isOutput() }

// The outputs.
type (
	// Answer answers the input at Index of the batch.
	Answer struct {
		Index int
		Reply *wire.SyncReply // for a Sync
		Err   error           // for a Do that was refused, or any input when the append failed
	}
	// Committed lists the new records, in order: for projections and followers.
	Committed struct{ Events []event.Envelope }
	// Wake hints to a machine that it should sync now.
	Wake struct{ Machine domain.MachineID }
	// Beat is a heartbeat to be stored without waiting.
	Beat struct {
		Machine domain.MachineID
		Data    []byte
	}
	// InspectJob asks a worker to read an offered delta. It is asked again after a restart.
	InspectJob struct {
		Run    domain.RunID
		Slot   domain.SlotID
		Epoch  domain.Epoch
		Number int
		Offer  wire.Offer
		Base   domain.Digest
		Layout domain.Digest
	}
	// MergeJob asks a worker to merge a closed round. It is asked again after a restart.
	MergeJob struct {
		Run      domain.RunID
		Round    int
		Base     domain.Digest
		Momentum domain.Digest
		Inputs   []run.MergeInput
		Eta, Mu  float64
		// Of a coded way down: its codec, and what the codes before have left behind.
		Down     run.Codec
		Residual domain.Digest
	}
	// CutOff asks to end a machine's connection: it is revoked.
	CutOff struct{ Machine domain.MachineID }
	// Admit asks to load a machine's account: it has enrolled.
	Admit struct{ Machine domain.MachineID }
)

func (Sync) isInput()      {}
func (Do) isInput()        {}
func (Inspected) isInput() {}
func (Merged) isInput()    {}
func (Tick) isInput()      {}
func (Unlinked) isInput()  {}

func (Answer) isOutput()     {}
func (Committed) isOutput()  {}
func (Wake) isOutput()       {}
func (Beat) isOutput()       {}
func (InspectJob) isOutput() {}
func (MergeJob) isOutput()   {}
func (CutOff) isOutput()     {}
func (Admit) isOutput()      {}
