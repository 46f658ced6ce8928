package machine_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// life is one machine and what happened to it.
type life struct {
	s   *machine.State
	seq uint64
}

// do decides and applies c.
func (l *life) do(c machine.Command) ([]event.Data, error) {
	ds, err := machine.Decide(l.s, c)
	for _, d := range ds {
		l.seq++
		l.s = machine.Evolve(l.s, event.Envelope{Seq: l.seq, Kind: event.KindMachine, Agg: "m-1", Data: d})
	}
	return ds, err
}

// TestScenarios plays the stories in testdata/scenarios. Each word is a command; the facts and the standing follow.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		l := &life{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			ds, err := l.do(command(t, d))
			if err != nil {
				return fmt.Sprintf("refused (%s): %v\nnext: %s\n", domain.KindOf(err), err, domain.NextOf(err))
			}
			var b strings.Builder
			for _, f := range ds {
				fmt.Fprintf(&b, "%s: %s\n", f.EventName(), f.Line())
			}
			if len(ds) == 0 {
				b.WriteString("nothing\n")
			}
			fmt.Fprintf(&b, "= %s, draining %v, quarantined %q, usable %v\n", l.s.Standing, l.s.Draining, l.s.Quarantined, l.s.Usable())
			if n := l.s.BenchWanted(); n > 0 && strings.Contains(path, "bench") {
				fmt.Fprintf(&b, "  benchmark %d is wanted\n", n)
			}
			for _, f := range l.s.Slow {
				fmt.Fprintf(&b, "  slow: %s\n", f.Said())
			}
			for _, p := range l.s.Paused {
				fmt.Fprintf(&b, "  slot %d paused for %s: %s, usable %v\n", p.Slot, p.Cause, p.Reason, l.s.SlotUsable(p.Slot))
			}
			if labels := l.s.Labels(); labels != nil {
				fmt.Fprintf(&b, "  labels %s\n", domain.LabelText(labels))
			}
			return b.String()
		})
	})
}

func command(t *testing.T, d *datadriven.TestData) machine.Command {
	arg := func(i int, otherwise string) string {
		if i < len(d.CmdArgs) {
			return d.CmdArgs[i].String()
		}
		return otherwise
	}
	number := func(i, otherwise int) int {
		n, err := strconv.Atoi(arg(i, strconv.Itoa(otherwise)))
		if err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		return n
	}
	switch d.Cmd {
	case "enrol":
		return machine.Enrol{ID: "m-1", Name: "attic", NKey: arg(0, "UKEY"), Account: "AACC", Slots: number(1, 2), Token: "t-1", At: noon}
	case "connect":
		return machine.Connect{Incarnation: domain.Incarnation(arg(0, "i-1")), Slots: number(1, 0)}
	case "suspect":
		return machine.MarkSuspect{Silent: float64(number(0, 15))}
	case "lose":
		return machine.Lose{Silent: float64(number(0, 120))}
	case "drain":
		return machine.Drain{Stopping: arg(0, "") == "stopping"}
	case "drained":
		return machine.MarkDrained{}
	case "resume":
		return machine.Resume{}
	case "revoke":
		return machine.Revoke{Reason: "sold"}
	case "pause", "unpause":
		var slots []int
		for i := range d.CmdArgs {
			slots = append(slots, number(i, 0))
		}
		if d.Cmd == "pause" {
			return machine.Pause{Slots: slots}
		}
		return machine.Unpause{Slots: slots}
	case "away": // away gone=0 busy=1
		var c machine.Away
		for _, a := range d.CmdArgs {
			for _, v := range a.Vals {
				n, err := strconv.Atoi(v)
				if err != nil {
					t.Fatalf("%s: %v", d.Pos, err)
				}
				c.Slots = append(c.Slots, machine.SlotPause{Slot: n, Cause: machine.Cause(a.Key), Reason: "its GPU is " + a.Key})
			}
		}
		return c
	case "label", "told": // label site=home rack-
		set, remove := map[string]string{}, []string(nil)
		for _, a := range d.CmdArgs {
			if key, cut := strings.CutSuffix(a.Key, "-"); cut && len(a.Vals) == 0 {
				remove = append(remove, key)
				continue
			}
			set[a.Key] = strings.Join(a.Vals, "")
		}
		if d.Cmd == "told" {
			return machine.TellLabels{Labels: set}
		}
		return machine.Label{Set: set, Remove: remove}
	case "bench": // bench asks anew; bench for=its driver changed
		c := machine.AskBench{}
		for _, a := range d.CmdArgs {
			if a.Key == "anew" {
				c.Anew = true
			} else {
				c.Reason = strings.Join(a.Vals, " ")
			}
		}
		return c
	case "measured": // measured 1 cpu=100 gpu=900 up=2: gigaflops and megabytes a second
		c := machine.RecordBench{Number: number(0, 0), Score: machine.Score{Devices: []machine.DeviceScore{{Name: "cpu"}}, Seconds: 12}}
		for _, a := range d.CmdArgs[1:] {
			v, err := strconv.ParseFloat(a.Vals[0], 64)
			if err != nil {
				t.Fatalf("%s: %v", d.Pos, err)
			}
			switch a.Key {
			case "cpu":
				c.Score.Devices[0].Flops = v * 1e9
			case "gpu":
				c.Score.Devices = append(c.Score.Devices, machine.DeviceScore{Device: "GPU-a", Name: "gpu", Flops: v * 1e9})
				c.Score.Slots = []string{"GPU-a", "GPU-a"}
			case "up":
				c.Score.Up = v * 1e6
			}
		}
		return c
	case "quarantine":
		return machine.Quarantine{Reason: "3 refused contributions in a row"}
	}
	t.Fatalf("%s: unknown word %q", d.Pos, d.Cmd)
	return nil
}

