package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/projections/fleet"
)

// topEvery is the default pause between looks, and the shortest: machines measure themselves no more often.
const (
	topEvery    = 3 * time.Second
	topShortest = 500 * time.Millisecond
)

// clearScreen begins a new picture on a terminal.
const clearScreen = "\x1b[H\x1b[2J"

func machineTop(a *app) *cobra.Command {
	var every time.Duration
	var once bool
	c := &cobra.Command{Use: "top", Short: "watch what the machines and GPUs of the pool do", Args: args(),
		Long: "Prints a table of all machines and their GPUs, anew every few seconds on a terminal, until Ctrl-C.\n" +
			"With --json: one object a line for each look. A value that a machine cannot measure is shown as -.",
		RunE: func(c *cobra.Command, _ []string) error {
			if every < topShortest {
				return domain.Invalid("watch machines", "an interval of "+every.String()+" is too short", "give --every "+topShortest.String()+" or more")
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			for {
				ms, err := cl.machines(c.Context())
				if err != nil {
					return err
				}
				if a.json {
					err = a.line(map[string]any{"time": time.Now().UTC(), "machines": ms})
				} else {
					if a.live && !once {
						_, _ = io.WriteString(a.out, clearScreen)
					}
					a.table([]string{"MACHINE", "STATE", "DEVICE", "USE", "MEMORY", "TEMP", "POWER", "CLOCK", "HOLDS"}, topRows(ms))
				}
				if err != nil || once {
					return err
				}
				if err := pause(c.Context(), every); err != nil {
					return err
				}
			}
		}}
	c.Flags().DurationVar(&every, "every", topEvery, "pause between looks")
	c.Flags().BoolVar(&once, "once", false, "look once and end")
	return c
}

// topRows has a row for each machine's CPU and one for each GPU; what a slot holds stands beside what it computes on.
func topRows(ms []fleet.Machine) (rows [][]string) {
	for _, m := range ms {
		if m.Standing == machine.Revoked {
			continue
		}
		name := called(m.Name, m.ID, hasTwin(m, ms))
		v := m.Vitals
		if v == nil {
			rows = append(rows, []string{name, standing(m), "-", "-", "-", "-", "-", "-", holds(m)})
			continue
		}
		rows = append(rows, []string{name, standing(m), "cpu", share(v.Load), space(v.Memory), "-", "-", "-", holdsOn(m, "")})
		for i := range v.GPUs {
			g := &v.GPUs[i]
			held := holdsOn(m, g.UUID)
			if g.Gone != "" {
				held = strings.TrimPrefix(held+"; gone: "+g.Gone, "; ")
			} else if g.XID != 0 {
				held = strings.TrimPrefix(fmt.Sprintf("%s; xid %d", held, g.XID), "; ")
			}
			rows = append(rows, []string{"", "", fmt.Sprintf("gpu %d %s", g.Index, g.Name), share(g.Busy), space(g.Memory), unit(g.Celsius, "C"), unit(g.Watts, "W"), unit(g.ClockMHz, "MHz"), held})
		}
	}
	return rows
}

// holdsOn says what the slots hold that compute on the GPU, or on the CPU for "".
func holdsOn(m fleet.Machine, uuid string) string {
	var out []fleet.Slot
	for i, s := range m.Slots {
		on := ""
		if i < len(m.Vitals.SlotGPUs) {
			on = m.Vitals.SlotGPUs[i]
		}
		if on == uuid {
			out = append(out, s)
		}
	}
	return holds(fleet.Machine{Slots: out})
}

func share(x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", *x*100)
}

func unit(x *float64, name string) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f %s", *x, name)
}

// space is what is used of what there is, in powers of 1,024 as memory is sold.
func space(s machine.Space) string {
	if s.Total == 0 {
		return "-"
	}
	const gib = 1 << 30
	return fmt.Sprintf("%.1f/%.1f GiB", float64(s.Total-min(s.Free, s.Total))/gib, float64(s.Total)/gib)
}

// vitalsOf are the rows of a machine's page.
func vitalsOf(m fleet.Machine) [][]string {
	v := m.Vitals
	if v == nil {
		return nil
	}
	rows := [][]string{{"cpu", fmt.Sprintf("%s, %s in use", v.CPU, share(v.Load))}, {"memory", space(v.Memory)}, {"disk", space(v.Disk)},
		{"network", fmt.Sprintf("%s sent, %s received", domain.FormatSize(v.Sent), domain.FormatSize(v.Received))}}
	if v.Driver != "" {
		rows = append(rows, []string{"driver", strings.TrimSuffix(v.Driver+", CUDA "+v.CUDA, ", CUDA ")})
	}
	if v.Trouble != "" {
		rows = append(rows, []string{"gpus", v.Trouble})
	}
	for i := range v.GPUs {
		g := &v.GPUs[i]
		text := fmt.Sprintf("%s, %s in use, memory %s, %s, %s", g.Name, share(g.Busy), space(g.Memory), unit(g.Celsius, "C"), unit(g.Watts, "W"))
		if g.Gone != "" {
			text = g.Name + ", gone: " + g.Gone
		}
		if g.Errors > 0 {
			text += fmt.Sprintf(", xid %d (%d in all)", g.XID, g.Errors)
		}
		rows = append(rows, []string{fmt.Sprintf("gpu %d", g.Index), text}, []string{"", g.UUID})
	}
	return rows
}
