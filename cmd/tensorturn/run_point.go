package main

import (
	"fmt"

	"tensorturn/domain"
	"tensorturn/projections/replay"
)

// showPoint prints the run at one place of the log, or with another place what changed from the one to the other.
func (a *app) showPoint(l *replay.Log, at, diff uint64) error {
	p, err := l.Point(at)
	if err != nil {
		return err
	}
	if diff > 0 {
		return a.showDifference(l, p, diff)
	}
	if a.json {
		return a.object(p)
	}
	for _, r := range p.Rows() {
		line := fmt.Sprintf("%-24s %s", r.Name, clean(r.Value))
		if r.Note != "" {
			line = fmt.Sprintf("%-44s %s", line, "("+r.Note+")")
		}
		a.print("%s", line)
	}
	return nil
}

func (a *app) showDifference(l *replay.Log, from replay.Point, diff uint64) error {
	to, err := l.Point(diff)
	if err != nil {
		return err
	}
	changes := replay.Difference(from, to)
	if a.json {
		return a.object(map[string]any{"from": from, "to": to, "changes": changes})
	}
	for _, c := range changes {
		a.print("%-24s %s -> %s", c.Name, clean(c.From), clean(c.To))
	}
	if len(changes) == 0 {
		a.say("nothing changed between %d and %d", from.Seq, diff)
	}
	return nil
}

// marksOf lists the places that will be asked for. --diff alone makes no sense.
func marksOf(at, diff uint64) ([]uint64, error) {
	if diff > 0 && at == 0 {
		return nil, domain.Invalid("replay run", "--diff has nothing to differ from", "give both: --at SEQ --diff SEQ")
	}
	var marks []uint64
	for _, seq := range []uint64{at, diff} {
		if seq > 0 {
			marks = append(marks, seq)
		}
	}
	return marks, nil
}
