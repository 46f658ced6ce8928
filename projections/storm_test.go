package projections_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
	"tensorturn/projections/usage"
)

// storm is a pool of two machines and one run under commands drawn by chance. Everything is decided by the aggregates,
// encoded, decoded and given to the live views, as the hub does; the views are held against the states after each fact.
type storm struct {
	r        *rapid.T
	reg      *event.Registry
	log      []event.Envelope
	run      *run.State
	machines map[domain.MachineID]*machine.State
	ids      []domain.MachineID
	slots    []domain.SlotID
	views    views
	micros   int64 // leased time by the state
	began    time.Time
	sums     sums
}

// sums is what the facts add up to, counted without the view.
type sums struct{ expired, requeued, steals, stolen, refused, revoked, cut, accepted, failed int }

func TestViewsFollowTheStates(t *testing.T) {
	phases, seen := map[run.Phase]int{}, sums{}
	rapid.Check(t, func(r *rapid.T) {
		s := newStorm(r)
		for range 150 {
			if s.run.Done() {
				break
			}
			s.step()
		}
		phases[s.run.Phase]++
		seen.add(s.sums)
		again := newViews()
		for at := 0; at < len(s.log); {
			to := min(len(s.log), at+1+r2(len(s.log), at))
			if err := again.engine.Apply(s.log[at:to]...); err != nil {
				r.Fatal(err)
			}
			at = to
		}
		if d := cmp.Diff(s.views.seen(), again.seen()); d != "" {
			r.Fatalf("views rebuilt from the log differ from the live ones:\n%s", d)
		}
		s.fromSnapshot(rapid.IntRange(0, len(s.log)).Draw(r, "snapshot"))
	})
	if phases[run.PhaseCompleted] == 0 || phases[run.PhaseCancelled] == 0 || seen.expired == 0 || seen.stolen == 0 || seen.refused == 0 ||
		seen.revoked == 0 || seen.cut == 0 || seen.failed == 0 {
		t.Errorf("the storm is too calm: %v %+v", phases, seen)
	}
}

// r2 cuts the log into uneven pieces.
func r2(n, at int) int { return (n*31 + at*17) % 7 }

func (s *sums) add(o sums) {
	s.expired += o.expired
	s.stolen += o.stolen
	s.refused += o.refused
	s.revoked += o.revoked
	s.cut += o.cut
	s.failed += o.failed
}

func newStorm(r *rapid.T) *storm {
	s := &storm{r: r, reg: event.NewRegistry(), machines: map[domain.MachineID]*machine.State{}, ids: []domain.MachineID{"a", "b"},
		slots: []domain.SlotID{"a/0", "b/0", "b/1"}, views: newViews()}
	run.Register(s.reg)
	machine.Register(s.reg)
	for _, id := range s.ids {
		s.machine(id, machine.Enrol{ID: id, Name: "box", NKey: "U" + string(id), Account: "A" + string(id), Slots: 2, At: s.now()})
	}
	spec := run.Spec{Name: "storm", Batch: 10, Chunk: 10, Epochs: 1, Codec: run.CodecFP32}
	spec.Round.Chunks = rapid.IntRange(1, 5).Draw(r, "round")
	spec.EvaluateEvery = rapid.IntRange(0, 2).Draw(r, "evaluate")
	n := rapid.IntRange(5, 80).Draw(r, "samples")
	data := run.Dataset{Blob: digest("data"), Samples: n, Heldout: rapid.IntRange(0, 3).Draw(r, "heldout"), Features: 2, Classes: 2, Block: n}
	spec, err := run.Resolve(spec, data)
	if err != nil {
		r.Fatal(err)
	}
	s.do(run.Submit{Spec: spec, Data: data})
	return s
}

func digest(s string) domain.Digest { return event.Digest([]byte(s)) }

func (s *storm) now() time.Time { return time.Unix(1e9+int64(len(s.log)), 0).UTC() }

func (s *storm) do(c run.Command) {
	facts, err := run.Decide(s.run, c)
	if err != nil {
		return // refusals are the aggregate's business
	}
	for _, f := range facts {
		e := s.record(event.KindRun, "r-1", f)
		if s.run != nil {
			s.micros += int64(len(s.run.Leases)) * e.Time.Sub(s.began).Microseconds()
		}
		s.began = e.Time
		s.run = run.Evolve(s.run, e)
		s.count(f)
		s.compare(f)
	}
}

