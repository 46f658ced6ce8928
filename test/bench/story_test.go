package main

import (
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// TestStoryAddsUp holds that every moment of a slot between the first opening and the last merge is booked once.
func TestStoryAddsUp(t *testing.T) {
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	tl := &teller{free: map[domain.SlotID]time.Time{}, inTurn: map[domain.SlotID]int{}}
	chunk := func(slot domain.SlotID, c domain.ChunkID, seconds float64) *run.ChunkTrained {
		return &run.ChunkTrained{Slot: slot, Chunk: c, Seconds: seconds}
	}
	tl.tell(at(0), &run.Submitted{Spec: run.Spec{Chunk: 10, Epochs: 1}, Data: run.Dataset{Samples: 45}})
	for _, f := range []struct {
		at   float64
		data any
	}{
		{1, &run.RoundOpened{Round: 1, Chunks: []domain.ChunkID{0, 1, 2}}},
		{3, chunk("a/0", 0, 1.5)}, // 0.5 to begin
		{5, chunk("a/0", 1, 1.9)}, // 0.1 between
		{4, chunk("b/0", 2, 2.8)},
		{6, &run.ContributionAccepted{Slot: "a/0", Samples: 20}}, // 1 of sending
		{7, &run.ContributionAccepted{Slot: "b/0", Samples: 10}},
		{7, &run.RoundClosed{Round: 1}}, // a waited 1
		{8, &run.RoundMerged{Round: 1}},
		{8.5, &run.RoundOpened{Round: 2, Chunks: []domain.ChunkID{3, 4}}},
		{9.5, chunk("b/0", 3, 0.8)},
		{10, chunk("b/0", 4, 0.4)}, // the last one is short
		{10.5, &run.ContributionAccepted{Slot: "b/0", Samples: 15}},
		{10.5, &run.RoundClosed{Round: 2}}, // a did nothing for 2
		{11, &run.RoundMerged{Round: 2}},
	} {
		tl.tell(at(f.at), f.data)
	}
	s := &tl.story
	if s.seconds() != 10 || s.samples != 45 || s.chunks != 5 || s.rounds != 2 || s.closing.Seconds() != 1.5 || s.opening.Seconds() != 0.5 {
		t.Errorf("story %+v", s)
	}
	for _, l := range s.slots {
		sum := l.training + l.begin + l.between + l.sending + l.waiting + s.closing.Seconds() + s.opening.Seconds()
		if diff := sum - s.seconds(); diff > 1e-9 || diff < -1e-9 {
			t.Errorf("slot %s: %.3f s are booked of %.3f: %+v", l.slot, sum, s.seconds(), l)
		}
	}
	a, b := s.slots[0], s.slots[1]
	if a.fewest != 0 || b.fewest != 1 || a.samples != 20 || b.samples != 25 {
		t.Errorf("a %+v, b %+v", a, b)
	}
}

// TestVerdict holds that a missed limit is seen, on the ratio where there is one, and that sections fail alone.
func TestVerdict(t *testing.T) {
	for _, tc := range []struct {
		row  row
		want string
	}{
		{row{Value: 5}, ""},
		{row{Value: 5, Limit: 5}, "ok"},
		{row{Value: 5.1, Limit: 5}, "missed"},
		{row{Value: 42, Ratio: 1.1, Limit: 1.1}, "ok"},
		{row{Value: 1, Ratio: 1.11, Limit: 1.1}, "missed"},
	} {
		if got := tc.row.verdict(); got != tc.want {
			t.Errorf("%+v is %q, want %q", tc.row, got, tc.want)
		}
	}
}

// TestBed holds that Fatal ends a section, that cleanups run in reverse, and that the first failure is told.
func TestBed(t *testing.T) {
	var order []int
	err := inBed(t.Output(), func(d *bed) {
		d.Cleanup(func() { order = append(order, 1) })
		d.Cleanup(func() { order = append(order, 2) })
		d.Errorf("first")
		d.Fatal("second")
		t.Error("it went on")
	})
	if err == nil || err.Error() != "first" || len(order) != 2 || order[0] != 2 {
		t.Errorf("err %v, order %v", err, order)
	}
}

func TestChoose(t *testing.T) {
	if got, err := choose("merge,log"); err != nil || len(got) != 2 || got[0].name != "merge" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := choose("merge,lgo"); err == nil {
		t.Error("an unknown section is taken")
	}
}
