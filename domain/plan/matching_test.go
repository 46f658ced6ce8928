package plan_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"go.yaml.in/yaml/v3"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/match"
	"tensorturn/domain/plan"
	"tensorturn/domain/run"
)

// TestMatching plays the table of machines × specs in testdata/matching. The words are:
//
//	machine ID cores=N memory=SIZE disk=SIZE [gpu=NAME:SIZE ...] [slots=N] [label=KEY:VALUE ...] [trouble=TEXT] [unknown] [lost] [paused=REASON]
//	spec                   a spec in YAML: which slots take part in it and why, and whom the planner asks for the first weights
//	take host=SIZE device=SIZE   what the dry step of the last spec's run took: who takes part in its first round
//
// In names and texts an underscore stands for a blank.
func TestMatching(t *testing.T) {
	datadriven.Walk(t, "testdata/matching", func(t *testing.T, path string) {
		var p pool
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			p.t = t
			switch d.Cmd {
			case "machine":
				p.machine(d)
				return ""
			case "spec":
				return p.spec(d.Input)
			case "take":
				var m run.Memory
				for _, a := range d.CmdArgs {
					n := p.size(a.Vals[0])
					if a.Key == "host" {
						m.Host = n
					} else {
						m.Device = n
					}
				}
				return p.take(m)
			}
			t.Fatalf("%s: unknown word %q", d.Pos, d.Cmd)
			return ""
		})
	})
}

// pool is a snapshot under construction, and the run that the last spec made.
type pool struct {
	t    *testing.T
	snap plan.Snapshot
	run  *run.State
	seq  uint64
}

func (p *pool) size(text string) uint64 {
	n, err := domain.ParseSize(text)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func plain(s string) string { return strings.ReplaceAll(s, "_", " ") }

func (p *pool) machine(d *datadriven.TestData) {
	m := match.Machine{ID: domain.MachineID(d.CmdArgs[0].Key), Name: d.CmdArgs[0].Key, Labels: map[string]string{}}
	v := &machine.Vitals{}
	m.Vitals = v
	slot := plan.Slot{Usable: true, Free: true}
	for _, a := range d.CmdArgs[1:] {
		value := strings.Join(a.Vals, "")
		first, second, _ := strings.Cut(value, ":")
		switch a.Key {
		case "cores":
			m.Cores, _ = strconv.Atoi(value)
		case "memory":
			v.Memory.Total = p.size(value)
		case "disk":
			v.Disk.Free = p.size(value)
		case "gpu":
			g := machine.GPU{Index: len(v.GPUs), UUID: fmt.Sprintf("GPU-%s-%d", m.ID, len(v.GPUs)), Name: plain(first), Memory: machine.Space{Total: p.size(second)}}
			v.GPUs, v.SlotGPUs = append(v.GPUs, g), append(v.SlotGPUs, g.UUID)
		case "slots":
			m.Slots, _ = strconv.Atoi(value)
		case "label":
			m.Labels[first] = second
		case "trouble":
			v.Trouble = plain(value)
		case "unknown":
			m.Vitals, m.Cores = nil, 0
		case "lost":
			slot.Usable, slot.Away = false, "its machine is lost: it has been silent for a lease time"
		case "paused":
			slot.Usable, slot.Draining, slot.Paused = false, true, plain(value)
		default:
			p.t.Fatalf("%s: a machine has no %q", d.Pos, a.Key)
		}
	}
	m.Slots = max(m.Slots, len(v.SlotGPUs), 1)
	for i := len(v.SlotGPUs); i < m.Slots && len(v.GPUs) > 0; i++ {
		v.SlotGPUs = append(v.SlotGPUs, v.GPUs[i%len(v.GPUs)].UUID)
	}
	for i := range m.Slots {
		slot.ID = domain.Slot(m.ID, i)
		p.snap.Slots = append(p.snap.Slots, slot)
	}
	p.snap.Machines = append(p.snap.Machines, m)
	slices.SortFunc(p.snap.Slots, func(a, b plan.Slot) int { return strings.Compare(string(a.ID), string(b.ID)) })
	slices.SortFunc(p.snap.Machines, func(a, b match.Machine) int { return strings.Compare(string(a.ID), string(b.ID)) })
}

func (p *pool) decide(c run.Command) {
	facts, err := run.Decide(p.run, c)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, f := range facts {
		p.seq++
		p.run = run.Evolve(p.run, event.Envelope{Seq: p.seq, Kind: event.KindRun, Agg: "r-1", Data: f})
	}
	p.snap.Runs = []*run.State{p.run}
}

// spec submits it to the pool alone.
func (p *pool) spec(text string) string {
	var s run.Spec
	if err := yaml.Unmarshal([]byte(text), &s); err != nil {
		p.t.Fatal(err)
	}
	data := run.Dataset{Blob: digest("code"), Samples: 1000, Heldout: 100, Features: 64, Classes: 10, Block: 1000}
	if s.Trainer == run.Process {
		s.Data.Samples, s.Command = 1000, []string{"train"}
		data = run.ProcessData(s, data.Blob)
	} else {
		s.Data.Path = "digits.csv"
	}
	s, err := run.Resolve(s, data)
	if err != nil {
		return fmt.Sprintf("refused: %v\nnext: %s\n", err, domain.NextOf(err))
	}
	p.run = nil
	p.decide(run.Submit{Spec: s, Data: data})
	return p.placement()
}

// take has the first weights made by the slot that the planner chooses.
func (p *pool) take(m run.Memory) string {
	asked := plan.Next(p.snap)
	if len(asked) != 1 {
		p.t.Fatalf("the planner proposes %v, not the first weights", asked)
	}
	g := asked[0].Command.(run.GrantLease)
	p.decide(g)
	d := digest("weights")
	p.decide(run.Initialise{Slot: g.Slot, Epoch: p.run.Leases[g.Slot].Epoch, Base: d, Layout: d, Params: 1000, Take: &m})
	for range 3 {
		for _, a := range plan.Next(p.snap) {
			p.decide(a.Command)
		}
	}
	return p.placement()
}

// placement says what each slot is to the run, and holds the words against what the planner does: who is told to take no part gets no
// lease, and everybody else may.
func (p *pool) placement() string {
	var b strings.Builder
	out := map[domain.SlotID]bool{}
	for _, pl := range plan.Places(p.snap, "r-1") {
		fmt.Fprintf(&b, "%-9s %-6s %s\n", pl.Slot, pl.Role, pl.Reason)
		out[pl.Slot] = pl.Role == plan.Out
	}
	for _, a := range plan.Next(p.snap) {
		if g, ok := a.Command.(run.GrantLease); ok {
			if out[g.Slot] {
				p.t.Errorf("%s takes no part, and is asked for %s", g.Slot, g.Unit)
			}
			fmt.Fprintf(&b, "planner: %s gets %s\n", g.Slot, g.Unit)
		}
	}
	for slot, l := range p.run.Leases {
		if out[slot] {
			p.t.Errorf("%s takes no part, and holds %s", slot, l.Unit)
		}
	}
	return b.String()
}
