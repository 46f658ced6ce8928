package replay

import (
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Origin is where a member of an ensemble comes from.
type Origin struct {
	Member  int              `json:"member"`
	Single  bool             `json:"single,omitempty"` // compared, without a vote
	Status  run.MemberStatus `json:"status"`
	Seed    uint64           `json:"seed"`
	Weights domain.Digest    `json:"weights,omitempty"`
	Outputs domain.Digest    `json:"outputs,omitempty"`
	Weight  *float64         `json:"weight,omitempty"` // in the vote; none: it has no vote
	Parts   []Part           `json:"parts"`
}

// Part is what one slot trained of a member under one lease, from checkpoint to checkpoint.
type Part struct {
	Slot    domain.SlotID    `json:"slot"`
	Machine domain.MachineID `json:"machine"`
	Epoch   domain.Epoch     `json:"epoch"`
	From    int              `json:"from"` // chunk
	To      int              `json:"to"`
	Samples int64            `json:"samples"`
}

// Members tells which machines trained which part of each member of an ensemble, and what it weighs in the vote.
func (l *Log) Members() []Origin {
	out := []Origin{}
	s := l.state
	if s == nil || s.Ensemble == nil {
		return out
	}
	weights := map[int]*float64{}
	if l.vote != nil {
		for i, in := range l.vote.fact.Members {
			weights[in.Member] = &l.vote.fact.Result.Weights[i]
		}
	}
	for i := range s.Ensemble.Members {
		m := &s.Ensemble.Members[i]
		spec := s.MemberSpec(m.Number)
		o := Origin{Member: m.Number, Single: m.Single, Status: m.Status, Seed: spec.Seed, Weights: m.Weights, Weight: weights[m.Number], Parts: []Part{}}
		if m.Outputs != nil {
			o.Outputs = m.Outputs.Blob
		}
		for _, g := range m.Segments {
			o.Parts = append(o.Parts, Part{Slot: g.Slot, Machine: g.Slot.Machine(), Epoch: g.Epoch, From: g.From, To: g.To,
				Samples: run.MemberSamples(spec, s.Data, g.To) - run.MemberSamples(spec, s.Data, g.From)})
		}
		out = append(out, o)
	}
	return out
}
