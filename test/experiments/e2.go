package main

// E2: the product's reason to exist. Four machines train as long as one does, and so see four times its tokens. (2026-11-30: a
// first sizing, which trained on every place of a text a tenth as large instead of an even choice of all, missed the
// threshold with one of three seeds: −2.87 %. At this size the gain is not far above what is asked for.)

const timeGain = 0.03

func equalTime(l *lab) error {
	single, err := l.tuned(arm{name: "one machine", tokens: l.tokens() / 4, alone: true})
	if err != nil {
		return err
	}
	fused, err := l.fused()
	if err != nil {
		return err
	}
	arms := append(single, l.overshot(fused))
	got, err := l.results(arms...)
	if err != nil {
		return err
	}
	l.rows(arms, got)
	gain := over(got[1], got[0])
	l.require(gain.most() <= -timeGain, "four machines end below one at equal time, with every seed: %s to %s %% (needed: %s %% or lower)",
		points(gain.least()), points(gain.most()), points(-timeGain))
	l.require(got[1][0].Time <= 1.05*got[0][0].Time, "the times are equal: %.0f and %.0f", got[1][0].Time, got[0][0].Time)
	return nil
}
