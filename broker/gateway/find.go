package gateway

import (
	"fmt"
	"strings"

	"tensorturn/domain"
	"tensorturn/projections/fleet"
	"tensorturn/projections/runs"
)

// maxCandidates bounds how many ids a refusal names.
const maxCandidates = 8

// single gives the only id of the list. None and several are refused in the words of what was asked for; verb is what
// the caller wanted to do and what the thing: "drain", "machine".
func single[ID ~string](verb, what, key string, ids []ID) (ID, error) {
	op := verb + " " + what + " " + domain.Clip(key, domain.MaxNameLength)
	switch len(ids) {
	case 0:
		return "", noSuch(op, what)
	case 1:
		return ids[0], nil
	}
	var names []string
	for _, id := range ids[:min(len(ids), maxCandidates)] {
		names = append(names, string(id))
	}
	if more := len(ids) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return "", domain.Conflict(op, fmt.Sprintf("%d %ss may be meant: %s", len(ids), what, strings.Join(names, ", ")), "give one of these ids")
}

// findRun finds a run by id, by the only run of a name, or by the only id that begins so.
func (g *Gateway) findRun(verb, key string) (r runs.Run, err error) {
	g.cfg.Views.Engine.Read(func(uint64) {
		id, e := single(verb, "run", key, g.cfg.Views.Runs.Find(key))
		r, _ = g.cfg.Views.Runs.Get(id)
		err = e
	})
	return r, err
}

// verbShow is what a caller wants who changes nothing.
const verbShow = "show"

// findMachine finds a machine as findRun finds a run.
func (g *Gateway) findMachine(verb, key string) (m fleet.Machine, err error) {
	g.cfg.Views.Engine.Read(func(uint64) {
		ids := g.cfg.Views.Fleet.Candidates(key)
		if gone := g.cfg.Views.Fleet.Revoked(key); verb != verbShow && len(ids) == 0 && len(gone) == 1 {
			ids = gone // a command that is repeated after its machine was revoked is answered by what it was decided on
		}
		id, e := single(verb, "machine", key, ids)
		m, _ = g.cfg.Views.Fleet.Find(string(id))
		err = e
	})
	return m, err
}

func noSuch(op, what string) *domain.Error {
	return domain.NotFound(op, "there is no such "+what, "list them with: tensorturn "+what+" list")
}

// noRun is the answer for a run that is not there, and for one that the caller may not know.
func noRun(verb, key string) *domain.Error {
	return noSuch(verb+" run "+domain.Clip(key, domain.MaxNameLength), "run")
}