func (s *storm) machine(id domain.MachineID, c machine.Command) {
	facts, err := machine.Decide(s.machines[id], c)
	if err != nil {
		return
	}
	for _, f := range facts {
		s.machines[id] = machine.Evolve(s.machines[id], s.record(event.KindMachine, string(id), f))
		s.compareMachine(id)
	}
}

// record encodes the fact, decodes it twice, and gives one copy to the views.
func (s *storm) record(k event.Kind, id string, f event.Data) event.Envelope {
	seq := uint64(len(s.log) + 1)
	b, err := event.Encode(event.Envelope{ID: fmt.Sprintf("c-%d.0", seq), Kind: k, Agg: id, Time: s.now(), Actor: "hub", Cause: domain.CommandID(fmt.Sprintf("c-%d", seq)),
		Prev: digest("before"), Data: f, Version: 1})
	if err != nil {
		s.r.Fatalf("%s: %v", f.Line(), err)
	}
	decode := func() event.Envelope {
		e, err := event.Decode(s.reg, seq, b)
		if err != nil {
			s.r.Fatal(err)
		}
		return e
	}
	e := decode()
	s.log = append(s.log, e)
	if err := s.views.engine.Apply(e); err != nil {
		s.r.Fatal(err)
	}
	return decode() // the state owns what it folds
}

func (s *storm) count(f event.Data) {
	switch d := f.(type) {
	case *run.LeaseExpired:
		s.sums.expired++
		s.sums.requeued += len(d.Requeued)
	case *run.ChunksStolen:
		s.sums.steals++
		s.sums.stolen += len(d.Chunks)
	case *run.ContributionRefused:
		s.sums.refused++
		s.sums.requeued += len(d.Returned)
	case *run.ContributionRevoked:
		s.sums.revoked++
		s.sums.requeued += len(d.Returned)
	case *run.ContributionCut:
		s.sums.cut++
		s.sums.requeued += len(d.Returned)
	case *run.ContributionAccepted:
		s.sums.accepted++
	case *run.TaskFailed:
		s.sums.failed++
		s.sums.requeued += len(d.Returned)
	}
}

// compare holds the view of the run against its state.
func (s *storm) compare(f event.Data) {
	v, ok := s.views.runs.Get("r-1")
	if !ok {
		s.r.Fatal("the view has no run")
	}
	type picture struct {
		Phase                         run.Phase
		Paused, Reason                string
		Model                         domain.Digest
		Params, Counted, Expected     int64
		Merged, Open, Chunks, InRound int
		Stalled                       bool
		Sums                          sums
		Leases                        map[domain.SlotID]run.Unit
		Holding                       map[domain.SlotID]int
		Evaluations                   int
		SlotCounted                   int64
	}
	st := s.run
	want := picture{Phase: st.Phase, Paused: st.Paused, Reason: st.Reason, Model: st.Base, Params: st.Params, Counted: st.Counted, Expected: st.Ledger().Expected,
		Merged: st.Merged, Sums: s.sums, Leases: map[domain.SlotID]run.Unit{}, Holding: map[domain.SlotID]int{}, Evaluations: len(st.Evaluations), SlotCounted: st.Counted}
	if o := st.Open; o != nil && !st.Phase.Ended() {
		want.Open, want.Chunks, want.InRound, want.Stalled = o.Number, len(o.Chunks), o.Counted, o.Stalled
	}
	for slot, l := range st.Leases {
		want.Leases[slot] = l.Unit
		if n := len(l.Trained); n > 0 {
			want.Holding[slot] = n
		}
	}
	got := picture{Phase: v.Phase, Paused: v.Paused, Reason: v.Reason, Model: v.Model, Params: v.Params, Counted: v.Ledger.Counted, Expected: v.Ledger.Expected,
		Merged: v.Rounds.Merged, Leases: map[domain.SlotID]run.Unit{}, Holding: map[domain.SlotID]int{}, Evaluations: len(v.Evaluations)}
	if v.Rounds.Open > 0 {
		got.Open, got.Chunks, got.InRound, got.Stalled = v.Rounds.Open, v.Rounds.Chunks, v.Rounds.Counted, v.Rounds.Stalled
	}
	t := v.Totals
	got.Sums = sums{t.Expired, t.Requeued, t.Steals, t.Stolen, t.Refused, t.Revoked, t.Cut, t.Uploaded, t.TaskFails}
	for _, r := range v.Slots {
		if r.Lease != "" {
			got.Leases[r.Slot] = r.Lease
		}
		if r.Holding != 0 {
			got.Holding[r.Slot] = r.Holding
		}
		got.SlotCounted += r.Samples
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(sums{})); d != "" {
		s.r.Fatalf("after %s (-state +view):\n%s\n%s", f.Line(), d, s.tail())
	}
	s.compareLeases()
	s.compareUsage(f)
}

