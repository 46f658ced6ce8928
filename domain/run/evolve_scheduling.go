package run

import (
	"slices"

	"tensorturn/domain"
)

// place sets where the chunks stand.
func (s *State) place(cs []domain.ChunkID, status ChunkStatus, slot domain.SlotID) {
	for _, c := range cs {
		s.Chunks[c] = Chunk{Status: status, Slot: slot}
	}
}

// enqueue puts chunks at the end of the slot's shard.
func (s *State) enqueue(slot domain.SlotID, cs []domain.ChunkID) {
	s.Open.Shards[slot] = append(s.Open.Shards[slot], cs...)
	s.place(cs, StatusQueued, slot)
}

// dequeue takes chunks out of the slot's shard; an empty shard leaves no trace, so that equal states are equal.
func (s *State) dequeue(slot domain.SlotID, cs []domain.ChunkID) {
	rest := without(s.Open.Shards[slot], cs)
	if len(rest) == 0 {
		delete(s.Open.Shards, slot)
		return
	}
	s.Open.Shards[slot] = rest
}

func (s *State) assigned(d *ShardAssigned) {
	s.Open.Pool = without(s.Open.Pool, d.Chunks)
	s.enqueue(d.Slot, d.Chunks)
}

func (s *State) shardReturned(d *ShardReturned) {
	s.dequeue(d.Slot, d.Chunks)
	s.pool(d.Chunks)
}

func (s *State) stolen(d *ChunksStolen) {
	s.dequeue(d.From, d.Chunks)
	s.enqueue(d.To, d.Chunks)
}

func (s *State) claimed(d *ChunksClaimed) {
	s.dequeue(d.Slot, d.Chunks)
	s.place(d.Chunks, StatusClaimed, d.Slot)
	if l := s.Leases[d.Slot]; l != nil {
		l.Claimed = append(l.Claimed, d.Chunks...)
	}
}

func (s *State) trained(d *ChunkTrained) {
	l := s.Leases[d.Slot]
	if l == nil {
		return
	}
	if i := slices.Index(l.Claimed, d.Chunk); i >= 0 {
		l.Claimed = slices.Delete(l.Claimed, i, i+1)
	}
	l.Trained = append(l.Trained, d.Chunk)
	if s.Open == nil || s.Open.Copies[d.Chunk] != d.Slot {
		s.Chunks[d.Chunk] = Chunk{Status: StatusTrained, Slot: d.Slot}
	}
}

func (s *State) requested(d *ContributionRequested) {
	if l := s.Leases[d.Slot]; l != nil {
		l.Contribute = d.Reason
	}
}
