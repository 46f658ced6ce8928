package run

import (
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// training finds the slot's lease on the open round for a command of the planner.
func training(s *State, c Command, slot domain.SlotID) (*Lease, error) {
	if err := live(s, c); err != nil {
		return nil, err
	}
	l := s.TrainLease(slot)
	if l == nil || s.Open == nil || s.Open.Closed {
		return nil, conflict(c, "%s trains no round", slot)
	}
	return l, nil
}

// decideAssign moves chunks from the pool into the slot's shard.
func decideAssign(s *State, c AssignShard) ([]event.Data, error) {
	if err := working(s, c); err != nil {
		return nil, err
	}
	if _, err := training(s, c, c.Slot); err != nil {
		return nil, err
	}
	if len(c.Chunks) == 0 || len(c.Chunks) > MaxRoundChunks {
		return nil, invalid(c, "%d chunks, allowed are 1 to %d", len(c.Chunks), MaxRoundChunks)
	}
	for _, chunk := range c.Chunks {
		if !s.pooled(chunk) {
			return nil, conflict(c, "chunk %d is not in the pool", chunk)
		}
	}
	if twice, ok := repeated(c.Chunks); ok {
		return nil, invalid(c, "chunk %d stands there twice", twice)
	}
	return one(&ShardAssigned{Slot: c.Slot, Chunks: slices.Clone(c.Chunks), Speed: c.Speed, Reason: reasonOr(c.Reason, "planned")})
}

// holds reports whether the slot's lease holds the chunk in that state.
func (s *State) holds(slot domain.SlotID, c domain.ChunkID, status ChunkStatus) bool {
	return c >= 0 && int(c) < len(s.Chunks) && s.Chunks[c] == Chunk{Status: status, Slot: slot}
}

// pooled reports whether the chunk is queued and nobody's.
func (s *State) pooled(c domain.ChunkID) bool {
	return s.holds("", c, StatusQueued)
}

// repeated finds a chunk that stands in the list twice. Ascending lists, the usual ones, need no set.
func repeated(cs []domain.ChunkID) (domain.ChunkID, bool) {
	ascending := true
	for i := 1; i < len(cs) && ascending; i++ {
		ascending = cs[i] > cs[i-1]
	}
	if ascending {
		return 0, false
	}
	seen := make(map[domain.ChunkID]bool, len(cs))
	for _, c := range cs {
		if seen[c] {
			return c, true
		}
		seen[c] = true
	}
	return 0, false
}

// decideReturn empties a slot's shard into the pool.
func decideReturn(s *State, c ReturnShard) ([]event.Data, error) {
	if err := live(s, c); err != nil {
		return nil, err
	}
	shard := s.ShardOf(c.Slot)
	if len(shard) == 0 {
		return nil, nil
	}
	return one(&ShardReturned{Slot: c.Slot, Chunks: slices.Clone(shard), Reason: reasonOr(c.Reason, "planned")})
}

// decideSteal moves the tail of one shard to another. A chunk claimed since the planner looked is no longer there, and
// the steal is refused: its gain was computed for other chunks.
func decideSteal(s *State, c Steal) ([]event.Data, error) {
	if err := working(s, c); err != nil {
		return nil, err
	}
	if _, err := training(s, c, c.To); err != nil {
		return nil, err
	}
	shard := s.ShardOf(c.From)
	if c.From == c.To || c.Count < 1 || !finite(c.Gain) {
		return nil, invalid(c, "%d chunks from %s to %s", c.Count, c.From, c.To)
	}
	if c.Count > len(shard) {
		return nil, conflict(c, "%s wanted, %d unclaimed", plural(c.Count, "chunk"), len(shard))
	}
	tail := slices.Clone(shard[len(shard)-c.Count:])
	return one(&ChunksStolen{From: c.From, To: c.To, Chunks: tail, Gain: c.Gain, Reason: reasonOr(c.Reason, "planned")})
}

// decideClaim moves the head of a shard into the slot's lease; fewer chunks than asked when the shard or the room of
// the contribution ends.
func decideClaim(s *State, c Claim) ([]event.Data, error) {
	if err := working(s, c); err != nil {
		return nil, err
	}
	l, err := training(s, c, c.Slot)
	if err != nil {
		return nil, err
	}
	shard, room := s.ShardOf(c.Slot), s.Room(c.Slot)
	switch {
	case c.Count < 1:
		return nil, invalid(c, "%d chunks", c.Count)
	case l.Contribute != "" || l.Cut != nil:
		return nil, conflict(c, "its contribution is asked for")
	case l.Sealed:
		return nil, conflict(c, "it contributes before it takes another chunk")
	case room == 0:
		return nil, conflict(c, "a contribution holds at most %d chunks", s.Spec.MaxChunksPerContribution)
	case len(shard) == 0:
		return nil, conflict(c, "its shard is empty")
	}
	head := slices.Clone(shard[:min(c.Count, room, len(shard))])
	return one(&ChunksClaimed{Slot: c.Slot, Epoch: l.Epoch, Chunks: head})
}

// decideTrained records that a claimed chunk is in the slot's weights.
func decideTrained(s *State, c ReportTrained) ([]event.Data, error) {
	if _, err := leaseUnder(s, c, c.Slot, c.Epoch, UnitTrain); err != nil {
		return nil, err
	}
	if now := s.Number(c.Slot); c.Number != now {
		return nil, domain.Fenced(opOf(c), "it belongs to an earlier contribution than the present one")
	}
	if s.inLease(c.Slot, c.Chunk, StatusTrained) {
		return nil, nil
	}
	if !s.inLease(c.Slot, c.Chunk, StatusClaimed) {
		return nil, conflict(c, "the slot has not claimed it")
	}
	if c.Steps < 1 || !IsChunkTime(c.Seconds) || !IsLoss(c.Loss) {
		return nil, invalid(c, "%d steps in %v s with loss %v", c.Steps, c.Seconds, c.Loss)
	}
	return one(&ChunkTrained{Slot: c.Slot, Epoch: c.Epoch, Chunk: c.Chunk, Steps: c.Steps, Seconds: c.Seconds, Loss: c.Loss})
}

// decideRequest asks a slot to contribute what it has trained and to claim no more.
func decideRequest(s *State, c RequestContribution) ([]event.Data, error) {
	if l := s.Leases[c.Slot]; l != nil && l.Unit == UnitMember {
		return recall(l, c)
	}
	l, err := training(s, c, c.Slot)
	if err != nil {
		return nil, err
	}
	if l.Contribute != "" || l.Cut != nil {
		return nil, nil
	}
	if len(l.Trained) == 0 && len(l.Claimed) == 0 {
		return nil, conflict(c, "the slot has nothing trained and nothing claimed")
	}
	return one(&ContributionRequested{Slot: c.Slot, Epoch: l.Epoch, Number: s.Number(c.Slot), Reason: reasonOr(c.Reason, "planned")})
}
