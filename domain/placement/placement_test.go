package placement_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"tensorturn/domain"
	"tensorturn/domain/placement"
)

// The stories: "models a*2 b*1", then machines as "m1 room=4 leaving: a ready, b failed".
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var models []placement.Model
			for _, w := range d.CmdArgs[0].Vals {
				name, n, _ := strings.Cut(w, "*")
				copies, err := strconv.Atoi(n)
				if err != nil {
					t.Fatal(err)
				}
				models = append(models, placement.Model{Key: key(name), Copies: copies})
			}
			var machines []placement.Machine
			for line := range strings.Lines(d.Input) {
				machines = append(machines, machine(t, strings.TrimSpace(line)))
			}
			var out strings.Builder
			for i, ks := range placement.Plan(models, machines) {
				fmt.Fprintf(&out, "%s:", machines[i].ID)
				for _, k := range ks {
					fmt.Fprintf(&out, " %s", k.Run)
				}
				out.WriteByte('\n')
			}
			return out.String()
		})
	})
}

func key(name string) placement.Key { return placement.Key{Run: domain.RunID(name)} }

func machine(t *testing.T, line string) placement.Machine {
	head, holds, _ := strings.Cut(line, ":")
	m := placement.Machine{Room: 8, Holds: map[placement.Key]placement.How{}}
	for i, w := range strings.Fields(head) {
		switch {
		case i == 0:
			m.ID = domain.MachineID(w)
		case w == "leaving":
			m.Leaving = true
		default:
			if _, err := fmt.Sscanf(w, "room=%d", &m.Room); err != nil {
				t.Fatalf("%q: %v", w, err)
			}
		}
	}
	for _, h := range strings.FieldsFunc(holds, func(r rune) bool { return r == ',' }) {
		name, how, _ := strings.Cut(strings.TrimSpace(h), " ")
		ways := map[string]placement.How{"ready": placement.Ready, "loading": placement.Loading, "failed": placement.Failed}
		way, ok := ways[how]
		if !ok {
			t.Fatalf("%q is no way to hold", how)
		}
		m.Holds[key(name)] = way
	}
	return m
}

// Whatever stands where: nothing beyond a machine's room is added, a failed copy is not asked of the same machine again, a ready
// copy that is needed stays, a plan that is carried out changes no more.
func TestRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var models []placement.Model
		for i := range rapid.IntRange(0, 6).Draw(t, "models") {
			models = append(models, placement.Model{Key: key(fmt.Sprint("r", i)), Copies: rapid.IntRange(1, 3).Draw(t, "copies")})
		}
		var machines []placement.Machine
		for i := range rapid.IntRange(0, 5).Draw(t, "machines") {
			m := placement.Machine{ID: domain.MachineID(fmt.Sprint("m", i)), Room: rapid.IntRange(0, 6).Draw(t, "room"),
				Leaving: rapid.IntRange(0, 4).Draw(t, "leaving") == 0, Holds: map[placement.Key]placement.How{}}
			for _, x := range models {
				if rapid.Bool().Draw(t, "holds") && len(m.Holds) < m.Room {
					m.Holds[x.Key] = placement.How(rapid.IntRange(0, 2).Draw(t, "how"))
				}
			}
			machines = append(machines, m)
		}
		plan := placement.Plan(models, machines)
		for i, m := range machines {
			if len(plan[i]) > m.Room {
				t.Fatalf("%s holds %d, its room is %d", m.ID, len(plan[i]), m.Room)
			}
			next := map[placement.Key]placement.How{}
			for _, k := range plan[i] {
				how, held := m.Holds[k]
				if held && how == placement.Failed || m.Leaving && !held {
					t.Fatalf("%s is given %s", m.ID, k.Run)
				}
				next[k] = placement.Ready
			}
			for k, how := range m.Holds { // a failure is remembered
				if how == placement.Failed {
					next[k] = how
				}
			}
			machines[i].Holds = next
		}
		for _, x := range models {
			n := 0
			for i := range machines {
				for _, k := range plan[i] {
					if k == x.Key && !machines[i].Leaving {
						n++
					}
				}
			}
			if n > x.Copies {
				t.Fatalf("%s has %d copies, wants %d", x.Key.Run, n, x.Copies)
			}
		}
		settled := placement.Plan(models, machines)
		for i := range machines {
			if !machines[i].Leaving && fmt.Sprint(settled[i]) != fmt.Sprint(plan[i]) {
				t.Fatalf("%s: %v becomes %v", machines[i].ID, plan[i], settled[i])
			}
		}
	})
}