func TestEnrolRefusals(t *testing.T) {
	good := machine.Enrol{ID: "m-1", Name: "attic", NKey: "UKEY", Account: "AACC", Slots: 1, At: noon}
	for name, tc := range map[string]struct {
		change func(*machine.Enrol)
		why    string
	}{
		"good":           {func(*machine.Enrol) {}, ""},
		"most slots":     {func(c *machine.Enrol) { c.Slots = domain.MaxSlotsPerMachine }, ""},
		"too many slots": {func(c *machine.Enrol) { c.Slots = domain.MaxSlotsPerMachine + 1 }, "65 slots; a machine has 1 to 64"},
		"no slots":       {func(c *machine.Enrol) { c.Slots = 0 }, "0 slots"},
		"long name":      {func(c *machine.Enrol) { c.Name = strings.Repeat("n", domain.MaxNameLength+1) }, "the name has 81 bytes"},
		"longest name":   {func(c *machine.Enrol) { c.Name = strings.Repeat("n", domain.MaxNameLength) }, ""},
		"no key":         {func(c *machine.Enrol) { c.NKey = "" }, "the public key or the account is missing"},
		"no account":     {func(c *machine.Enrol) { c.Account = "" }, "the public key or the account is missing"},
		"ill id":         {func(c *machine.Enrol) { c.ID = "m.>" }, "is not an id"},
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			tc.change(&c)
			_, err := machine.Decide(nil, c)
			if tc.why == "" && err != nil || tc.why != "" && (err == nil || !strings.Contains(err.Error(), tc.why) || domain.NextOf(err) == "") {
				t.Fatalf("got %v, want %q and a next step", err, tc.why)
			}
		})
	}
}

// TestUnknownMachine refuses everything but enrolment of a machine that nobody knows.
func TestUnknownMachine(t *testing.T) {
	for _, c := range []machine.Command{machine.Connect{Incarnation: "i"}, machine.MarkSuspect{}, machine.Lose{}, machine.Drain{}, machine.Resume{},
		machine.MarkDrained{}, machine.Revoke{}, machine.Quarantine{}} {
		if _, err := machine.Decide(nil, c); domain.KindOf(err) != domain.KindNotFound {
			t.Errorf("%T on an unknown machine gives %v", c, err)
		}
	}
}

// TestRepeats sends every command twice in a row in every reachable state: the second time nothing is decided.
func TestRepeats(t *testing.T) {
	commands := []machine.Command{
		machine.Enrol{ID: "m-1", NKey: "U", Account: "A", Slots: 1, At: noon}, machine.Connect{Incarnation: "i-1"}, machine.Connect{Incarnation: "i-2", Slots: 3},
		machine.MarkSuspect{Silent: 1}, machine.Lose{Silent: 1}, machine.Drain{}, machine.Drain{Stopping: true}, machine.MarkDrained{},
		machine.Resume{}, machine.Quarantine{}, machine.Revoke{}, machine.Pause{}, machine.Pause{Slots: []int{0}}, machine.Unpause{},
		machine.AskBench{}, machine.AskBench{Anew: true}, machine.RecordBench{Number: 1, Score: machine.Score{Up: 1}}, machine.RecordBench{Number: 2, Score: machine.Score{Up: 0.5}},
		machine.Away{}, machine.Away{Slots: []machine.SlotPause{{Cause: machine.ByAbsence}}},
	}
	var walk func(l life, depth int)
	walk = func(l life, depth int) {
		for _, c := range commands {
			next := life{seq: l.seq}
			if l.s != nil {
				copied := *l.s
				next.s = &copied
			}
			if _, err := next.do(c); err != nil {
				continue
			}
			if ds, err := next.do(c); err != nil || len(ds) > 0 {
				t.Fatalf("%#v twice gives %v, %v in %+v", c, ds, err, *next.s)
			}
			if depth > 0 {
				walk(next, depth-1)
			}
		}
	}
	walk(life{}, 3)
}

func TestForeignFactPanics(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "broken promise") {
			t.Fatalf("recovered %v", r)
		}
	}()
	machine.Evolve(nil, event.Envelope{Seq: 1})
}
