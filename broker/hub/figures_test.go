package hub

import (
	"encoding/json"
	"testing"
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// A machine whose figures are numbers and no measures costs its owner nothing but itself: the run ends, its rounds have deadlines,
// and everything recorded can be written as JSON, which knows no infinity. The wire's own bounds do not protect these agents.
func TestFiguresBeyondReason(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*wire.SlotReport)
		flop float64
	}{
		{"no speed at all", func(r *wire.SlotReport) { r.Speed = 5e-324 }, 0},
		{"the speed of everything", func(r *wire.SlotReport) { r.Speed = 1.7e308 }, 0},
		{"an upload that never ends", func(r *wire.SlotReport) { r.Upload = 1e308 }, 0},
		{"a benchmark of nothing", func(*wire.SlotReport) {}, 1e-300},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			evil := w.enrol("evil", 2, 1)
			w.enrol("good", 1, 1)
			if c.flop > 0 {
				evil.bench = &wire.Bench{Number: 1, Score: machine.Score{Devices: []machine.DeviceScore{{Flops: c.flop}}, Up: c.flop, Down: c.flop}}
			}
			w.submit("r-1", func(s *run.Spec, d *run.Dataset) { s.Round.Chunks, d.Samples = 12, 240 })
			for i := 0; i < 600 && !w.state("r-1").Phase.Ended(); i++ {
				w.now = w.now.Add(time.Second)
				for _, a := range w.agents {
					a.work(1)
					r := a.request()
					if a == evil {
						for k := range r.Slots {
							c.edit(&r.Slots[k])
						}
					}
					a.hear(w.step(Sync{Machine: a.id, Request: r})[0].Reply)
				}
				w.step(Tick{})
				explain(w)
			}
			if got := w.state("r-1").Phase; got != run.PhaseCompleted {
				t.Errorf("the run is %s", got)
			}
			if s := w.core.Stats(); s.PlanRefused > 0 || s.PlanEndless > 0 {
				t.Errorf("the planner proposed what is refused: %+v", s)
			}
			for _, e := range w.events {
				if _, err := json.Marshal(e.Data); err != nil {
					t.Errorf("%s: %v", e.Data.EventName(), err)
				}
				if o, ok := e.Data.(*run.RoundOpened); ok && !(o.Deadline < run.DeadlineUnknown+1) {
					t.Errorf("round %d has a deadline of %v s", o.Round, o.Deadline)
				}
			}
		})
	}
}

// explain asks why the run is where it is, as long as it is anywhere, and writes the answer as the API does.
func explain(w *world) {
	if w.state("r-1").Phase.Ended() {
		return
	}
	e, err := w.core.Explain(Wish{Run: "r-1"}, w.now)
	w.must(err)
	_, err = json.Marshal(e)
	w.must(err)
}
