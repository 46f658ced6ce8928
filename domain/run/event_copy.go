package run

import (
	"fmt"

	"tensorturn/domain"
)

// The facts of work that is done a second time, or too late.
type (
	// ChunksCopied gives a slot a second live copy of chunks that another slot's lease holds. The copies are claimed under
	// the slot's own lease and are a contribution of their own, begun from the round's base. Whoever is accepted first
	// counts a chunk; the other one loses it.
	ChunksCopied struct {
		Slot   domain.SlotID    `msgpack:"slot"`
		Epoch  domain.Epoch     `msgpack:"epoch"`
		From   domain.SlotID    `msgpack:"from"`
		Chunks []domain.ChunkID `msgpack:"chunks"`         // in the order of training: what From reaches last comes first
		Gain   float64          `msgpack:"gain,omitempty"` // seconds by which the finish comes forward, 0 when nobody knows
		Reason string           `msgpack:"reason"`
	}
	// DeltaAdopted takes what a slot trained under a lease that has ended into the lease that it holds now. The chunks were
	// queued; now they are trained under the new epoch.
	DeltaAdopted struct {
		Slot   domain.SlotID    `msgpack:"slot"`
		Epoch  domain.Epoch     `msgpack:"epoch"` // of the lease it is adopted under
		Number int              `msgpack:"number"`
		Late   domain.Epoch     `msgpack:"late"` // of the lease under which it was trained
		Base   domain.Digest    `msgpack:"base"` // weights it was trained from: the round's, or the previous round's
		Chunks []domain.ChunkID `msgpack:"chunks"`
		Left   int              `msgpack:"left,omitempty"`   // chunks behind them that are contributed or claimed elsewhere
		Resume bool             `msgpack:"resume,omitempty"` // the slot goes on training from them; otherwise it contributes them first
	}
)

// The names of these facts.
const (
	NameChunksCopied = "chunks.copied"
	NameDeltaAdopted = "delta.adopted"
)

func (*ChunksCopied) EventName() string { return NameChunksCopied }
func (*DeltaAdopted) EventName() string { return NameDeltaAdopted }

// Line renders the fact.
func (e *ChunksCopied) Line() string {
	return fmt.Sprintf("%s trains copies of %s of %s", e.Slot, named(e.Chunks), e.From) + why(e.Reason)
}

// Line renders the fact.
func (e *DeltaAdopted) Line() string {
	left := ""
	if e.Left > 0 {
		left = fmt.Sprintf(", without %s that others have", plural(e.Left, "chunk"))
	}
	if e.Resume {
		return fmt.Sprintf("%s goes on from %s that it trained under lease %d%s", e.Slot, named(e.Chunks), e.Late, left)
	}
	return fmt.Sprintf("%s may still contribute %s that it trained under lease %d on base %s%s", e.Slot, named(e.Chunks), e.Late, e.Base.Short(), left)
}

// The commands that lead to them.
type (
	// Copy gives Slot copies of the last Count chunks that From's lease holds and nobody has copied.
	Copy struct {
		Slot, From domain.SlotID
		Count      int
		Gain       float64 // seconds, 0 when nobody knows
		Reason     string
	}
	// AdoptDelta offers what the slot trained under a lease that has ended. The slot must hold an empty train lease.
	AdoptDelta struct {
		Slot       domain.SlotID
		Late       domain.Epoch     // of the lease that has ended
		Number     int              // of the contribution for which it was trained
		Chunks     []domain.ChunkID // training order
		Boundaries []int            // prefix lengths whose weights the agent still holds, ascending
		Resume     bool             // go on training from them, if their base is the round's
	}
)

func (Copy) isCommand()       {}
func (AdoptDelta) isCommand() {}
