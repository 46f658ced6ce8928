package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/domain/machine"
	"tensorturn/projections/fleet"
)

// benchLook is the pause between looks for a benchmark's result.
const benchLook = time.Second

func machineBench(a *app) *cobra.Command {
	var anew bool
	var wait time.Duration
	var reason string
	c := &cobra.Command{Use: "bench MACHINE", Short: "have a machine measured once more, when no slot of it has work", Args: args("MACHINE"),
		Long: "Measures a float32 matrix product, memory, the disk, and the link to the hub in about 20 s, in the background: work comes first, and stops it\n" +
			"until the machine is idle again. A machine is also measured when it joins and when its driver or its GPUs change. A figure 30 % below the\n" +
			"median of earlier ones is told by machine show and by an event; --anew forgets the earlier ones, as after a change of hardware.",
		RunE: func(c *cobra.Command, got []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			var m fleet.Machine
			path := "/api/v1/machines/" + url.PathEscape(got[0])
			if err := cl.call(c.Context(), http.MethodPost, path+"/bench", gateway.BenchRequest{Reason: reason, Anew: anew}, &m); err != nil {
				return err
			}
			if m, err = a.awaitBench(c.Context(), cl, m, wait, benchLook); err != nil {
				return err
			}
			if a.json {
				return a.object(m)
			}
			if awaited(m) {
				a.say("%s (%s) is measured %s; see: tensorturn machine show %s", m.Name, m.ID, benchWaits(m), m.ID)
				return nil
			}
			a.table([]string{"FIELD", "VALUE"}, benchOf(m))
			return nil
		}}
	c.Flags().BoolVar(&anew, "anew", false, "what the machine did before does not count any more")
	c.Flags().DurationVar(&wait, "wait", time.Minute, "how long to wait for the figures, 0 for not at all")
	c.Flags().StringVar(&reason, "reason", "", "why, for the log")
	return c
}

// awaited reports whether figures are still to come: a machine that was never online wants no benchmark yet, and has none.
func awaited(m fleet.Machine) bool { return m.BenchWanted > 0 || m.Bench == nil }

// benchWaits says when a wanted benchmark is taken: by the machine's own word where it has tried.
func benchWaits(m fleet.Machine) string {
	if m.Unmeasured != "" {
		return "later, tried again every minute: " + m.Unmeasured
	}
	return "when it is online, unpaused, and no slot has work"
}

// awaitBench looks at the machine until it wants to be measured no more, and says what the machine waits for.
func (a *app) awaitBench(ctx context.Context, cl *client, m fleet.Machine, limit, look time.Duration) (fleet.Machine, error) {
	path := "/api/v1/machines/" + url.PathEscape(string(m.ID))
	said := ""
	for end := time.Now().Add(limit); awaited(m) && time.Now().Before(end); {
		if err := pause(ctx, min(look, max(time.Until(end), time.Millisecond))); err != nil {
			return m, err
		}
		var next fleet.Machine
		if err := cl.call(ctx, http.MethodGet, path, nil, &next); err != nil {
			return m, err
		}
		if m = next; m.Unmeasured != said {
			if said = m.Unmeasured; said != "" {
				a.say("%s (%s) waits: %s", m.Name, m.ID, said)
			}
		}
	}
	return m, nil
}

// benchOf are the rows of what a machine measured of its speed.
func benchOf(m fleet.Machine) [][]string {
	var rows [][]string
	if m.BenchWanted > 0 {
		rows = append(rows, []string{"measured", "not yet: " + benchWaits(m)})
	}
	if b := m.Bench; b != nil {
		rows = append(rows, []string{"measured", fmt.Sprintf("%s ago, %s", short(time.Since(b.At)), b.Reason)})
		for _, d := range b.Devices {
			rows = append(rows, []string{"speed", fmt.Sprintf("%s: matrix product %s, memory %s", d.Name, figure(d.Flops, "FLOP/s"), figure(d.Memory, "B/s"))})
		}
		rows = append(rows, []string{"disk speed", figure(b.Disk, "B/s") + " written"},
			[]string{"link", fmt.Sprintf("%s up, %s down, %.1f ms", figure(b.Up, "B/s"), figure(b.Down, "B/s"), 1e3*b.Latency)})
		for _, why := range b.Left {
			rows = append(rows, []string{"not measured", why})
		}
	}
	for _, s := range m.Slow {
		rows = append(rows, []string{"slow", s.Said()})
	}
	return rows
}

// figure writes a measured value with a power of 1,000, - for none.
func figure(v float64, unit string) string {
	if v <= 0 {
		return "-"
	}
	return machine.Amount(v, unit)
}