// compareUsage holds the counts against the ledger, and the slot-seconds against the leases that the state held.
func (s *storm) compareUsage(f event.Data) {
	u := s.views.usage.Since(time.Time{})
	var machines usage.Counts
	for _, m := range u.Machines {
		machines.Samples += m.Samples
		machines.Micros += m.Micros
	}
	if u.Total.Samples != s.run.Counted || machines.Samples != s.run.Counted || len(u.Runs) > 1 || u.Total.Micros != s.micros || machines.Micros != s.micros {
		s.r.Fatalf("after %s: %+v used, machines %+v; the ledger has %d samples, leases lasted %d µs\n%s", f.Line(), u.Total, machines, s.run.Counted, s.micros, s.tail())
	}
}

// compareLeases holds the fleet's slots against the run's leases.
func (s *storm) compareLeases() {
	for _, m := range s.views.fleet.List() {
		for _, slot := range m.Slots {
			l := s.run.LeaseOf(slot.Slot)
			if (l == nil) != (slot.Run == "") || l != nil && (l.Unit != slot.Unit || l.Epoch != slot.Epoch) {
				s.r.Fatalf("%s: the fleet shows %+v, the run's lease is %+v\n%s", slot.Slot, slot, l, s.tail())
			}
		}
	}
}

func (s *storm) compareMachine(id domain.MachineID) {
	m, ok := s.views.fleet.Find(string(id))
	st := s.machines[id]
	if !ok || m.Standing != st.Standing || m.Quarantined != st.Quarantined || m.Draining != (st.Draining && st.Standing != machine.Drained) || len(m.Slots) != st.Slots {
		s.r.Fatalf("the fleet shows %+v, the machine is %+v\n%s", m, st, s.tail())
	}
}

func (s *storm) tail() string {
	var b strings.Builder
	for _, e := range s.log[max(0, len(s.log)-12):] {
		fmt.Fprintf(&b, "%d %s: %s\n", e.Seq, e.Data.EventName(), e.Data.Line())
	}
	return b.String()
}

// step draws a command; most of them are useful, so that runs come to their end.
func (s *storm) step() {
	slot := rapid.SampledFrom(s.slots).Draw(s.r, "slot")
	switch rapid.IntRange(0, 15).Draw(s.r, "what") {
	case 0:
		s.do(run.ExpireLease{Slot: slot})
	case 1:
		s.do(rapid.SampledFrom([]run.Command{run.Pause{}, run.Resume{}, run.Resume{}, run.Steal{From: slot, To: s.slots[0], Count: 1}, run.Steal{From: slot, To: s.slots[1], Count: 2}}).Draw(s.r, "odd"))
	case 2:
		if l := s.run.LeaseOf(slot); l != nil && rapid.IntRange(0, 3).Draw(s.r, "fails") == 0 {
			s.do(run.FailTask{Slot: slot, Epoch: l.Epoch, Error: "drawn"})
		}
	case 3:
		if o := s.run.Open; o != nil && len(o.Contributions) > 0 {
			k := o.Contributions[0]
			s.do(run.RevokeContribution{Slot: k.Slot, Number: k.Number, Reason: "drawn"})
		}
	case 4:
		s.do(run.ReleaseLease{Slot: slot, Reason: "idle"})
		if rapid.IntRange(0, 30).Draw(s.r, "cancel") == 0 {
			s.do(run.Cancel{})
		}
	case 5:
		s.machine(rapid.SampledFrom(s.ids).Draw(s.r, "machine"), s.drawMachine())
	default:
		s.useful(slot)
	}
}

