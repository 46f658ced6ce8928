package run_test

import (
	"fmt"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// storm draws commands, sensible and senseless ones, as they could come from agents, timers and the planner.
type storm struct {
	*world
	r     *rapid.T
	slots []domain.SlotID
}

// TestAnyCommandsKeepThePromises throws random commands at a run. world audits after every fact: each chunk in one
// place, the ledger equal to the counted chunks, one lease per slot. Here stand the promises about time.
func TestAnyCommandsKeepThePromises(t *testing.T) {
	completed := 0
	rapid.Check(t, func(r *rapid.T) {
		spec := run.Spec{Batch: 10, Chunk: 10, Epochs: rapid.IntRange(1, 2).Draw(r, "epochs")}
		spec.Round.Chunks = rapid.IntRange(1, 6).Draw(r, "round")
		spec.MaxChunksPerContribution = rapid.IntRange(0, 3).Draw(r, "max")
		spec.EvaluateEvery = rapid.IntRange(0, 2).Draw(r, "evaluate")
		s := &storm{world: newWorld(r, spec, dataset(rapid.IntRange(2, 95).Draw(r, "samples"))), r: r, slots: []domain.SlotID{"a/0", "b/0", "b/1"}}
		for i := range 80 {
			if s.state.Done() {
				break
			}
			s.step(i)
		}
		s.calm()
		if s.state.Phase == run.PhaseCompleted {
			completed++
		}
		if d := difference(s.state, s.fold()); d != "" {
			r.Fatalf("the fold from nothing is not the live state:\n%s", d)
		}
	})
	if completed == 0 {
		t.Error("no run of the storm ever completed")
	}
}

// calm ends the run with one slot and no more faults: from whatever state the storm left, it must end, and unless a
// trainer failed too often, with every sample counted. (The audit demands the latter of a completed run.)
func (s *storm) calm() {
	const enough = 400 // turns
	for range enough {
		if s.state.Done() {
			return
		}
		for _, slot := range s.state.Slots() {
			if slot != "a/0" {
				s.must(run.ExpireLease{Slot: slot})
			}
		}
		s.must(run.Resume{})
		s.turn()
	}
	s.r.Fatalf("the run does not end: %+v", s.state)
}

// turn does the next useful thing on slot a.
func (s *storm) turn() {
	const a = domain.SlotID("a/0")
	l := s.state.LeaseOf(a)
	switch o := s.state.Open; {
	case l != nil && l.Unit == run.UnitInit:
		s.must(s.initialise(a))
	case l != nil && l.Unit == run.UnitEvaluate:
		s.must(run.RecordEvaluation{Slot: a, Epoch: l.Epoch, Samples: 5, Accuracy: 1})
	case s.state.WantsInit():
		s.must(run.GrantLease{Slot: a, Unit: run.UnitInit})
	case s.state.WantsEvaluation() && l == nil:
		s.must(run.GrantLease{Slot: a, Unit: run.UnitEvaluate, Round: s.state.Evaluation.Round})
	case s.state.WantsRound():
		s.must(run.OpenRound{})
	case o.Closed:
		s.must(s.merge())
	case o.Complete():
		s.must(run.CloseRound{Round: o.Number})
	case l == nil:
		s.must(run.GrantLease{Slot: a, Unit: run.UnitTrain, Round: o.Number})
	case len(l.Claimed) > 0:
		s.must(s.trained(a, l.Claimed[0]))
	case len(l.Trained) > 0:
		s.must(s.accept(a))
	case l.Contribute != "":
		s.must(run.ReleaseLease{Slot: a})
	case len(s.state.ShardOf(a)) > 0:
		s.must(run.Claim{Slot: a, Count: 2})
	default:
		s.must(run.AssignShard{Slot: a, Chunks: o.Pool})
	}
}

// step decides one command and checks what may happen from one state to the next.
func (s *storm) step(i int) {
	c := s.command(i)
	before := s.state.Clone()
	facts, err := run.Decide(s.state, c)
	if !reflect.DeepEqual(before, s.state) {
		s.r.Fatalf("deciding %T changed the state:\n%s", c, difference(before, s.state))
	}
	if err != nil && domain.KindOf(err) == domain.KindInternal {
		s.r.Fatalf("%T: %v has no kind", c, err)
	}
	for _, f := range facts {
		old := s.state.Clone()
		s.apply(f)
		s.moves(old, f)
		if err := run.Audit(s.state); err != nil {
			s.r.Fatalf("after %T: %s: %v", c, f.Line(), err)
		}
	}
}

// moves checks that counted chunks stay counted, but by revocation, and that nothing counts beyond what is expected.
func (s *storm) moves(old *run.State, f event.Data) {
	_, revoked := f.(*run.ContributionRevoked)
	for c, was := range old.Chunks {
		if s.state.Tally != nil {
			break // it has ended: the audit has seen the table a last time
		}
		now := s.state.Chunks[c]
		if was.Status == run.StatusMerged && now != was || !revoked && was.Status == run.StatusContributed && now.Status < was.Status {
			s.r.Fatalf("%s took chunk %d from %s to %s", f.Line(), c, was.Status, now.Status)
		}
	}
	if l := s.state.Ledger(); l.Counted > l.Expected || l.Counted < 0 || !revoked && l.Counted < old.Counted {
		s.r.Fatalf("%s: the ledger went from %d to %d of %d", f.Line(), old.Counted, l.Counted, l.Expected)
	}
	for slot, l := range old.Leases {
		if now := s.state.LeaseOf(slot); now != nil && now.Epoch < l.Epoch {
			s.r.Fatalf("%s: the epoch of %s went back from %d to %d", f.Line(), slot, l.Epoch, now.Epoch)
		}
	}
}

func (s *storm) slot() domain.SlotID { return rapid.SampledFrom(s.slots).Draw(s.r, "slot") }

// epoch is mostly the present one.
func (s *storm) epochOf(slot domain.SlotID) domain.Epoch {
	if rapid.IntRange(0, 9).Draw(s.r, "old") == 0 {
		return domain.Epoch(rapid.Uint64Range(0, s.state.Seq+1).Draw(s.r, "epoch"))
	}
	return s.epoch(slot)
}

// some draws a few chunks from the list, in its order, or foreign ones now and then.
func (s *storm) some(list []domain.ChunkID) []domain.ChunkID {
	if rapid.IntRange(0, 9).Draw(s.r, "foreign") == 0 {
		return []domain.ChunkID{domain.ChunkID(rapid.IntRange(-1, len(s.state.Chunks)).Draw(s.r, "chunk"))}
	}
	from := rapid.IntRange(0, len(list)).Draw(s.r, "from")
	return list[from:rapid.IntRange(from, len(list)).Draw(s.r, "to")]
}

// command draws one command.
func (s *storm) command(i int) run.Command {
	o := s.state.Open
	slot, round := s.slot(), s.state.Merged+rapid.IntRange(0, 1).Draw(s.r, "past")
	switch rapid.IntRange(0, 21).Draw(s.r, "command") {
	case 0:
		return run.GrantLease{Slot: slot, Unit: run.UnitInit}
	case 1, 2:
		return run.GrantLease{Slot: slot, Unit: run.UnitTrain, Round: round}
	case 3:
		return run.GrantLease{Slot: slot, Unit: run.UnitEvaluate, Round: round}
	case 4:
		return run.ReleaseLease{Slot: slot, Reason: "idle"}
	case 5:
		return run.ExpireLease{Slot: slot}
	case 6:
		return run.OpenRound{Expected: rapid.SampledFrom([]float64{0, 5, -1, math.NaN()}).Draw(s.r, "expected")}
	case 7, 8:
		if o != nil {
			return run.AssignShard{Slot: slot, Chunks: s.some(o.Pool)}
		}
	case 9:
		return run.ReturnShard{Slot: slot}
	case 10:
		return run.Steal{From: slot, To: s.slot(), Count: rapid.IntRange(0, 3).Draw(s.r, "count")}
	case 11, 12:
		return run.Claim{Slot: slot, Count: rapid.IntRange(0, 3).Draw(s.r, "count")}
	case 13:
		return run.RequestContribution{Slot: slot}
	case 14:
		return run.ExtendRound{Round: round}
	case 15:
		return run.CloseRound{Round: round}
	case 16:
		return rapid.SampledFrom([]run.Command{run.Pause{}, run.Resume{}, run.Resume{}, run.Resume{}}).Draw(s.r, "pause")
	}
	return s.report(i, slot, round)
}

// report draws what agents and workers say.
func (s *storm) report(i int, slot domain.SlotID, round int) run.Command {
	l := s.state.LeaseOf(slot)
	switch rapid.IntRange(0, 8).Draw(s.r, "report") {
	case 0, 1, 2:
		if l != nil && len(l.Claimed) > 0 {
			c := s.trained(slot, l.Claimed[rapid.IntRange(0, len(l.Claimed)-1).Draw(s.r, "claimed")])
			c.Epoch, c.Number = s.epochOf(slot), c.Number-rapid.IntRange(0, 1).Draw(s.r, "stale")
			return c
		}
		c := s.initialise(slot)
		c.Epoch = s.epochOf(slot)
		return c
	case 3, 4:
		return s.anyOffer(i, slot)
	case 5:
		return run.RevokeContribution{Slot: slot, Number: rapid.IntRange(0, 3).Draw(s.r, "number")}
	case 6:
		c := s.merge()
		c.Round = round
		return c
	case 7:
		return run.RecordEvaluation{Slot: slot, Epoch: s.epochOf(slot), Samples: 5, Accuracy: 0.5, Loss: rapid.SampledFrom([]float64{1, math.Inf(1)}).Draw(s.r, "loss")}
	}
	if rapid.IntRange(0, 3).Draw(s.r, "fails") > 0 {
		return run.RequestContribution{Slot: slot}
	}
	return run.FailTask{Slot: slot, Epoch: s.epochOf(slot), Error: "drawn"}
}

// anyOffer draws an offer of what is trained, of less, or with something foreign in it.
func (s *storm) anyOffer(i int, slot domain.SlotID) run.OfferContribution {
	o := s.offer(slot)
	o.Epoch, o.Blob = s.epochOf(slot), digest(fmt.Sprintf("de%x", i))
	switch rapid.IntRange(0, 4).Draw(s.r, "shape") {
	case 0:
		o.Chunks = o.Chunks[:rapid.IntRange(0, len(o.Chunks)).Draw(s.r, "prefix")]
	case 1:
		o.Chunks = append(o.Chunks, s.some(nil)...)
	case 2:
		o.Boundaries = []int{rapid.IntRange(0, 4).Draw(s.r, "boundary")}
	}
	if rapid.Bool().Draw(s.r, "inspected") {
		why := rapid.SampledFrom([]run.Refusal{"", "", "", run.RefusedUnreadable, run.RefusedNotFinite}).Draw(s.r, "why")
		o.Inspection = &run.Inspection{Why: why, Norm: rapid.SampledFrom([]float64{1, 2, 1000}).Draw(s.r, "norm")}
	}
	return o
}
