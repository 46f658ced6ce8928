package main

import (
	"fmt"
	"math"

	"tensorturn/domain/dataset"
	"tensorturn/domain/vote"
)

// E13: five members that differ in seed alone, by the mean of their probabilities, against the mean member (deep
// ensembles, Lakshminarayanan et al. 2017). Everything is paired within a split and measured on rows that neither
// training nor any fit saw. A single model five times as wide, about the same compute, stands beside it (Abe et al. 2022
// found that it may match the ensemble): it is printed, not judged.

const (
	ensembleMembers = 5
	ensembleSplits  = 20
	ensembleT       = 3.0   // Student's t that the gain must exceed
	ensembleWorse   = 0.002 // at 1,000 rows the vote may be this much worse
	ensembleNLL     = 0.8   // fraction of splits in which the log loss must be lower
)

// scale is one size of training set.
type scale struct {
	rows, hidden, epochs, batch int
	gain                        bool // the gain must be significant
}

var scales = []scale{
	{rows: 100, hidden: 16, epochs: 60, batch: 16, gain: true},
	{rows: 300, hidden: 16, epochs: 40, batch: 16, gain: true},
	{rows: 1000, hidden: 32, epochs: 30, batch: 32},
}

// plantEqualMembers gives every member the same seed: there is nothing to gain.
const plantEqualMembers = "equal members"

// ensembleFigures are the figures of one scale, one value for each split.
type ensembleFigures struct {
	single, vote, wide          sample // accuracy
	nllSingle, nllVote, nllWide sample // scaled
	rawSingle, rawVote          sample
	eceSingle, eceVote          sample // as they are
	eceSingleT, eceVoteT        sample // scaled
	temperature, disagreement   sample
}

func ensembleGain(l *lab) error {
	table, err := digits()
	if err != nil {
		return err
	}
	l.head("training rows, hidden", "mean single", "vote of 5", "gain, points (least, most)", "t", "wins", "disagreement", "5× wide single", "gap to wide, points")
	all := make([]ensembleFigures, len(scales))
	for i, s := range scales {
		if err := all[i].measure(l, table, s); err != nil {
			return err
		}
		f := &all[i]
		gain, gap := f.vote.minus(f.single), f.vote.minus(f.wide)
		l.row(fmt.Sprintf("%d, %d", s.rows, s.hidden), percent(f.single.mean()), percent(f.vote.mean()),
			fmt.Sprintf("%s (%s, %s)", points(gain.mean()), points(gain.least()), points(gain.most())), fmt.Sprintf("%.1f", gain.t()),
			fmt.Sprintf("%d of %d", gain.above(0), len(gain)), percent(f.disagreement.mean())+" %", percent(f.wide.mean()), points(gap.mean()))
	}
	l.note("Log loss (nats) and calibration error, means over splits, before and after one temperature:\n")
	l.head("training rows", "NLL single", "NLL vote", "T of the vote", "NLL single, after", "NLL vote, after", "NLL 5× wide, after", "ECE single", "ECE vote", "ECE single, after", "ECE vote, after")
	for i, s := range scales {
		f := &all[i]
		l.row(fmt.Sprint(s.rows), nats(f.rawSingle.mean()), nats(f.rawVote.mean()), fmt.Sprintf("%.2f", f.temperature.mean()), nats(f.nllSingle.mean()), nats(f.nllVote.mean()),
			nats(f.nllWide.mean()), nats(f.eceSingle.mean()), nats(f.eceVote.mean()), nats(f.eceSingleT.mean()), nats(f.eceVoteT.mean()))
	}
	l.note("An ensemble is not better calibrated by itself; no claim is made about the calibration error without temperature.\n")
	for i, s := range scales {
		all[i].judge(l, s)
	}
	return nil
}

// measure trains and votes on every split.
func (f *ensembleFigures) measure(l *lab, table *dataset.Table, s scale) error {
	for n := range l.count(ensembleSplits, 3) {
		data, err := split(table, s.rows, uint64(n+1))
		if err != nil {
			return err
		}
		in := vote.Input{Classes: data.data.Classes, Labels: data.labels}
		for k := range ensembleMembers {
			seed := uint64(1000*(n+1) + k)
			if l.plant == plantEqualMembers {
				seed = uint64(1000 * (n + 1))
			}
			m, err := data.train(l.ctx, mlp{hidden: s.hidden, seed: seed, epochs: s.epochs, batch: s.batch})
			if err != nil {
				return err
			}
			in.Members = append(in.Members, m.held)
		}
		wide, err := data.train(l.ctx, mlp{hidden: ensembleMembers * s.hidden, seed: uint64(1000*(n+1) + ensembleMembers), epochs: s.epochs, batch: s.batch})
		if err != nil {
			return err
		}
		in.Single = wide.held
		r, err := vote.Compute(in, vote.Mean)
		if err != nil {
			return err
		}
		f.add(r)
	}
	return nil
}

func (f *ensembleFigures) add(r vote.Result) {
	for _, v := range []struct {
		s *sample
		v float64
	}{
		{&f.single, r.Mean.Accuracy}, {&f.vote, r.Vote.Accuracy}, {&f.wide, r.Single.Accuracy},
		{&f.nllSingle, r.Mean.ScaledNLL}, {&f.nllVote, r.Vote.ScaledNLL}, {&f.nllWide, r.Single.ScaledNLL},
		{&f.rawSingle, r.Mean.NLL}, {&f.rawVote, r.Vote.NLL},
		{&f.eceSingle, r.Mean.ECE}, {&f.eceVote, r.Vote.ECE}, {&f.eceSingleT, r.Mean.ScaledECE}, {&f.eceVoteT, r.Vote.ScaledECE},
		{&f.temperature, r.Temperature}, {&f.disagreement, r.Disagreement},
	} {
		*v.s = append(*v.s, v.v)
	}
}

func (f *ensembleFigures) judge(l *lab, s scale) {
	gain := f.vote.minus(f.single)
	if s.gain {
		l.require(gain.mean() > 0 && gain.t() > ensembleT, "at %d rows the vote gains %s points over the mean member with t = %.1f (needed: above 0, t > %.0f)", s.rows, points(gain.mean()), gain.t(), ensembleT)
	} else {
		l.require(gain.mean() >= -ensembleWorse, "at %d rows the vote is %s points from the mean member (needed: not worse by %.1f)", s.rows, points(gain.mean()), 100*ensembleWorse)
	}
	splits := len(gain)
	need := int(math.Ceil(ensembleNLL * float64(splits)))
	lower := f.nllSingle.minus(f.nllVote).above(0)
	l.require(lower >= need, "at %d rows the vote's log loss after temperature is below the mean member's after theirs in %d of %d splits (needed: %d)", s.rows, lower, splits, need)
	cooled := f.rawVote.minus(f.nllVote).above(0)
	if !s.gain { // with much data the vote is sharp enough: there is little to lower
		l.printf("- printed: at %d rows the temperature lowers the vote's own log loss in %d of %d splits\n", s.rows, cooled, splits)
		return
	}
	l.require(cooled >= need, "at %d rows the temperature lowers the vote's own log loss in %d of %d splits (needed: %d)", s.rows, cooled, splits, need)
}
