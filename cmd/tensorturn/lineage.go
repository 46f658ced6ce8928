package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/projections/fleet"
	"tensorturn/projections/replay"
)

// lineageRows are the contributions that a table of lineage shows where nothing else is asked for: what fits on a screen.
const lineageRows = 20

func modelLineage(a *app) *cobra.Command {
	var round int
	var all bool
	var without, out string
	c := &cobra.Command{Use: "lineage RUN", Short: "which deltas of which machines made the model; --without recomputes a round without one of them", Args: args("RUN"),
		Long: "Reads the log, checks its chain here, and names every contribution to every merge with its weight; of an ensemble, who trained\n" +
			"what of each member, and what it weighs in the vote.\n" +
			"With --without MACHINE the merge of a round is computed again on this machine as if that machine had not contributed.",
		RunE: func(c *cobra.Command, got []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			r, err := cl.run(c.Context(), got[0])
			if err != nil {
				return err
			}
			l := replay.New(registry(), r.ID)
			if err := readRecords(c.Context(), cl, l); err != nil {
				return err
			}
			if r.Spec.IsEnsemble() {
				if without != "" || round != 0 {
					return domain.Invalid("lineage of "+string(r.ID), "an ensemble has no rounds: its members are never merged", "leave --round and --without out")
				}
				return a.origins(l)
			}
			if without != "" {
				return a.without(c.Context(), cl, l, round, without, out)
			}
			return a.lineage(l.Lineage(), round, all)
		}}
	f := c.Flags()
	f.IntVar(&round, "round", 0, "only this round; with --without the last when 0")
	f.BoolVar(&all, "all", false, fmt.Sprintf("every contribution in the table, not only the newest %d; --json always has all", lineageRows))
	f.StringVar(&without, "without", "", "leave out what this machine contributed (id or name)")
	f.StringVar(&out, "out", "", "with --without: write the weights to this file")
	return c
}

// origins tells who trained what of each member.
func (a *app) origins(l *replay.Log) error {
	list := l.Members()
	if a.json {
		return a.object(list)
	}
	rows := [][]string{}
	for _, m := range list {
		name, weight := itoa(m.Member), "-"
		if m.Single {
			name = "single"
		}
		if m.Weight != nil {
			weight = fmt.Sprintf("%.4f", *m.Weight) // no share: stacked weights need not sum to 1
		}
		for _, p := range m.Parts {
			rows = append(rows, []string{name, string(m.Status), m.Weights.Short(), weight, string(p.Slot), chunkRange(p.From, p.To), itoa(p.Samples), strconv.FormatUint(m.Seed, 10)})
		}
	}
	a.table([]string{"MEMBER", "STATUS", "WEIGHTS", "VOTE WEIGHT", "SLOT", "CHUNKS", "SAMPLES", "SEED"}, rows)
	return nil
}

// chunkRange names the chunks from up to before to.
func chunkRange(from, to int) string {
	switch {
	case to <= from:
		return "-"
	case to == from+1:
		return itoa(from)
	}
	return itoa(from) + "–" + itoa(to-1)
}

// lineage tells who contributed to each merge. The table of a whole run ends with its newest contributions, unless all are wanted.
func (a *app) lineage(merges []replay.Ancestor, round int, all bool) error {
	list := []replay.Ancestor{}
	for _, m := range merges {
		if round == 0 || m.Round == round {
			list = append(list, m)
		}
	}
	if a.json {
		return a.object(list)
	}
	rows := [][]string{}
	for _, m := range list {
		for _, s := range m.Shares {
			rows = append(rows, []string{itoa(m.Round), m.Model.Short(), string(s.Slot), itoa(s.Number), itoa(s.Samples), percent(int64(s.Weight*1e6), 1e6), s.Delta.Short()})
		}
	}
	rows, older := newest(rows, all || round != 0)
	a.table([]string{"ROUND", "MODEL", "SLOT", "NUMBER", "SAMPLES", "WEIGHT", "DELTA"}, rows)
	if older > 0 {
		a.say("%s before these: --all shows all, --round N those of one round", count(older, "contribution"))
	}
	return nil
}

// newest keeps the last rows of a table, all where all are wanted, and counts the others.
func newest(rows [][]string, all bool) (kept [][]string, older int) {
	if all || len(rows) <= lineageRows {
		return rows, 0
	}
	older = len(rows) - lineageRows
	return rows[older:], older
}

// without recomputes a round and tells, and if asked writes, what it would have given.
func (a *app) without(ctx context.Context, cl *client, l *replay.Log, round int, machine, out string) error {
	id, err := contributor(ctx, cl, l, machine)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tensorturn-lineage-")
	if err != nil {
		return domain.Unavailable("lineage", "no temporary folder can be made", "set TMPDIR to a folder with space", err)
	}
	defer os.RemoveAll(dir)
	keep := &scratch{dir: dir}
	w, err := l.Without(ctx, round, id, cl.getPart, keep)
	if err != nil {
		return err
	}
	if out != "" {
		if err := writeWeights(ctx, out, w.Model, cl, keep); err != nil {
			return err
		}
	}
	if a.json {
		return a.object(w)
	}
	a.print("round %d without %s: weights %s instead of %s; %s left out, %s left", w.Round, w.Machine, w.Model, w.Actual, count(w.Dropped, "sample"), count(w.Left, "contribution"))
	return nil
}

// contributor finds the machine that is meant, as every command does; one that only the log knows goes by its id.
func contributor(ctx context.Context, cl *client, l *replay.Log, machine string) (domain.MachineID, error) {
	var m fleet.Machine
	err := cl.call(ctx, http.MethodGet, "/api/v1/machines/"+url.PathEscape(machine), nil, &m)
	if err == nil {
		return m.ID, nil
	}
	for _, merge := range l.Lineage() {
		for _, share := range merge.Shares {
			if string(share.Slot.Machine()) == machine {
				return share.Slot.Machine(), nil
			}
		}
	}
	return "", err
}

// writeWeights writes a blob from scratch, or from the hub when nothing had to be computed.
func writeWeights(ctx context.Context, path string, d domain.Digest, cl *client, keep *scratch) error {
	r, err := blob.Open(ctx, d, func(ctx context.Context, d domain.Digest) ([]byte, error) {
		if b, err := keep.Get(ctx, d); err == nil {
			return b, nil
		}
		return cl.getPart(ctx, d)
	})
	if err != nil {
		return err
	}
	f, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o644))
	if err != nil {
		return domain.Invalid("write weights", plainPathError(err), "choose another file with --out")
	}
	defer f.Cleanup()
	if _, err := io.Copy(f, r); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}
