package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/projections/goodput"
)

func runGoodput(a *app) *cobra.Command {
	return &cobra.Command{Use: "goodput RUN", Short: "say where the time of a run's machines went, what was lost most, and what would change it", Args: args("RUN"),
		Long: "Reads the log from the hub, checks the hash chain here, and books every second in which a slot could have worked for the run, while it\n" +
			"goes on and after it. The run must be a fused one: the log does not say how long a member of an ensemble trained a chunk.\n\n" +
			"goodput: seconds that trained what the ledger counts, of the connected ones. efficiency: samples counted, of those that the slot could have\n" +
			"trained in its connected seconds at the speed it had while it trained. connected: from the run's submission, or the machine's coming\n" +
			"online, to the run's end, or the machine's being lost, drained or revoked; not while the slot is paused or works for another run.",
		RunE: func(c *cobra.Command, got []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			id, err := cl.runID(c.Context(), got[0])
			if err != nil {
				return err
			}
			r, err := readGoodput(c.Context(), cl, id)
			if err != nil {
				return err
			}
			if a.json {
				return a.object(r)
			}
			a.goodput(r)
			return nil
		}}
}

// readGoodput folds the hub's log, every link of which is checked.
func readGoodput(ctx context.Context, cl *client, id domain.RunID) (goodput.Report, error) {
	l, chain := goodput.New(id), event.NewVerifier(registry())
	err := eachRecord(ctx, cl, func(seq uint64, data []byte) error {
		e, err := chain.Next(seq, data)
		if err == nil {
			l.Apply(e)
		}
		return err
	})
	if err != nil {
		return goodput.Report{}, err
	}
	return l.Report()
}

// leastShown is the share of the time below which a kind has no line: it would read 0.0 %.
const leastShown = 0.0005

// goodput prints a report: each slot, what became of the time of all, and the greatest loss in a sentence.
func (a *app) goodput(r goodput.Report) {
	if len(r.Slots) == 0 {
		a.print("no slot has had work of run %s", r.Run)
		a.say("hint: see what it waits for with: tensorturn run show %s", r.Run)
		return
	}
	rows := [][]string{}
	for _, s := range r.Slots {
		rows = append(rows, goodputRow(cmp.Or(s.Name, string(s.Slot.Machine())), itoa(s.Slot.Index()), s))
	}
	for _, u := range r.Unused {
		rows = append(rows, []string{cmp.Or(u.Name, string(u.Slot.Machine())), itoa(u.Slot.Index()), "-", "-", lasted(u.Connected), "0", "-", "it had no work of this run: see run explain"})
	}
	a.table([]string{"MACHINE", "SLOT", "GOODPUT", "EFFICIENCY", "CONNECTED", "COUNTED", "SPEED", "MOST LOST BY"}, append(rows, goodputRow("all", "", r.Total)))
	a.print("")
	a.table([]string{"SHARE", "TIME", "WHAT BECAME OF IT"}, kindRows(r.Total))
	a.print("")
	a.print("%s", lossSentence(r))
	if !r.Ended {
		a.say("the run goes on; this is up to the newest record, of %s", r.Until.Format(time.RFC3339))
	}
}

func goodputRow(name, slot string, s goodput.Row) []string {
	efficiency, speed, lost := "-", "-", "-"
	if s.Speed > 0 {
		efficiency, speed = portion(s.Efficiency), significant(s.Speed)+"/s"
	}
	if k, share := s.Loss(); share >= leastShown {
		lost = k.Words() + " " + portion(share)
	}
	return []string{name, slot, portion(s.Goodput), efficiency, lasted(s.Connected), itoa(s.Samples), speed, lost}
}

// kindRows are the kinds that took time, the greatest first.
func kindRows(all goodput.Row) [][]string {
	kinds := goodput.Kinds()
	slices.SortStableFunc(kinds, func(x, y goodput.Kind) int { return cmp.Compare(all.Seconds[y], all.Seconds[x]) })
	rows := [][]string{}
	for _, k := range kinds {
		if s := all.Seconds[k]; s > 0 && s >= leastShown*all.Connected {
			rows = append(rows, []string{portion(s / all.Connected), lasted(s), k.Words()})
		}
	}
	return rows
}

// lossSentence names what most was lost by, and what would make less of it.
func lossSentence(r goodput.Report) string {
	_, share := r.Total.Loss()
	if share < leastShown {
		return "nothing to speak of was lost"
	}
	s := fmt.Sprintf("most was lost by %q, %s of the connected time", r.Loss.Words(), portion(share))
	if r.Change != "" {
		s += "; what would change it: " + r.Change
	}
	return s
}

// portion renders a fraction.
func portion(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

// lasted renders seconds.
func lasted(s float64) string { return short(time.Duration(s * float64(time.Second))) }
