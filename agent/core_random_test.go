package agent

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// TestCoreUnderChance throws everything at Core that a hub, a link and a performer can do, in any order, and checks
// after each step: one effect per slot under way, effects only under the held epoch, epochs and counters only grow, one
// sync in flight, nothing committed behind the fence, offers only of whole prefixes, and no busy waiting.
func TestCoreUnderChance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMonkey(t)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			m.now += time.Duration(rapid.IntRange(0, 40_000).Draw(t, "ms")) * time.Millisecond
			if rapid.Bool().Draw(t, "tick") {
				m.now = max(m.now, min(m.core.Next(), m.now+time.Minute))
			}
			m.step(m.input())
			m.settle()
		}
	})
}

const monkeySlots = 2

// monkey plays hub and performer. It keeps its own books to check Core by.
type monkey struct {
	t       *rapid.T
	core    *Core
	now     time.Duration
	busy    [monkeySlots]Effect
	epochs  [monkeySlots]domain.Epoch // newest handed out
	numbers [monkeySlots]int
	desires [monkeySlots]wire.SlotDesire
	counter uint64
	flying  bool
	sent    time.Duration // of the newest sync
	acked   time.Duration
	ever    bool
	exited  bool
	resends bool
}

func newMonkey(t *rapid.T) *monkey {
	m := &monkey{t: t, core: NewCore(CoreConfig{Incarnation: "i", Slots: monkeySlots, Seed: rapid.Uint64().Draw(t, "seed")})}
	for i := range m.desires {
		m.desires[i].Index = i
	}
	m.step(Tick{})
	return m
}

// input draws the next thing to happen.
func (m *monkey) input() Input {
	t := m.t
	switch rapid.IntRange(0, 9).Draw(t, "what") {
	case 0:
		return Tick{}
	case 1:
		return Woken{}
	case 2:
		if m.flying {
			m.flying = false
			return SyncFailed{Counter: m.counter}
		}
		return SyncFailed{Counter: uint64(rapid.IntRange(0, 5).Draw(t, "old counter"))}
	case 3, 4, 5:
		return m.reply()
	case 6:
		if m.resends {
			m.resends = false
			return Resent{Blob: "w", Missing: rapid.Bool().Draw(t, "missing")}
		}
		return Tick{}
	case 7:
		if rapid.IntRange(0, 20).Draw(t, "stop") == 0 {
			return StopRequested{}
		}
		return Tick{}
	}
	return m.result(rapid.IntRange(0, monkeySlots-1).Draw(t, "slot"))
}

// reply changes the hub's mind about one slot and answers; sometimes under an old counter.
func (m *monkey) reply() Input {
	t := m.t
	i := rapid.IntRange(0, monkeySlots-1).Draw(t, "slot")
	d := &m.desires[i]
	switch rapid.IntRange(0, 5).Draw(t, "change") {
	case 0:
		m.epochs[i] += domain.Epoch(rapid.IntRange(1, 3).Draw(t, "epoch"))
		m.numbers[i] = 1
		unit := rapid.SampledFrom([]run.Unit{run.UnitTrain, run.UnitTrain, run.UnitTrain, run.UnitInit, run.UnitEvaluate}).Draw(t, "unit")
		*d = wire.SlotDesire{Index: i, Run: "r", Epoch: m.epochs[i], Unit: unit, Round: 1, Base: "b", Number: 1, Job: &wire.Job{}}
	case 1:
		*d = wire.SlotDesire{Index: i}
	case 2:
		d.Claims = append(d.Claims[:len(d.Claims):len(d.Claims)], domain.ChunkID(len(d.Claims)))
	case 3:
		d.Contribute = true
	case 4:
		if d.Run != "" {
			d.Number++
			d.Claims, d.Contribute, d.Cut = nil, false, nil
		}
	case 5:
		if n := len(d.Claims); n > 0 {
			k := rapid.IntRange(1, n).Draw(t, "cut")
			d.Cut, d.Claims, d.Contribute = &k, d.Claims[:k:k], true
		}
	}
	r := &wire.SyncReply{Interval: 5, Lease: 120, Slots: append([]wire.SlotDesire(nil), m.desires[:]...)}
	if rapid.IntRange(0, 9).Draw(t, "wanted") == 0 {
		r.Wanted = []domain.Digest{"w"}
	}
	if !m.flying || rapid.IntRange(0, 9).Draw(t, "stale") == 0 {
		return Replied{Counter: m.counter - min(m.counter, 1), Reply: r}
	}
	m.flying, m.acked, m.ever = false, m.sent, true
	return Replied{Counter: m.counter, Reply: r}
}

