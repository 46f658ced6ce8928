// Package replay reads a whole log again and checks a run against it: the hash chain record by record, the ledger by
// folding, every merge by computing it once more from the stored deltas, and an ensemble's vote from the stored outputs. It trusts nothing but the bytes it is
// given; the hub has no part in it. It never reads a network or a disk itself: records are fed, blobs come by a callback.
// The command line calls it, on the machine of whoever wants to know.
package replay

import (
	"context"
	"fmt"

	"tensorturn/domain"
	"tensorturn/domain/ballot"
	"tensorturn/domain/blob"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
	"tensorturn/projections/timeline"
)

// checks are the rules of a replay. Only tests switch one off, to see what it holds back.
type checks struct {
	chain bool // each record follows the one before it
	links bool // facts follow from the facts before them
	bits  bool // a merge or a vote gives what the log says
}

var allChecks = checks{chain: true, links: true, bits: true}

// Log checks a log record by record and folds one run out of it.
type Log struct {
	registry *event.Registry
	verifier *event.Verifier
	checks   checks
	id       domain.RunID
	state    *run.State
	rounds   []round
	vote     *ballotBox // nil before the vote
	story    []timeline.Line
	broken   error                     // the first failure; it stays
	machines bool                      // the story tells of them
	worked   map[domain.MachineID]bool // had a lease of the run
	marks    []uint64
	points   map[uint64]Point
}

// round is a merge as the log tells it.
type round struct {
	fact run.RoundMerged
	seq  uint64
}

// New begins a replay of run id; an empty id only checks the chain.
func New(r *event.Registry, id domain.RunID) *Log {
	return &Log{registry: r, verifier: event.NewVerifier(r), checks: allChecks, id: id}
}

// Add takes the record at seq. An error names the first bad sequence (domain.KindIntegrity) and stays.
func (l *Log) Add(seq uint64, data []byte) error {
	if l.broken == nil {
		if l.broken = l.add(seq, data); l.broken == nil {
			l.pass(seq)
		}
	}
	return l.broken
}

func (l *Log) add(seq uint64, data []byte) (err error) {
	e, err := l.decode(seq, data)
	if err == nil && e.Kind == event.KindMachine && l.machines && l.worked[domain.MachineID(e.Agg)] && l.state != nil && !l.state.Phase.Ended() {
		l.story = append(l.story, timeline.LineOf(e))
		return nil
	}
	if err != nil || e.Kind != event.KindRun || domain.RunID(e.Agg) != l.id {
		return err
	}
	if l.checks.links {
		if why := l.contradiction(e); why != "" {
			return event.Break(seq, why, nil)
		}
	}
	// Evolve takes only what Decide gave. A forged fact may be one that it cannot apply.
	defer func() {
		if p := recover(); p != nil {
			err = event.Break(seq, "the fact cannot follow those before it", fmt.Errorf("%v", p))
		}
	}()
	if d, ok := e.Data.(*run.Voted); ok && l.state != nil && l.state.Ensemble != nil {
		l.vote = &ballotBox{fact: *d, ballot: ballot.Of(l.state), seq: seq}
	}
	l.state = run.Evolve(l.state, e)
	if d, ok := e.Data.(*run.LeaseGranted); ok {
		if l.worked == nil {
			l.worked = map[domain.MachineID]bool{}
		}
		l.worked[d.Slot.Machine()] = true
	}
	if d, ok := e.Data.(*run.RoundMerged); ok {
		l.rounds = append(l.rounds, round{fact: *d, seq: seq})
	}
	l.story = append(l.story, timeline.LineOf(e))
	return nil
}

func (l *Log) decode(seq uint64, data []byte) (event.Envelope, error) {
	if !l.checks.chain {
		return event.Decode(l.registry, seq, data)
	}
	return l.verifier.Next(seq, data)
}

// TellMachines puts into the story what becomes of the machines that had work of the run, while it goes on. It must be called
// before the first record. Whoever may see one run alone must not be told.
func (l *Log) TellMachines() { l.machines = true }

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
	Vote       *Vote         `json:"vote,omitempty"` // of an ensemble
	Verdict    string        `json:"replay"`         // "bit-exact", or "partial" when some rounds are proven by digests alone
}

// Verify audits the ledger, recomputes every merge and the vote of the run, and reads data set, model and momentum through. get reads
// stored objects; keep holds the newest recomputed weights, so that a base that the keep policy dropped is made again
// from its predecessor. told is called after each round.
func (l *Log) Verify(ctx context.Context, get blob.Get, keep Scratch, told func(done, all int)) (Report, error) {
	if l.broken != nil {
		return Report{}, l.broken
	}
	if l.state == nil {
		return Report{}, domain.NotFound("replay run "+string(l.id), "the log knows no such run", "list them with: tensorturn run list")
	}
	if err := run.Audit(l.state); err != nil {
		return Report{}, err
	}
	ledger := l.state.Ledger()
	r := Report{Run: l.id, Phase: l.state.Phase, Expected: ledger.Expected, Counted: ledger.Counted,
		Rounds: len(l.rounds), HashOnly: []int{}, Model: l.state.Base, Verdict: "bit-exact"}
	r.Records, r.Head = l.Head()
	if err := readThrough(ctx, "data set", l.state.Data.Blob, get); err != nil {
		return r, err
	}
	w := &weights{get: get, keep: keep}
	for i, m := range l.rounds {
		ok, err := l.recompute(ctx, w, m.fact)
		if err != nil {
			return r, fmt.Errorf("round %d of run %s (record %d): %w", m.fact.Round, l.id, m.seq, err)
		}
		if ok {
			r.Recomputed++
		} else {
			r.HashOnly = append(r.HashOnly, m.fact.Round)
			r.Verdict = "partial"
		}
		if told != nil {
			told(i+1, len(l.rounds))
		}
	}
	if err := readThrough(ctx, "model", l.state.Base, get); err != nil {
		return r, err
	}
	if err := readThrough(ctx, "momentum", l.state.Momentum, get); err != nil {
		return r, err
	}
	if err := readThrough(ctx, "residual", l.state.Residual, get); err != nil {
		return r, err
	}
	var err error
	if r.Vote, err = l.verifyVote(ctx, get); err != nil && l.vote != nil {
		err = fmt.Errorf("vote of run %s (record %d): %w", l.id, l.vote.seq, err)
	}
	return r, err
}
