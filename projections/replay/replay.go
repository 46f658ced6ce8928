// Package replay reads a whole log again and checks a run against it: the hash chain record by record, the ledger by
// folding, and every merge by computing it once more from the stored deltas. It trusts nothing but the bytes it is
// given; the hub has no part in it. It never reads a network or a disk itself: records are fed, blobs come by a callback.
package replay

import (
	"context"
	"fmt"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
	"tensorturn/projections/timeline"
)

// Log checks a log record by record and folds one run out of it.
type Log struct {
	verifier *event.Verifier
	id       domain.RunID
	state    *run.State
	rounds   []round
	story    []timeline.Line
}

// round is a merge as the log tells it.
type round struct {
	fact     run.RoundMerged
	accepted []run.MergeInput // what the log's contributions say the merge must have read
	seq      uint64
}

// New begins a replay of run id; an empty id only checks the chain.
func New(r *event.Registry, id domain.RunID) *Log {
	return &Log{verifier: event.NewVerifier(r), id: id}
}

// Add takes the record at seq. An error names the first bad sequence (domain.KindIntegrity).
func (l *Log) Add(seq uint64, data []byte) error {
	e, err := l.verifier.Next(seq, data)
	if err != nil {
		return err
	}
	if e.Kind != event.KindRun || domain.RunID(e.Agg) != l.id {
		return nil
	}
	if d, ok := e.Data.(*run.RoundMerged); ok && l.state != nil {
		inputs, _ := l.state.NeedsMerge()
		l.rounds = append(l.rounds, round{fact: *d, accepted: inputs, seq: seq})
	}
	l.state = run.Evolve(l.state, e)
	l.story = append(l.story, timeline.LineOf(e))
	return nil
}

// Head is the last good record and its digest.
func (l *Log) Head() (uint64, domain.Digest) { return l.verifier.Head() }

// Story is the run in lines, oldest first.
func (l *Log) Story() []timeline.Line { return l.story }

// State is the run as the log leaves it, nil when the log does not know it.
func (l *Log) State() *run.State { return l.state }

// Report is what a verification found.
type Report struct {
	Run        domain.RunID  `json:"run"`
	Phase      run.Phase     `json:"phase"`
	Records    uint64        `json:"records"` // of the whole log, all links good
	Head       domain.Digest `json:"head"`
	Expected   int64         `json:"samples_expected"`
	Counted    int64         `json:"samples_counted"`
	Rounds     int           `json:"rounds"`
	Recomputed int           `json:"rounds_recomputed"` // bit for bit
	HashOnly   []int         `json:"rounds_hash_only"`  // a blob is gone by the keep policy: proven by digests alone
	Model      domain.Digest `json:"model"`
	Verdict    string        `json:"replay"` // "bit-exact", or "partial" when some rounds are proven by digests alone
}

// Verify audits the ledger and recomputes every merge of the run. get reads stored objects; keep holds the newest
// recomputed weights, so that a base that the keep policy dropped is made again from its predecessor. told is called
// after each round.
func (l *Log) Verify(ctx context.Context, get blob.Get, keep Scratch, told func(done, all int)) (Report, error) {
	if l.state == nil {
		return Report{}, domain.NotFound("replay run "+string(l.id), "the log knows no such run", "list them with: tensorturn run list")
	}
	if err := run.Audit(l.state); err != nil {
		return Report{}, err
	}
	r := Report{Run: l.id, Phase: l.state.Phase, Rounds: len(l.rounds), HashOnly: []int{}, Model: l.state.Base, Verdict: "bit-exact"}
	r.Records, r.Head = l.Head()
	ledger := l.state.Ledger()
	r.Expected, r.Counted = ledger.Expected, ledger.Counted
	if err := readThrough(ctx, "data set", l.state.Data.Blob, get); err != nil {
		return r, err
	}
	w := &weights{get: get, keep: keep}
	for i := range l.rounds {
		ok, err := l.recompute(ctx, w, i)
		if err != nil {
			return r, fmt.Errorf("round %d of run %s (record %d): %w", l.rounds[i].fact.Round, l.id, l.rounds[i].seq, err)
		}
		if ok {
			r.Recomputed++
		} else {
			r.HashOnly = append(r.HashOnly, l.rounds[i].fact.Round)
			r.Verdict = "partial"
		}
		if told != nil {
			told(i+1, len(l.rounds))
		}
	}
	if l.state.Base == "" {
		return r, nil
	}
	return r, readThrough(ctx, "model", l.state.Base, get)
}
