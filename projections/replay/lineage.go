package replay

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/run"
)

// Share is a contribution's part in a merge.
type Share struct {
	Slot    domain.SlotID    `json:"slot"`
	Machine domain.MachineID `json:"machine"`
	Number  int              `json:"number"`
	Delta   domain.Digest    `json:"delta"`
	Samples int64            `json:"samples"`
	Weight  float64          `json:"weight"` // fraction of the round's samples
}

// Ancestor is one merge that a model comes from.
type Ancestor struct {
	Round  int           `json:"round"`
	Seq    uint64        `json:"seq"` // of the fact
	Base   domain.Digest `json:"base"`
	Model  domain.Digest `json:"model"` // what the merge gave
	Shares []Share       `json:"shares"`
}

// Lineage tells which deltas of which machines made the model, merge by merge, the oldest first.
func (l *Log) Lineage() []Ancestor {
	out := make([]Ancestor, 0, len(l.rounds))
	for _, r := range l.rounds {
		a := Ancestor{Round: r.fact.Round, Seq: r.seq, Base: r.fact.Base, Model: r.fact.NextBase, Shares: []Share{}}
		total := int64(0)
		for _, in := range r.fact.Inputs {
			total += in.Samples
		}
		for _, in := range r.fact.Inputs {
			a.Shares = append(a.Shares, Share{Slot: in.Slot, Machine: in.Slot.Machine(), Number: in.Number, Delta: in.Blob, Samples: in.Samples,
				Weight: float64(in.Samples) / float64(total)})
		}
		out = append(out, a)
	}
	return out
}

// Work is what a machine has in a run.
type Work struct {
	Machine domain.MachineID `json:"machine"`
	Samples int64            `json:"samples"` // counted by the ledger
}

// Work tells how much of the run each machine did, by machine: what is merged, or of an ensemble what is in the lineages of
// its members.
func (l *Log) Work() []Work {
	sums := map[domain.MachineID]int64{}
	for _, a := range l.Lineage() {
		for _, s := range a.Shares {
			sums[s.Machine] += s.Samples
		}
	}
	for _, o := range l.Members() {
		for _, p := range o.Parts {
			sums[p.Machine] += p.Samples
		}
	}
	out := []Work{}
	for _, m := range slices.Sorted(maps.Keys(sums)) {
		out = append(out, Work{m, sums[m]})
	}
	return out
}

// Without is what a round would have given had one machine not contributed to it.
type Without struct {
	Round   int              `json:"round"`
	Machine domain.MachineID `json:"machine"`
	Left    int              `json:"contributions_left"`
	Dropped int64            `json:"samples_dropped"`
	Model   domain.Digest    `json:"model"` // the weights it would have given; with none left, its base
	Actual  domain.Digest    `json:"actual"`
}

// Without computes the merge of a round again without one machine's contributions; round 0 is the last. The weights' parts
// go to keep. Bases that the keep policy dropped are made again from their predecessors.
func (l *Log) Without(ctx context.Context, round int, m domain.MachineID, get blob.Get, keep Scratch) (Without, error) {
	if l.broken != nil {
		return Without{}, l.broken
	}
	op := fmt.Sprintf("recompute run %s without %s", l.id, domain.Clip(string(m), domain.MaxIDLength))
	at := len(l.rounds) - 1
	for i, r := range l.rounds {
		if r.fact.Round == round {
			at = i
		}
	}
	if at < 0 || round > 0 && l.rounds[at].fact.Round != round {
		return Without{}, domain.NotFound(op, fmt.Sprintf("round %d was not merged", round), "see: tensorturn model lineage "+string(l.id))
	}
	f := l.rounds[at].fact
	out := Without{Round: f.Round, Machine: m, Actual: f.NextBase, Model: f.Base}
	f.Inputs = nil
	for _, in := range l.rounds[at].fact.Inputs {
		if in.Slot.Machine() == m {
			out.Dropped += in.Samples
			continue
		}
		f.Inputs = append(f.Inputs, in)
	}
	out.Left = len(f.Inputs)
	if out.Dropped == 0 {
		return Without{}, domain.NotFound(op, fmt.Sprintf("it contributed nothing to round %d", f.Round), "see: tensorturn model lineage "+string(l.id))
	}
	if out.Left == 0 {
		return out, nil
	}
	w := &weights{get: get, keep: keep}
	var err error
	out.Model, err = l.mergeAt(ctx, w, at, f)
	return out, err
}

// mergeAt computes f in the place of the merge at, whose base may have to be made first.
func (l *Log) mergeAt(ctx context.Context, w *weights, at int, f run.RoundMerged) (domain.Digest, error) {
	got, err := w.merge(ctx, f)
	if domain.KindOf(err) != domain.KindNotFound {
		return got.base, err
	}
	for _, r := range l.rounds[:at] {
		if _, err := l.recompute(ctx, w, r.fact); err != nil {
			return "", fmt.Errorf("round %d of run %s (record %d): %w", r.fact.Round, l.id, r.seq, err)
		}
	}
	got, err = w.merge(ctx, f)
	return got.base, err
}
