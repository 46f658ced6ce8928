package plan

import (
	"cmp"
	"slices"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/merge"
	"tensorturn/domain/run"
)

// tripsPerSync sets the round trip to reckon with: 250 ms of the 5 s between syncs at the default lease time, which a
// home link takes at its worst, and 12 ms on the loopback with its short leases.
const tripsPerSync = 20

// board is the working picture of one run: what is where, how fast everybody is, and the actions proposed so far with
// their effect already drawn in.
type board struct {
	r       *run.State
	snap    *Snapshot // whose slots verdict judges
	verdict *verdict
	sync    float64 // seconds between syncs
	silence float64 // seconds without a word until a machine is suspect
	trip    float64 // seconds that a reply may take on a slow link
	ahead   float64 // seconds that claims reach ahead
	age     float64 // seconds since the round was opened
	known   bool    // some speed is known; otherwise every speed is 1 and times are in samples
	rated   bool    // benchmarks of more than one slot are known: without any speed, these are in proportion to them, 1 on the mean
	size    sizes
	workers []worker // ordered by id
	pool    []domain.ChunkID
	granted int // members handed out in this call
	out     []Action
}

// sizes gives the samples of a chunk; run.ChunkSamples is the same for one chunk, this is for thousands.
type sizes struct{ n, chunk, perEpoch int }

func (z sizes) of(c domain.ChunkID) int {
	return min(z.chunk, z.n-int(c)%z.perEpoch*z.chunk)
}

// sum walks over consecutive runs, of which a list has few: a division for each chunk would cost half a millisecond a
// sync in the largest round.
func (z sizes) sum(cs []domain.ChunkID) float64 {
	total, missing := len(cs)*z.chunk, z.perEpoch*z.chunk-z.n // what the last chunk of each epoch lacks
	for i := 0; i < len(cs) && missing > 0; {
		j := i + 1
		for j < len(cs) && cs[j] == cs[j-1]+1 {
			j++
		}
		total -= missing * ((int(cs[j-1])+1)/z.perEpoch - int(cs[i])/z.perEpoch)
		i = j
	}
	return float64(total)
}

// newBoard draws the slots that the run may work with: free ones that meet its requirements, and those that hold its leases. whole draws
// all, for those who ask why the others do nothing.
func newBoard(s *Snapshot, r *run.State, free []bool, k *known, whole bool) *board {
	b := &board{
		r: r, snap: s, verdict: k.verdict(s, r), sync: s.Timing.Sync.Seconds(), silence: s.Timing.Suspect.Seconds(), trip: s.Timing.Sync.Seconds() / tripsPerSync, ahead: s.Timing.Ahead.Seconds(), age: s.RoundAge[r.ID],
		size: sizes{n: r.Data.Samples, chunk: r.Spec.Chunk, perEpoch: run.ChunksPerEpoch(r.Spec, r.Data)},
	}
	if b.open() {
		b.pool = r.Open.Pool
	}
	b.workers = k.workers[:0]
	for i := range s.Slots {
		sl := &s.Slots[i]
		if !whole && r.Leases[sl.ID] == nil && !(free[i] && b.verdict.of(s, i) == "") {
			continue
		}
		w := worker{Slot: *sl, index: i, free: free[i]}
		w.Speed, w.Upload = run.KnownSpeed(sl.Speed), run.KnownUpload(sl.Upload)
		b.workers = append(b.workers, w)
	}
	b.addStrangers()
	k.workers = b.workers
	for i := range b.workers {
		b.draw(&b.workers[i])
	}
	b.reckon(k.pace(s, onCPU(r)))
	b.bound()
	return b
}

// addStrangers adds slots that hold a lease although the pool no longer lists them: an agent came back with fewer slots.
func (b *board) addStrangers() {
	find := func(id domain.SlotID) (int, bool) {
		return slices.BinarySearchFunc(b.workers, id, func(w worker, id domain.SlotID) int { return strings.Compare(string(w.ID), string(id)) })
	}
	var missing []domain.SlotID
	for id := range b.r.Leases {
		if _, ok := find(id); !ok {
			missing = append(missing, id)
		}
	}
	slices.Sort(missing)
	for _, id := range missing {
		i, _ := find(id)
		b.workers = slices.Insert(b.workers, i, worker{Slot: Slot{ID: id}, index: -1})
	}
}

// draw copies what the run knows about the slot.
func (b *board) draw(w *worker) {
	l := b.r.Leases[w.ID]
	w.mine = l != nil
	if w.Upload == 0 && w.Link > 0 { // until it has sent one
		w.Upload = min(float64(b.r.Params)*merge.BitsPerValue(merge.Codec(b.r.Spec.Codec))/8/w.Link, run.MaxUpload)
	}
	w.free = w.free && l == nil && b.unfit(w) == ""
	if l != nil && l.Unit == run.UnitMember {
		b.drawMember(w, l)
		return
	}
	if l == nil || l.Unit != run.UnitTrain || !b.open() {
		return
	}
	w.train = true
	w.claimed, w.trained = l.Claimed, len(l.Trained)
	w.asked = l.Contribute != "" || l.Cut != nil
	w.sealed = l.Sealed
	w.shard = b.r.Open.Shards[w.ID]
	w.queue, w.pending = b.size.sum(w.shard), b.size.sum(w.claimed)
}

// bound hides the slowest free slots when the run could not lease them all: it has run.MaxLeases at most.
func (b *board) bound() {
	free := b.idle()
	for _, w := range free[min(max(run.MaxLeases-len(b.r.Leases), 0), len(free)):] {
		w.free = false
	}
}

// idle lists the free slots, the fastest first, the first of equals.
func (b *board) idle() []*worker {
	var free []*worker
	for i := range b.workers {
		if w := &b.workers[i]; w.free {
			free = append(free, w)
		}
	}
	slices.SortStableFunc(free, func(x, y *worker) int { return cmp.Compare(y.speed, x.speed) })
	return free
}

// open reports whether the run has a round that takes work.
func (b *board) open() bool { return b.r.Open != nil && !b.r.Open.Closed }

// chunk is a typical chunk in samples.
func (b *board) chunk() float64 { return float64(min(b.size.chunk, b.size.n)) }

// do proposes c.
func (b *board) do(c run.Command) { b.out = append(b.out, Action{Run: b.r.ID, Command: c}) }

// grant gives w a train lease of the open round, if it has none.
func (b *board) grant(w *worker, reason string) {
	if w.train {
		return
	}
	b.do(run.GrantLease{Slot: w.ID, Unit: run.UnitTrain, Round: b.r.Open.Number, Reason: reason})
	w.free, w.mine, w.train = false, true, true
}

// take gives chunks to w's shard on the board.
func (b *board) take(w *worker, cs []domain.ChunkID) {
	w.shard = slices.Concat(w.shard, cs)
	w.queue = b.size.sum(w.shard)
}
