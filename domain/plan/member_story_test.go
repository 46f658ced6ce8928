package plan_test

import (
	"fmt"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// ensemble begins an ensemble of members with samples samples each, in chunks of ten.
func (s *story) ensemble(id domain.RunID, members, samples, deadline int) {
	data := run.Dataset{Blob: digest("data"), Samples: samples, Heldout: 10, Features: 4, Classes: 2, Block: 1024}
	spec, err := run.Resolve(run.Spec{Name: string(id), Mode: run.ModeEnsemble, Batch: 10, Chunk: 10, Epochs: 1,
		Ensemble: &run.Ensemble{Members: members, Min: 1, Deadline: float64(deadline)}}, data)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.do(id, run.Submit{Spec: spec, Data: data}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *story) checkpoint(id domain.RunID, slot domain.SlotID, chunks int) {
	s.must(id, run.RecordCheckpoint{Slot: slot, Epoch: s.run(id).Leases[slot].Epoch, Chunks: chunks, Blob: digest(fmt.Sprint("checkpoint", slot, chunks)), Loss: 1})
}

// in brings the slot's member in.
func (s *story) in(id domain.RunID, slot domain.SlotID) {
	e := s.run(id).Leases[slot].Epoch
	s.must(id, run.RecordMember{Slot: slot, Epoch: e, Weights: digest(fmt.Sprint("weights", e)), Layout: digest("layout"), Params: 10, Loss: 1})
	s.must(id, run.RecordOutputs{Slot: slot, Epoch: e, Outputs: &run.MemberOutputs{Blob: digest(fmt.Sprint("outputs", e)), Rows: 10, Classes: 2, Accuracy: 0.9, Loss: 0.3}})
}

// memberTrial runs an ensemble in virtual time, without losses, and gives the time at which the last member is in.
func memberTrial(t *testing.T, members int, speeds []float64) float64 {
	s := newStory(t, 120e9)
	for i, v := range speeds {
		p := s.slot(domain.SlotID(fmt.Sprintf("m%d/0", i)))
		p.Speed = v
	}
	s.ensemble("r-1", members, 1000, 0)
	now := 0.0
	left := map[domain.SlotID]float64{} // samples until its member is in
	for steps := 0; s.run("r-1").Phase == run.PhaseTraining; steps++ {
		if steps > 100*members {
			t.Fatal("the members do not come in")
		}
		s.settle()
		next, slot := 0.0, domain.SlotID("")
		for i := range s.slots {
			p := &s.slots[i]
			l := s.run("r-1").Leases[p.ID]
			if l == nil {
				delete(left, p.ID)
				continue
			}
			if l.Contribute != "" { // kept at once, as far as it has come
				s.checkpoint("r-1", p.ID, int(p.Done/10))
				p.Done, slot = 0, "again"
				delete(left, p.ID)
				break
			}
			if _, ok := left[p.ID]; !ok {
				left[p.ID] = 1000 - float64(s.run("r-1").Member(l.Member).Samples)
			}
			if at := left[p.ID] / p.Speed; slot == "" || at < next {
				next, slot = at, p.ID
			}
		}
		if slot == "again" {
			continue
		}
		now += next
		for i := range s.slots {
			p := &s.slots[i]
			if _, ok := left[p.ID]; ok {
				left[p.ID] -= next * p.Speed
				p.Done = int64(1000 - left[p.ID])
			}
		}
		s.in("r-1", slot)
		s.slot(slot).Done = 0
		delete(left, slot)
	}
	return now
}

// Members are dealt so that the last one is in soon, with more members than slots and fewer, on slots of any speeds.
func TestMembersAreInSoon(t *testing.T) {
	for _, c := range []struct {
		members int
		speeds  []float64
		most    float64 // times the ideal, which splits members
	}{
		{5, []float64{1, 1, 1}, 1.21}, // two rounds of members of 1: 2 / (5/3)
		{16, []float64{1, 2, 4, 8}, 1.15},
		{5, []float64{1, 2, 4, 8}, 1.30},
		{2, []float64{1, 2, 4, 8}, 2.0}, // only as many as there are members work
		{40, []float64{10, 3, 3, 1, 7}, 1.10},
	} {
		sum, fastest := 0.0, 0.0
		for _, v := range c.speeds {
			sum, fastest = sum+v, max(fastest, v)
		}
		ideal := max(float64(c.members)*1000/sum, 1000/fastest)
		got := memberTrial(t, c.members, c.speeds)
		t.Logf("%d members on %v: %.0f s, ideal %.0f s, × %.2f", c.members, c.speeds, got, ideal, got/ideal)
		if got > c.most*ideal {
			t.Errorf("%d members on %v take %.0f s, more than %.2f times %.0f s", c.members, c.speeds, got, c.most, ideal)
		}
	}
}
