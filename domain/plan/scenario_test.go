package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"tensorturn/domain"
	"tensorturn/domain/plan"
	"tensorturn/domain/run"
)

// TestScenarios plays the files in testdata/scenarios. Each is a story about one rule; the words are:
//
//	slots                   one slot a line: ID [speed=S] [upload=S] [power=GFLOPS] [gpu=GFLOPS] [link=MB/S] [busy=S [shown=S]] [suspect|draining|quarantined|lost|unheard|online]
//	forget SLOT             the pool no longer lists it
//	submit RUN [samples=] [chunk=] [round=] [epochs=] [most=] [deadline=] [every=] [priority=]
//	plan                    asks plan until it has nothing to propose, and lists the facts
//	init RUN, merge RUN, evaluated RUN, pause RUN, resume RUN, cancel RUN
//	trained RUN SLOT [n=]   reports claimed chunks; contribute RUN SLOT has the trained ones accepted
//	work RUN SLOT [n=]      reports n chunks, asks plan after each, and lists the facts but the claims
//	expire RUN SLOT, fail RUN SLOT, age RUN SECONDS
//	ensemble RUN [members=] [samples=] [deadline=], checkpoint RUN SLOT [chunks=], in RUN SLOT (its member is trained and comes in)
//	show RUN                where every chunk of the open round is
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := newStory(t, 120*time.Second)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			return s.play(d)
		})
	})
}

// num is the integer argument of the name, or otherwise.
func (s *story) num(d *datadriven.TestData, name string, otherwise int) int {
	if arg, ok := d.Arg(name); ok {
		if _, err := fmt.Sscan(arg.Vals[0], &otherwise); err != nil {
			s.t.Fatalf("%s: %s is no number", d.Pos, name)
		}
	}
	return otherwise
}

func (s *story) play(d *datadriven.TestData) string {
	var id domain.RunID
	var slot domain.SlotID
	if len(d.CmdArgs) > 0 {
		id = domain.RunID(d.CmdArgs[0].Key)
	}
	if len(d.CmdArgs) > 1 {
		slot = domain.SlotID(d.CmdArgs[1].Key)
	}
	switch d.Cmd {
	case "slots":
		s.setSlots(d.Input)
	case "forget":
		s.slots = slices.DeleteFunc(s.slots, func(p plan.Slot) bool { return p.ID == domain.SlotID(id) })
	case "submit":
		s.submit(id, s.num(d, "samples", 240), s.num(d, "chunk", 10), s.num(d, "round", 24), s.num(d, "epochs", 1), s.num(d, "most", 0),
			float64(s.num(d, "deadline", 0)), s.num(d, "every", 0))
		s.run(id).Spec.Priority = s.num(d, "priority", 0)
	case "ensemble":
		s.ensemble(id, s.num(d, "members", 3), s.num(d, "samples", 100), s.num(d, "deadline", 0))
	case "checkpoint":
		s.checkpoint(id, slot, s.num(d, "chunks", 1))
	case "in":
		s.in(id, slot)
	case "plan":
		return list(s.settle())
	case "init":
		s.initialise(id)
	case "trained":
		s.trained(id, slot, s.num(d, "n", 1))
	case "work":
		return list(s.work(id, slot, s.num(d, "n", 1)))
	case "contribute":
		s.contribute(id, slot)
	case "merge":
		s.merge(id)
	case "evaluated":
		s.evaluated(id)
	case "pause":
		s.must(id, run.Pause{})
	case "resume":
		s.must(id, run.Resume{})
	case "cancel":
		s.must(id, run.Cancel{})
	case "expire":
		s.must(id, run.ExpireLease{Slot: slot, Reason: "no contact", Silent: 120})
	case "fail":
		s.must(id, run.FailTask{Slot: slot, Epoch: s.run(id).Leases[slot].Epoch, Error: "broken"})
	case "age":
		var age float64
		fmt.Sscan(string(slot), &age)
		s.ages[id] = age
	case "show":
		return s.show(id)
	default:
		s.t.Fatalf("%s: unknown word %q", d.Pos, d.Cmd)
	}
	return ""
}

// setSlots reads a table of slots.
func (s *story) setSlots(table string) {
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		p := s.slot(domain.SlotID(words[0]))
		for _, w := range words[1:] {
			key, value, _ := strings.Cut(w, "=")
			var x float64
			fmt.Sscan(value, &x)
			set(s.t, p, key, x)
		}
	}
}

func set(t tester, p *plan.Slot, key string, x float64) {
	switch key {
	case "speed":
		p.Speed = x
	case "power": // of what its trainer uses, GFLOP/s
		p.Power = plan.Power{Own: x * 1e9, CPU: x * 1e9}
	case "gpu":
		p.Power.Own = x * 1e9
	case "link": // MB/s
		p.Link = x * 1e6
	case "upload":
		p.Upload = x
	case "done":
		p.Done = int64(x)
	case "busy":
		p.Busy, p.Shown = x, x
	case "shown":
		p.Shown = x
	case "online":
		p.Usable, p.Suspect, p.Draining, p.Quarantined = true, false, false, false
	case "suspect":
		p.Usable, p.Suspect = false, true
	case "draining":
		p.Usable, p.Draining = false, true
	case "quarantined":
		p.Usable, p.Quarantined = false, true
	case "lost", "unheard":
		p.Usable = false
	default:
		t.Fatalf("a slot has no %q", key)
	}
}

// show says where the open round's chunks are.
func (s *story) show(id domain.RunID) string {
	r := s.run(id)
	if r.Open == nil {
		return fmt.Sprintf("%s, %d rounds merged, no round open\n", r.Phase, r.Merged)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, round %d: %d of %d chunks counted\n", r.Phase, r.Open.Number, r.Open.Counted, len(r.Open.Chunks))
	if len(r.Open.Pool) > 0 {
		fmt.Fprintf(&b, "pool %s\n", ranges(r.Open.Pool))
	}
	for _, p := range s.slots {
		l := r.Leases[p.ID]
		if l == nil {
			continue
		}
		fmt.Fprintf(&b, "%s %s: trained %s, claimed %s, shard %s\n", p.ID, l.Unit, ranges(l.Trained), ranges(l.Claimed), ranges(r.ShardOf(p.ID)))
	}
	return b.String()
}

// work trains n chunks with a plan after each.
func (s *story) work(id domain.RunID, slot domain.SlotID, n int) []string {
	var lines []string
	for range n {
		s.trained(id, slot, 1)
		for _, l := range s.settle() {
			if !strings.Contains(l, " claims ") {
				lines = append(lines, l)
			}
		}
	}
	return lines
}

func list(lines []string) string {
	if len(lines) == 0 {
		return "nothing\n"
	}
	return strings.Join(lines, "\n") + "\n"
}
