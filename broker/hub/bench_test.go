package hub

import (
	"context"
	"fmt"
	"testing"
	"time"

	"tensorturn/domain/run"
)

// fleet is a hub with n agents of one slot in the middle of a round.
func fleet(b *testing.B, n int) (*world, []Input) {
	b.Helper()
	w := newWorld(b)
	for i := range n {
		w.enrol(fmt.Sprintf("m-%d", i), 1, 10)
	}
	w.submit("r-1", func(s *run.Spec, d *run.Dataset) { d.Samples, s.Round.Chunks = 200_000, 20_000 })
	w.steps = 1 // no replays from here on
	in := make([]Input, n)
	for range 8 {
		w.now = w.now.Add(time.Second)
		for i, a := range w.agents {
			a.work(1)
			in[i] = Sync{Machine: a.id, Request: a.request()}
		}
		for i, ans := range w.quiet(in) {
			w.agents[i].hear(ans.Reply)
		}
	}
	return w, in
}

// quiet is step without the checks.
func (w *world) quiet(in []Input) []Answer {
	answers := make([]Answer, len(in))
	for _, o := range w.core.Step(context.Background(), w.now, in) {
		if a, ok := o.(Answer); ok {
			answers[a.Index] = a
		}
	}
	return answers
}

// BenchmarkStep is the cost of one sync of each agent, with its share of planning, encoding and the log in memory.
func BenchmarkStep(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("agents=%d", n), func(b *testing.B) {
			w, in := fleet(b, n)
			for b.Loop() {
				w.now = w.now.Add(time.Second)
				for i, a := range w.agents {
					a.work(1)
					in[i] = Sync{Machine: a.id, Request: a.request()}
				}
				for i, ans := range w.quiet(in) {
					w.agents[i].hear(ans.Reply)
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "syncs/s")
		})
	}
}