// result ends what the slot is doing, well or badly; sometimes something late comes instead.
func (m *monkey) result(i int) Input {
	t := m.t
	e := m.busy[i]
	if e == nil || rapid.IntRange(0, 9).Draw(t, "late") == 0 {
		return ChunkTrained{Slot: i, Epoch: domain.Epoch(rapid.IntRange(0, 2).Draw(t, "late epoch")), Chunk: 9999, Steps: 1}
	}
	m.busy[i] = nil
	epoch := epochOf(e)
	switch rapid.IntRange(0, 9).Draw(t, "how") {
	case 0:
		return TransferError{Slot: i, Epoch: epoch, Local: rapid.Bool().Draw(t, "local")}
	case 1:
		return TaskError{Slot: i, Epoch: epoch, Error: "x"}
	}
	switch e := e.(type) {
	case Prepare:
		return Prepared{Slot: i, Epoch: epoch}
	case Train:
		return ChunkTrained{Slot: i, Epoch: epoch, Chunk: e.Chunk, Samples: 10, Steps: 1, Seconds: 1}
	case MakeDelta:
		return DeltaMade{Slot: i, Epoch: epoch, Number: e.Number, Boundary: e.Boundary, Blob: "d"}
	case Upload:
		return Uploaded{Slot: i, Epoch: epoch, Blob: e.Blob}
	case Reset:
		return ResetDone{Slot: i, Epoch: epoch, Boundary: e.Boundary}
	case RunInit:
		return InitDone{Slot: i, Epoch: epoch, Base: "d", Layout: "l"}
	}
	return Evaluated{Slot: i, Epoch: epoch, Samples: 1}
}

func (m *monkey) step(in Input) {
	t := m.t
	for _, e := range m.core.Step(m.now, in) {
		if m.exited {
			t.Fatalf("%T after Exit", e)
		}
		switch e := e.(type) {
		case SendSync:
			m.checkSync(e.Request)
		case Abandon:
			m.busy[e.Slot] = nil
		case Exit:
			m.exited = true
		case UploadAgain:
			if m.resends {
				t.Fatal("two blobs are sent again at once")
			}
			m.resends = true
		case CloseTrainer, DropDeltas, SaveHead, SaveCredential:
		default:
			m.checkEffect(e)
		}
	}
}

func (m *monkey) checkEffect(e Effect) {
	t := m.t
	i := slotOf(e)
	if m.busy[i] != nil {
		t.Fatalf("%T while %T is under way", e, m.busy[i])
	}
	if held := m.core.Held()[i]; held != epochOf(e) {
		t.Fatalf("%T under epoch %d, held is %d", e, epochOf(e), held)
	}
	m.busy[i] = e
	switch e := e.(type) {
	case MakeDelta:
		if e.Boundary < 1 {
			t.Fatal("a delta of nothing")
		}
		m.checkFence(e)
	case Upload:
		m.checkFence(e)
	}
}

func (m *monkey) fenced() bool { return !m.ever || m.now-m.acked >= 108*time.Second }

func (m *monkey) checkFence(e Effect) {
	if m.fenced() {
		m.t.Fatalf("%T behind the fence", e)
	}
}

func (m *monkey) checkSync(r wire.SyncRequest) {
	t := m.t
	if m.flying && m.now-m.sent < minTimeout {
		t.Fatal("two syncs in flight")
	}
	if r.Counter != m.counter+1 {
		t.Fatalf("counter %d after %d", r.Counter, m.counter)
	}
	m.counter, m.flying, m.sent = r.Counter, true, m.now
	for _, s := range r.Slots {
		if s.Offer == nil {
			continue
		}
		if m.fenced() {
			t.Fatal("an offer behind the fence")
		}
		if len(s.Offer.Chunks) != len(s.Trained) || len(s.Offer.Chunks) == 0 {
			t.Fatalf("an offer of %d chunks, trained are %d", len(s.Offer.Chunks), len(s.Trained))
		}
		for k, c := range s.Trained {
			if s.Offer.Chunks[k] != c.Chunk {
				t.Fatal("an offer in another order than trained")
			}
		}
	}
}

// settle checks that Core does not ask for a Tick in the past again and again.
func (m *monkey) settle() {
	for range 20 {
		if m.exited || m.core.Next() > m.now {
			return
		}
		m.step(Tick{})
	}
	m.t.Fatalf("Core asks for ticks without end: next %v at %v", m.core.Next(), m.now)
}

func slotOf(e Effect) int {
	if p, ok := e.(Prepare); ok {
		return p.Slot
	}
	i, _ := target(e)
	return i
}

func epochOf(e Effect) domain.Epoch {
	if p, ok := e.(Prepare); ok {
		return p.Epoch
	}
	_, epoch := target(e)
	return epoch
}
