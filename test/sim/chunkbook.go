package sim

import (
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// chunkBook is the account of one run's chunks: who holds a live copy of each, and which delta counts it.
type chunkBook struct {
	w       *world
	run     domain.RunID
	counted map[domain.ChunkID]contribution
	holders map[domain.ChunkID][]holder
	copied  map[domain.ChunkID]domain.SlotID         // who was given the second copy, while both live
	history map[domain.Epoch]map[domain.ChunkID]bool // what each lease ever held
	adopted map[delivery]domain.Digest               // late work taken into a contribution; its base, when it is not the round's
	used    map[domain.Epoch]bool                    // leases whose late work was adopted
}

// holder is a lease that holds a live copy of a chunk.
type holder struct {
	slot  domain.SlotID
	epoch domain.Epoch
}

// delivery is a contribution of one lease.
type delivery struct {
	epoch  domain.Epoch
	number int
}

// input is an accepted delta. Base is set when it is not the round's.
type input struct{ blob, base domain.Digest }

func newChunkBook(w *world, id domain.RunID) chunkBook {
	return chunkBook{w: w, run: id, counted: map[domain.ChunkID]contribution{}, holders: map[domain.ChunkID][]holder{},
		copied: map[domain.ChunkID]domain.SlotID{}, history: map[domain.Epoch]map[domain.ChunkID]bool{},
		adopted: map[delivery]domain.Digest{}, used: map[domain.Epoch]bool{}}
}

// free fails when a chunk that is queued is counted or held.
func (b *chunkBook) free(e event.Envelope, cs []domain.ChunkID) {
	for _, c := range cs {
		if k, taken := b.counted[c]; taken {
			fail("record %d (%s) takes chunk %d of %s, which %+v counts", e.Seq, e.Data.EventName(), c, b.run, k)
		}
		if h := b.holders[c]; len(h) > 0 {
			fail("record %d (%s) takes chunk %d of %s, which %+v holds", e.Seq, e.Data.EventName(), c, b.run, h)
		}
	}
}

// hold writes down a further holder of the chunks.
func (b *chunkBook) hold(h holder, cs []domain.ChunkID) {
	if b.history[h.epoch] == nil {
		b.history[h.epoch] = map[domain.ChunkID]bool{}
	}
	for _, c := range cs {
		b.holders[c] = append(b.holders[c], h)
		b.history[h.epoch][c] = true
	}
}

// copy writes down second copies: of chunks that From holds alone.
func (b *chunkBook) copy(e event.Envelope, d *run.ChunksCopied) {
	for _, c := range d.Chunks {
		h := b.holders[c]
		if len(h) != 1 || h[0].slot != d.From || d.From == d.Slot {
			fail("record %d gives %s a copy of chunk %d of %s, which %+v holds", e.Seq, d.Slot, c, b.run, h)
		}
		if k, taken := b.counted[c]; taken {
			fail("record %d gives %s a copy of chunk %d of %s, which %+v counts", e.Seq, d.Slot, c, b.run, k)
		}
		b.copied[c] = d.Slot
	}
	b.hold(holder{d.Slot, d.Epoch}, d.Chunks)
	b.w.mark(markCopied)
}

// adopt writes down late work: of a lease of this slot that is over, on one of the newest two bases, of chunks that it
// held and that nobody holds or has counted since, and once.
func (b *chunkBook) adopt(e event.Envelope, d *run.DeltaAdopted, base, former domain.Digest) {
	b.free(e, d.Chunks)
	if d.Late >= d.Epoch || b.used[d.Late] {
		fail("record %d adopts for epoch %d of %s what was trained under lease %d, adopted before: %v", e.Seq, d.Epoch, d.Slot, d.Late, b.used[d.Late])
	}
	if d.Base != base && d.Base != former {
		fail("record %d adopts a delta of %s on base %s; the newest bases of %s are %s and %s", e.Seq, d.Slot, d.Base.Short(), b.run, base.Short(), former.Short())
	}
	for _, c := range d.Chunks {
		if !b.history[d.Late][c] {
			fail("record %d adopts chunk %d of %s, which lease %d never held", e.Seq, c, b.run, d.Late)
		}
	}
	b.used[d.Late] = true
	b.hold(holder{d.Slot, d.Epoch}, d.Chunks)
	k := delivery{d.Epoch, d.Number}
	b.adopted[k] = ""
	b.w.mark(markAdopted)
	if b.w.left[d.Slot] == d.Late {
		b.w.mark(markLeftAdopted)
	}
	if d.Base != base {
		b.adopted[k] = d.Base
		b.w.mark(markAdoptedBefore)
	}
	if d.Left > 0 {
		b.w.mark(markAdoptedPrefix)
	}
}

// accept counts chunks for one of their holders. The other one has lost them.
func (b *chunkBook) accept(e event.Envelope, d *run.ContributionAccepted, k contribution) {
	me := holder{d.Slot, d.Epoch}
	for _, c := range d.Chunks {
		if !slices.Contains(b.holders[c], me) {
			fail("record %d counts chunk %d of %s for %+v; %+v holds it", e.Seq, c, b.run, me, b.holders[c])
		}
		if len(b.holders[c]) > 1 {
			b.w.mark(map[bool]mark{true: markCopyWon, false: markCopyLost}[b.copied[c] == d.Slot])
		}
		b.counted[c] = k
		delete(b.holders, c)
		delete(b.copied, c)
	}
	if base, late := b.adopted[delivery{d.Epoch, d.Number}]; d.Base != base {
		fail("record %d counts %s number %d of %s on base %q, adopted %v on %q", e.Seq, d.Slot, d.Number, b.run, d.Base, late, base)
	} else if late {
		b.w.mark(markLateCounted)
	}
	b.end(d.Epoch) // what it leaves out it holds no more
}

// end takes everything from a lease that ends, or whose contribution starts again.
func (b *chunkBook) end(epoch domain.Epoch) { b.drop(epoch, nil) }

// drop takes chunks from a lease, all when cs is nil. A second copy is then the only one.
func (b *chunkBook) drop(epoch domain.Epoch, cs []domain.ChunkID) {
	for c, hs := range b.holders { // each chunk alone: any order gives the same book
		i := slices.IndexFunc(hs, func(h holder) bool { return h.epoch == epoch })
		if i < 0 || cs != nil && !slices.Contains(cs, c) {
			continue
		}
		if len(hs) == 2 && b.copied[c] != hs[i].slot {
			b.w.marks[markCopyInherits]++
		}
		if hs = slices.Delete(hs, i, i+1); len(hs) == 0 {
			delete(b.holders, c)
		} else {
			b.holders[c] = hs
		}
		delete(b.copied, c)
	}
}

// noteContribution keeps the book of chunks.
func (p *past) noteContribution(id domain.RunID, e event.Envelope) {
	b := p.books[id]
	switch d := e.Data.(type) {
	case *run.ShardAssigned:
		b.chunks.free(e, d.Chunks)
	case *run.ChunksStolen:
		b.chunks.free(e, d.Chunks)
		p.w.mark(markSteal)
	case *run.ChunksClaimed:
		p.current(id, e, d.Slot, d.Epoch, run.UnitTrain)
		b.chunks.free(e, d.Chunks)
		b.chunks.hold(holder{d.Slot, d.Epoch}, d.Chunks)
	case *run.ChunksCopied:
		p.current(id, e, d.Slot, d.Epoch, run.UnitTrain)
		b.chunks.copy(e, d)
	case *run.DeltaAdopted:
		p.current(id, e, d.Slot, d.Epoch, run.UnitTrain)
		b.chunks.adopt(e, d, b.base, b.former)
	case *run.ChunkTrained:
		p.current(id, e, d.Slot, d.Epoch, run.UnitTrain)
		if !slices.Contains(b.chunks.holders[d.Chunk], holder{d.Slot, d.Epoch}) {
			fail("record %d says that %s trained chunk %d of %s, which %+v holds", e.Seq, d.Slot, d.Chunk, id, b.chunks.holders[d.Chunk])
		}
	case *run.ContributionRequested:
		if len(d.Reason) >= 5 && d.Reason[:5] == "drain" {
			b.drains[contribution{b.round, d.Slot, d.Number}] = true
		}
	case *run.ContributionAccepted:
		p.noteAccepted(id, e, d)
	case *run.ContributionCut:
		p.noteCut(b, d)
	case *run.ContributionRefused:
		p.noteRefused(b, d)
	case *run.ContributionRevoked:
		p.noteRevoked(id, e, d)
	}
}

func (p *past) noteCut(b *book, d *run.ContributionCut) {
	p.w.mark(markCut)
	if d.Keep > 0 {
		p.w.mark(markCutPrefix)
		b.chunks.drop(d.Epoch, append(slices.Concat(d.Returned, d.Others), -1)) // never nil: nothing behind the cut is not everything
		return
	}
	b.chunks.end(d.Epoch)
}

func (p *past) noteRefused(b *book, d *run.ContributionRefused) {
	switch d.Why {
	case run.RefusedFenced:
		p.w.mark(markFenced)
		return
	case run.RefusedNorm:
		p.w.mark(markNorm)
	}
	b.chunks.end(d.Epoch)
}

func (p *past) noteAccepted(id domain.RunID, e event.Envelope, d *run.ContributionAccepted) {
	b := p.books[id]
	p.current(id, e, d.Slot, d.Epoch, run.UnitTrain)
	k := contribution{b.round, d.Slot, d.Number}
	var samples int64
	per := (b.data.Samples + b.spec.Chunk - 1) / b.spec.Chunk
	for _, c := range d.Chunks {
		samples += int64(min(b.spec.Chunk, b.data.Samples-int(c)%per*b.spec.Chunk))
	}
	for _, c := range d.Chunks {
		if by, twice := b.chunks.counted[c]; twice {
			fail("record %d counts chunk %d of %s twice: by %+v and %+v", e.Seq, c, id, by, k)
		}
	}
	if samples != d.Samples {
		fail("record %d weighs %s number %d of %s with %d samples, its chunks have %d", e.Seq, d.Slot, d.Number, id, d.Samples, samples)
	}
	if _, twice := b.inputs[k]; twice {
		fail("record %d accepts %s number %d of %s a second time", e.Seq, d.Slot, d.Number, id)
	}
	b.chunks.accept(e, d, k)
	b.inputs[k] = input{d.Blob, d.Base}
	if b.drains[k] {
		p.w.mark(markDrainContribution)
	}
	p.w.provenance(id, e, d)
	if d.Codec.Feedback() {
		b := p.books[id]
		if b.counted == nil {
			b.counted = map[domain.Digest]bool{}
		}
		b.counted[d.Blob] = true
	}
}

func (p *past) noteRevoked(id domain.RunID, e event.Envelope, d *run.ContributionRevoked) {
	b := p.books[id]
	k := contribution{b.round, d.Slot, d.Number}
	if b.inputs[k].blob != d.Blob {
		fail("record %d revokes %s number %d of %s, which the book does not have", e.Seq, d.Slot, d.Number, id)
	}
	delete(b.inputs, k)
	for _, c := range d.Returned {
		if b.chunks.counted[c] != k {
			fail("record %d takes chunk %d of %s back from %+v, which did not count it", e.Seq, c, id, k)
		}
		delete(b.chunks.counted, c)
	}
	p.w.mark(markRevokedContribution)
}
