package hub

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"tensorturn/broker"
	"tensorturn/broker/memory"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// TestScenarios plays testdata/scenarios. A block "tell" runs its lines and shows the events that they caused, "skip"
// runs them and shows none, "detail" also shows trained chunks. Events of the planner are left out unless they grant or end something: domain/plan has
// scenarios of its own.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, filepath.Join("testdata", "scenarios"), func(t *testing.T, path string) {
		w := newWorld(t)
		w.shown = len(w.events)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			var out strings.Builder
			for line := range strings.Lines(d.Input) {
				out.WriteString(w.play(strings.Fields(line)))
			}
			switch d.Cmd {
			case "skip":
				w.shown = len(w.events)
				return out.String()
			case "tell":
				return out.String() + w.news()
			case "detail":
				w.detail = true
				defer func() { w.detail = false }()
				return out.String() + w.news()
			}
			d.Fatalf(t, "there is no block %q", d.Cmd)
			return ""
		})
		if s := w.core.Stats(); s.PlanRefused+s.PlanEndless > 0 {
			t.Errorf("the planner proposed what was refused: %+v", s)
		}
	})
}

// play runs one line and returns what it has to say beside the events.
func (w *world) play(f []string) string {
	w.t.Helper()
	if len(f) == 0 {
		return ""
	}
	arg := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	switch f[0] {
	case "enrol":
		w.enrol(arg(1), w.number(f, "slots", 1), float64(w.number(f, "speed", 10)))
	case "submit":
		w.submit(arg(1), func(s *run.Spec, d *run.Dataset) {
			d.Samples = w.number(f, "samples", d.Samples)
			s.Round.Chunks = w.number(f, "round", s.Round.Chunks)
			s.Round.Deadline = float64(w.number(f, "deadline", 0))
		})
	case "pass":
		d, err := time.ParseDuration(arg(1))
		w.must(err)
		w.pass(d)
	case "until":
		w.play1until(arg(1), arg(2))
	case "tick":
		w.step(Tick{})
	case "agent":
		w.playAgent(w.agent(arg(1)), f[2:])
	case "operator":
		return w.playOperator(f[1:])
	case "hub":
		return w.playHub(f[1:])
	case "log":
		w.playLog(f[1:])
	case "workers":
		w.playWorkers(f[1:])
	case "show":
		return w.show(f[1:])
	default:
		w.t.Fatalf("there is no line %q", f[0])
	}
	return ""
}

// number finds key=n among the words.
func (w *world) number(f []string, key string, otherwise int) int {
	for _, x := range f {
		if v, ok := strings.CutPrefix(x, key+"="); ok {
			n, err := strconv.Atoi(v)
			w.must(err)
			return n
		}
	}
	return otherwise
}

// play1until waits for an event of this name, about this slot if one is given.
func (w *world) play1until(name, slot string) {
	from := len(w.events)
	w.until(name+" "+slot, func() bool {
		for _, e := range w.events[from:] {
			if e.Data.EventName() == name && strings.Contains(e.Data.Line()+e.Agg, slot) {
				return true
			}
		}
		return false
	})
}

func (w *world) playAgent(a *fakeAgent, f []string) {
	switch f[0] {
	case "syncs":
		w.sync(a)
	case "works":
		a.work(float64(w.number(f, "seconds", 1)))
	case "repeats": // its last message arrives once more
		a.counter--
		w.step(Sync{Machine: a.id, Request: a.request()})
	case "ghost": // the first message of a process that ended before any of its messages came
		w.step(Sync{Machine: a.id, Request: wire.SyncRequest{Version: wire.Version, Incarnation: "ghost", Counter: 1, Slots: make([]wire.SlotReport, len(a.slots))}})
	case "silent":
		a.silent = true
	case "speaks":
		a.silent = false
	case "hangs":
		a.hung = true
	case "wakes":
		a.hung = false
	case "dies":
		a.dead = true
	case "restarts":
		a.restart()
	case "killed": // and starts again over the same disk
		a.killed()
	case "stops":
		a.stop = true
	case "fails":
		a.slots[0].err = strings.Join(f[1:], " ")
	case "lacks":
		a.missing = a.last.Wanted
	default:
		w.t.Fatalf("an agent does not %s", f[0])
	}
}

func (w *world) playOperator(f []string) string {
	var err error
	switch f[0] {
	case "drains":
		err = w.do(event.KindMachine, f[1], machine.Drain{})
	case "resumes":
		err = w.do(event.KindMachine, f[1], machine.Resume{})
	case "revokes":
		err = w.do(event.KindMachine, f[1], machine.Revoke{Reason: "sold"})
	case "cancels":
		err = w.do(event.KindRun, f[1], run.Cancel{Reason: "enough"})
	default:
		w.t.Fatalf("an operator does not %s", f[0])
	}
	return complaint(err)
}