func (s *storm) drawMachine() machine.Command {
	return rapid.SampledFrom([]machine.Command{
		machine.Connect{Incarnation: "i1", Slots: 2}, machine.Connect{Incarnation: "i2"}, machine.MarkSuspect{}, machine.Lose{},
		machine.Drain{}, machine.Drain{Stopping: true}, machine.MarkDrained{}, machine.Resume{}, machine.Quarantine{Reason: "drawn"},
	}).Draw(s.r, "machine command")
}

// useful takes the run forward on one slot.
func (s *storm) useful(slot domain.SlotID) {
	l, o := s.run.LeaseOf(slot), s.run.Open
	switch {
	case l != nil && l.Unit == run.UnitInit:
		s.do(run.Initialise{Slot: slot, Epoch: l.Epoch, Base: digest("base"), Layout: digest("layout"), Params: 10})
	case l != nil && l.Unit == run.UnitEvaluate:
		s.do(run.RecordEvaluation{Slot: slot, Epoch: l.Epoch, Samples: 3, Accuracy: 1})
	case s.run.WantsInit():
		s.do(run.GrantLease{Slot: slot, Unit: run.UnitInit})
	case s.run.WantsEvaluation() && l == nil:
		s.do(run.GrantLease{Slot: slot, Unit: run.UnitEvaluate, Round: s.run.Evaluation.Round})
	case o == nil:
		s.do(run.OpenRound{})
	case o.Closed:
		s.do(run.RecordMerge{Round: o.Number, NextBase: digest(fmt.Sprint("base", o.Number)), NextMomentum: digest(fmt.Sprint("momentum", o.Number)), StepNorm: 1})
	case o.Complete() || rapid.IntRange(0, 9).Draw(s.r, "close") == 0:
		s.do(run.CloseRound{Round: o.Number})
		s.do(run.ExtendRound{Round: o.Number})
	case l == nil:
		s.do(run.GrantLease{Slot: slot, Unit: run.UnitTrain, Round: o.Number})
	case len(l.Claimed) > 0 && l.Cut == nil:
		s.do(run.ReportTrained{Slot: slot, Epoch: l.Epoch, Number: s.run.Number(slot), Chunk: l.Claimed[0], Steps: 1, Seconds: 1, Loss: 0.5})
	case len(l.Trained) > 0:
		s.offer(slot, l)
	case len(s.run.ShardOf(slot)) > 0:
		s.do(run.Claim{Slot: slot, Count: rapid.IntRange(1, 3).Draw(s.r, "claim")})
	default:
		s.do(run.AssignShard{Slot: slot, Chunks: slices.Clone(o.Pool[:min(len(o.Pool), rapid.IntRange(1, 4).Draw(s.r, "deal"))])})
	}
}

func (s *storm) offer(slot domain.SlotID, l *run.Lease) {
	o := run.OfferContribution{Slot: slot, Epoch: l.Epoch, Number: s.run.Number(slot), Chunks: slices.Clone(l.Trained), Steps: 1,
		Blob: digest(fmt.Sprint("delta", len(s.log))), Codec: run.CodecFP32, Inspection: &run.Inspection{Norm: 1}}
	for i := range o.Chunks {
		o.Boundaries = append(o.Boundaries, i+1)
	}
	switch rapid.IntRange(0, 5).Draw(s.r, "offer") {
	case 0:
		o.Inspection.Why = run.RefusedNotFinite
	case 1: // somebody else's chunk behind its own: it is cut
		o.Chunks, o.Inspection = append(o.Chunks, domain.ChunkID(len(s.run.Chunks)-1)), nil
	case 2:
		o.Chunks = append([]domain.ChunkID{domain.ChunkID(len(s.run.Chunks) - 1)}, o.Chunks...)
	case 3:
		o.Epoch--
	}
	s.do(o)
}
