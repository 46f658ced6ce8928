package main

// E6w: what a delta weighs. (a) All take chunks from one shuffled pool: samples, the product's weights, against equal ones
// and FedNova. (b) Each machine owns a part of the text, by path: there the order reverses, and samples are wrong. The
// product has no (b): data is one pool for all machines (a spec knows no private shards), so that nothing has to refuse.

const (
	plantWeights = "samples weigh as FedNova does" // in (a): nothing is better than FedNova then
)

func deltaWeights(l *lab) error {
	base, err := l.fused()
	if err != nil {
		return err
	}
	base.speeds = uneven
	with := func(name, weigh string, static, shards bool) arm {
		a := base
		a.name, a.weigh, a.static, a.shards = name, weigh, static, shards
		return a
	}
	samples := with("pool, samples", byTokens, false, false)
	if l.plant == plantWeights {
		samples.weigh = fednova
	}
	pool := []arm{samples, with("pool, equal weights", uniform, false, false), with("pool, FedNova (data owned)", fednova, false, false)}
	fixed := []arm{with("shards, equal shares of time", byTokens, true, true), with("shards, samples", byTokens, false, true), with("shards, FedNova (data owned)", fednova, false, true)}
	a, err := l.results(pool...)
	if err != nil {
		return err
	}
	b, err := l.results(fixed...)
	if err != nil {
		return err
	}
	l.rows(pool, a)
	l.rows(fixed, b)
	l.atMost("(a) samples against equal weights", a[0], a[1], 0.005)
	gap := over(a[0], a[2])
	l.require(gap.mean() < 0, "(a) samples against FedNova: %s %% (needed: below)", points(gap.mean()))
	gap = over(b[2], b[1])
	l.require(gap.mean() < 0, "(b) FedNova against samples: %s %% (needed: below)", points(gap.mean()))
	l.printf("- printed: (b) FedNova against equal shares of time: %s %%\n", points(over(b[2], b[0]).mean()))
	return nil
}
