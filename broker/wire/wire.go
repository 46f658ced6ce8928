// Package wire holds what agents and the hub say to each other: subjects, messages and their codec. Bytes from the
// other side are foreign: Decode checks them with domain/pack before anything is built from them.
//
// It decides nothing. The hub side is broker/hub, the agent side is agent.
package wire

import (
	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// Subjects as an agent sees them in its own account; the hub's account sees them with the account token inside
// (design section 2). tt.v1.from.<account>.sync is the service, tt.v1.to.<account>.wake the hint; predictions go the same two
// ways: tt.v1.to.<account>.ask brings a question, tt.v1.from.<account>.answer takes what is said to it.
const (
	LocalSync   = "hub.sync"
	LocalWake   = "hub.wake"
	LocalAsk    = "hub.ask"
	LocalAnswer = "hub.answer"
)

// Version is the protocol's version; the hub refuses another major one by name.
const Version = 1

// SyncRequest is everything an agent says. It states what is, not what changed, so that it is safe to repeat, lose,
// delay and reorder: the hub ignores a counter that is not newer within the same incarnation.
type SyncRequest struct {
	Version     int                `msgpack:"v"`
	Incarnation domain.Incarnation `msgpack:"inc"`     // drawn by each agent process
	Counter     uint64             `msgpack:"n"`       // grows by one with each sync of the incarnation
	Slots       []SlotReport       `msgpack:"slots"`   // all slots of the machine, by index
	Stopping    bool               `msgpack:"stop"`    // the agent was asked to end: drain me
	Head        []byte             `msgpack:"head"`    // newest signed head the agent keeps, may be empty
	Renew       bool               `msgpack:"renew"`   // half of the credential's life is over
	Build       string             `msgpack:"build"`   // version of the agent
	Beat        Telemetry          `msgpack:"beat"`    // measured values for people and planners
	Missing     []domain.Digest    `msgpack:"missing"` // wanted blobs (SyncReply.Wanted) the agent no longer has
	Logs        []LogPiece         `msgpack:"logs,omitempty"`
	Holding     *Holding           `msgpack:"holding,omitempty"` // models it holds for predictions
	Bench       *Bench             `msgpack:"bench,omitempty"`   // the wanted benchmark, until the hub wants it no more
	Labels      map[string]string  `msgpack:"labels,omitempty"`  // it was started with
}

// Telemetry is a machine's state as it measures itself.
type Telemetry struct {
	CPUs   int    `msgpack:"cpus"`
	Memory uint64 `msgpack:"mem"` // bytes of the agent process
	// Goroutines of the agent process: what grows when something is not waited for.
	Goroutines int    `msgpack:"goroutines,omitempty"`
	OS         string `msgpack:"os"`
	Arch       string `msgpack:"arch"`
	// Sandbox is what holds programs of process runs on this machine, and whether it proved itself; empty before that.
	Sandbox string `msgpack:"sandbox,omitempty"`
	// Unmeasured is why the wanted benchmark could not be taken yet; empty when none is wanted or nothing went wrong.
	Unmeasured string `msgpack:"unmeasured,omitempty"`
	// Vitals is what the machine measures of its hardware; nil when nothing was measured anew since the last sync.
	Vitals *machine.Vitals `msgpack:"vitals,omitempty"`
}

// Bench is a benchmark that was taken.
type Bench struct {
	Number int           `msgpack:"n"`
	Score  machine.Score `msgpack:"score"`
}

// Phase is what a slot is doing.
type Phase string

// The phases of a slot.
const (
	PhaseIdle      Phase = "idle"
	PhasePreparing Phase = "preparing" // fetching data and base, opening the trainer
	PhaseReady     Phase = "ready"     // waiting for a claim
	PhaseTraining  Phase = "training"
	PhaseUploading Phase = "uploading" // making or sending a delta
	PhaseOffered   Phase = "offered"   // the delta is in the store, waiting for the hub's word
	PhaseInit      Phase = "init"
	PhaseEvaluate  Phase = "evaluate"
	PhasePredict   Phase = "predict" // a trained member's outputs on the held-out rows
)

// SlotReport is what one slot holds and has done.
type SlotReport struct {
	Index  int          `msgpack:"i"`
	Run    domain.RunID `msgpack:"run"`   // empty when the slot holds no lease
	Epoch  domain.Epoch `msgpack:"epoch"` // the lease held
	Phase  Phase        `msgpack:"phase"`
	Number int          `msgpack:"num"` // contribution under way: its chunks are in Trained
	// Trained lists, in training order, the chunks in the slot's local weights since its last contribution.
	Trained []TrainedChunk `msgpack:"trained"`
	// Progress grows whenever anything moves: optimizer steps plus bytes moved. The hub renews on growth only.
	Progress uint64   `msgpack:"prog"`
	Offer    *Offer   `msgpack:"offer"`            // the finished delta of contribution Number
	Init     *Init    `msgpack:"init"`             // result of an init unit
	Eval     *Eval    `msgpack:"eval"`             // result of an evaluate unit
	Error    string   `msgpack:"error"`            // the trainer's failure under this lease; the slot has stopped
	Tail     []string `msgpack:"tail,omitempty"`   // with Error: the last lines that the trainer's program printed
	Loss     *float64 `msgpack:"loss"`             // running training loss, nil when unknown
	Speed    float64  `msgpack:"speed"`            // samples per second while training, measured by the agent, 0 when unknown
	Member   *Member  `msgpack:"member,omitempty"` // of a member unit
	Upload   float64  `msgpack:"upload"`           // seconds the last delta took to make and send, 0 when unknown
	// Boundaries are the prefix lengths of Trained whose weights are still held, ascending.
	Boundaries []int `msgpack:"bounds,omitempty"`
	// Late is what the slot trained under a lease that has ended. It holds it until the hub adopts it or gives the slot
	// something else to do.
	Late *Late `msgpack:"late,omitempty"`
	// Away says why the slot cannot or shall not work now, nil when it can.
	Away *Away `msgpack:"away,omitempty"`
}

// Away is why a slot is paused at its agent's word.
type Away struct {
	Cause  machine.Cause `msgpack:"cause"`
	Reason string        `msgpack:"reason"`
}

// Late is trained work that has outlived its lease.
type Late struct {
	Run        domain.RunID     `msgpack:"run"`
	Epoch      domain.Epoch     `msgpack:"epoch"`            // of the lease that has ended
	Number     int              `msgpack:"number,omitempty"` // of the contribution for which it was trained
	Chunks     []domain.ChunkID `msgpack:"chunks"`
	Boundaries []int            `msgpack:"bounds"`
}

// TrainedChunk is one chunk in local weights.
type TrainedChunk struct {
	Chunk   domain.ChunkID `msgpack:"c"`
	Steps   int            `msgpack:"s"`
	Seconds float64        `msgpack:"t"` // on the agent's clock
	Loss    float64        `msgpack:"l"`
}

// Offer is a delta whose parts and manifest are stored.
type Offer struct {
	Chunks     []domain.ChunkID `msgpack:"chunks"` // training order
	Boundaries []int            `msgpack:"bounds"` // prefix lengths whose weights are still held
	Steps      int              `msgpack:"steps"`
	Blob       domain.Digest    `msgpack:"blob"`
	Codec      run.Codec        `msgpack:"codec"`
}

// Member is how far the slot is with its member. What is stored stands in every report until the lease ends.
type Member struct {
	Chunks     int                `msgpack:"chunks"` // in its weights, from the member's beginning
	Checkpoint *Checkpoint        `msgpack:"checkpoint,omitempty"`
	Trained    *TrainedMember     `msgpack:"trained,omitempty"`
	Outputs    *run.MemberOutputs `msgpack:"outputs,omitempty"`
	Mute       string             `msgpack:"mute,omitempty"` // why there are no outputs
}

// Checkpoint is a member's weights, optimizer state and position, stored. Blob is empty when the slot was asked to give its
// member back and has nothing beyond the newest one.
type Checkpoint struct {
	Chunks int           `msgpack:"chunks"`
	Blob   domain.Digest `msgpack:"blob"`
	Loss   float64       `msgpack:"loss"`
	Bytes  int64         `msgpack:"bytes,omitempty"` // of the blob, for the account of what travels
}

// TrainedMember is a member whose weights are stored.
type TrainedMember struct {
	Weights domain.Digest `msgpack:"weights"`
	Layout  domain.Digest `msgpack:"layout"`
	Params  int64         `msgpack:"params"`
	Loss    float64       `msgpack:"loss"`
}

// Init is the result of an init unit.
type Init struct {
	Base   domain.Digest `msgpack:"base"`
	Layout domain.Digest `msgpack:"layout"`
	Params int64         `msgpack:"params"`
	Take   *run.Memory   `msgpack:"take,omitempty"` // what a dry step took, nil when it was not measured
}

// Eval is the result of an evaluate unit.
type Eval struct {
	Samples  int     `msgpack:"samples"`
	Accuracy float64 `msgpack:"acc"`
	Loss     float64 `msgpack:"loss"`

	R2  *float64 `msgpack:"r2,omitempty"` // of a regression
	MAE *float64 `msgpack:"mae,omitempty"`
}

// SyncReply is the hub's word: what every slot of the machine should be doing.
type SyncReply struct {
	Slots      []SlotDesire    `msgpack:"slots"`    // every slot of the machine, by index
	Interval   float64         `msgpack:"interval"` // seconds until the next sync if nothing happens
	Lease      float64         `msgpack:"lease"`    // L in seconds
	Time       int64           `msgpack:"time"`     // hub's clock, unix milliseconds, for people only
	Stop       bool            `msgpack:"stop"`     // drained: the agent may end
	Head       []byte          `msgpack:"head"`     // newest signed head
	Credential string          `msgpack:"cred"`     // fresh user JWT, when asked or due
	Wanted     []domain.Digest `msgpack:"wanted"`   // blobs the hub cannot read and asks for again
	Merged     []MergedRound   `msgpack:"merged"`   // per run the machine works for: deltas up to this round may go
	Error      *Error          `msgpack:"error"`    // the hub cannot serve: keep computing, ask again
	Logs       []LogWish       `msgpack:"logs,omitempty"`
	Holds      *Holds          `msgpack:"holds,omitempty"` // models to hold for predictions; nil: as said before
	Rest       *machine.Rest   `msgpack:"rest,omitempty"`  // when to rest by itself, beside the agent's own flags; nil: never
	Bench      int             `msgpack:"bench,omitempty"` // number of the benchmark to take while no slot has work, 0 for none
}

// LogWish asks for a piece of what a program of a process run printed on this machine. Agents are behind NAT: the hub can
// only wish in a reply, and the piece comes with the next request. Pieces are short, so that the link stays quick.
type LogWish struct {
	ID      uint64       `msgpack:"id"` // the hub's, to match the piece
	Run     domain.RunID `msgpack:"run"`
	Attempt int          `msgpack:"attempt"` // AnyAttempt for the newest
	Member  int          `msgpack:"member"`  // AnyMember for any
	From    int64        `msgpack:"from"`    // bytes from the beginning of what was printed; negative: from its end
	Bytes   int          `msgpack:"bytes"`   // at most, 1 to MaxLogPiece
}

// What a wish says that does not care.
const (
	AnyAttempt = -1
	AnyMember  = -1
)

// LogPiece is the agent's answer to a wish: bytes From to From+len(Data) of the attempt's log.
type LogPiece struct {
	ID      uint64    `msgpack:"id"`
	Found   bool      `msgpack:"found"` // there is such a log
	Log     LogFile   `msgpack:"log"`
	From    int64     `msgpack:"from"` // where Data begins; behind the wish's when older bytes are gone
	Data    []byte    `msgpack:"data,omitempty"`
	Others  []LogFile `msgpack:"others,omitempty"` // every log of the run on this machine, oldest first, at most MaxLogFiles
	Problem string    `msgpack:"problem,omitempty"`
}

// LogFile describes what one attempt printed.
type LogFile struct {
	Attempt int   `msgpack:"attempt"`
	Member  int   `msgpack:"member"`  // AnyMember in a fused run
	Bytes   int64 `msgpack:"bytes"`   // printed so far
	Open    bool  `msgpack:"open"`    // the program still runs
	Changed int64 `msgpack:"changed"` // unix seconds of the newest line
}

// MergedRound says up to which round a run's deltas are in the log.
type MergedRound struct {
	Run   domain.RunID `msgpack:"run"`
	Round int          `msgpack:"round"`
}

// SlotDesire is what one slot should do. An empty Run means: hold nothing.
type SlotDesire struct {
	Index int           `msgpack:"i"`
	Run   domain.RunID  `msgpack:"run"`
	Epoch domain.Epoch  `msgpack:"epoch"`
	Unit  run.Unit      `msgpack:"unit"`
	Round int           `msgpack:"round"`
	Job   *Job          `msgpack:"job"`  // set whenever the agent did not report this epoch as held
	Base  domain.Digest `msgpack:"base"` // weights to start from; for evaluate, the model
	// Increment: who holds the weights From gets Base by adding it, instead of fetching the whole.
	Increment *Increment `msgpack:"incr,omitempty"`
	// Fed: the slot's newest delta that counts, where codecs feed back what they lose; empty when there is none.
	Fed    domain.Digest    `msgpack:"fed,omitempty"`
	Number int              `msgpack:"num"`    // present contribution; a higher one than held: reset to Base
	Claims []domain.ChunkID `msgpack:"claims"` // all chunks of this contribution, trained ones first
	// Contribute: train no further chunk, finish the one under way, offer what is trained.
	Contribute bool `msgpack:"contribute"`
	// Cut: keep this many chunks in training order and offer their delta; nil when there is none.
	Cut *int `msgpack:"cut"`
	// Adopt: what was trained under another epoch becomes this lease's contribution.
	Adopt *Adopt `msgpack:"adopt,omitempty"`
	// Of a member unit: which member; how many chunks its newest checkpoint (Base, empty for none) holds; and whether its
	// weights are in the log, so that Base is these and only its outputs are wanted. Contribute: keep a checkpoint, give it back.
	Member  int  `msgpack:"member,omitempty"`
	Saved   int  `msgpack:"saved,omitempty"`
	Trained bool `msgpack:"trained,omitempty"`
	// Accepted: the init or evaluation result is in the log, or the error is; the slot may forget it.
	Done bool `msgpack:"done"`
}

// Increment is a coded difference between two bases.
type Increment struct {
	Blob  domain.Digest `msgpack:"blob"`
	From  domain.Digest `msgpack:"from"`
	Codec run.Codec     `msgpack:"codec"`
}

// Adopt says that the first Keep chunks trained under lease Late are the first ones under the slot's present one.
type Adopt struct {
	Late domain.Epoch `msgpack:"late"`
	Keep int          `msgpack:"keep"`
}

// Job is what a trainer needs to know of its run.
type Job struct {
	Spec   run.Spec      `msgpack:"spec"`
	Data   run.Dataset   `msgpack:"data"`
	Layout domain.Digest `msgpack:"layout"` // empty for init
}

// Error is a refusal that crosses the wire and keeps its kind.
type Error struct {
	Kind domain.Kind `msgpack:"kind"`
	Why  string      `msgpack:"why"`
	Next string      `msgpack:"next"`
}