func (w *world) playHub(f []string) string {
	switch f[0] {
	case "restarts":
		w.open()
		return complaint(w.core.ReadOnly())
	case "sleeps":
		d, err := time.ParseDuration(f[1])
		w.must(err)
		w.now = w.now.Add(d)
	default:
		w.t.Fatalf("a hub does not %s", f[0])
	}
	return ""
}

func (w *world) playLog(f []string) {
	faults := map[string]memory.Fault{"fails-before": memory.FailBefore, "fails-after": memory.FailAfter, "conflicts": memory.FailConflict, "full": memory.Full}
	switch f[0] {
	case "flips":
		w.log.Corrupt(uint64(w.number(f, "seq", 1)), func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	case "loses":
		w.log.Lose(uint64(w.number(f, "seq", 1)))
	case "rolls-back":
		seq, _ := w.core.Head()
		w.log.Cut(seq - uint64(w.number(f, "by", 1)))
	case "intruder":
		w.log.Intrude(broker.Record{Subject: "tt.ev.run.x.y", ID: "foreign.0", Data: []byte{0x80}})
	case "heals":
		w.log.SetFault(nil)
	default:
		fault, ok := faults[f[0]]
		if !ok {
			w.t.Fatalf("a log does not do %s", f[0])
		}
		times := w.number(f, "times", 1)
		w.log.SetFault(func(op memory.Op) memory.Fault {
			if op != memory.OpAppend || times == 0 {
				return memory.None
			}
			times--
			return fault
		})
	}
}

func (w *world) playWorkers(f []string) {
	switch f[0] {
	case "wait":
		w.hold = true
	case "wait-to-merge":
		w.holdMerges = true
	case "go":
		w.release()
	case "find": // workers find unreadable a/0
		w.finds[domain.SlotID(f[2])] = Inspected{Found: run.Inspection{Why: run.Refusal(f[1]), Note: "as told"}}
	case "miss":
		w.finds[domain.SlotID(f[1])] = Inspected{Err: domain.NotFound("read delta", "it is not there", "")}
	case "recover":
		w.finds, w.merge = map[domain.SlotID]Inspected{}, nil
	case "lose": // the merge cannot read this slot's delta
		w.merge = func(j MergeJob) Merged {
			for _, in := range j.Inputs {
				if in.Slot == domain.SlotID(f[1]) {
					return Merged{Job: j, Unreadable: []run.MergeInput{in}}
				}
			}
			return goodMerge(j)
		}
	case "overflow":
		w.merge = func(j MergeJob) Merged {
			return Merged{Job: j, Err: domain.Invalid("merge", "tensor w is not finite", "")}
		}
	default:
		w.t.Fatalf("workers do not %s", f[0])
	}
}

func (w *world) show(f []string) string {
	var b strings.Builder
	switch f[0] {
	case "slots":
		for _, a := range w.agents {
			for i, d := range a.slots {
				fmt.Fprintf(&b, "%s/%d holds %q %s, contribution %d, has claims %v, contribute %v\n",
					a.id, i, d.want.Run, d.want.Unit, d.want.Number, len(d.want.Claims) > 0, d.want.Contribute)
			}
		}
	case "ledger":
		s := w.state(f[1])
		l := s.Ledger()
		fmt.Fprintf(&b, "%s is %s, %d of %d samples counted\n", s.ID, s.Phase, l.Counted, l.Expected)
	case "reply": // the answer to one sync of an agent, in words
		a := w.agent(f[1])
		r := w.step(Sync{Machine: a.id, Request: a.request()})[0].Reply
		if r.Error != nil {
			fmt.Fprintf(&b, "%s: %s\n", r.Error.Kind, r.Error.Why)
		} else {
			fmt.Fprintf(&b, "stop %v, %d wanted, %d slots\n", r.Stop, len(r.Wanted), len(r.Slots))
		}
	case "acts":
		b.WriteString(strings.Join(w.acts, ", ") + "\n")
		w.acts = nil
	case "last": // the newest events, whether shown or not
		var lines []string
		for _, e := range w.events {
			if line := w.brief(e); line != "" {
				lines = append(lines, line)
			}
		}
		b.WriteString(strings.Join(lines[len(lines)-w.number(f, "n", 3):], "\n") + "\n")
	case "head":
		seq, _ := w.core.Head()
		last, err := w.log.Last(context.Background())
		w.must(err)
		fmt.Fprintf(&b, "hub behind log: %v, not given out: %v\n", seq < last, uint64(len(w.events)) < last)
	default:
		w.t.Fatalf("there is nothing to show of %s", f[0])
	}
	return b.String()
}

// complaint is an error as a person reads it.
func complaint(err error) string {
	if err == nil {
		return ""
	}
	var e *domain.Error
	if errors.As(err, &e) {
		return fmt.Sprintf("%s: %s\n", e.Kind, e.Error())
	}
	return err.Error() + "\n"
}
