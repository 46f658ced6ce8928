package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
)

// How the language experiments are sized: some 95 trainings of 320,000 tokens, 25 rounds at H = 50, a quarter of an hour of
// two processors. The pilot of the reference had six times as many tokens and its thresholds are kept: at this size the
// curves are steeper, which makes E3 and E7 harder to meet. A rate of 0.032 was tried beside the grid and was worse. Arms are shared: what two experiments need is trained once.
const (
	tokens     = 320_000
	quickScale = 8 // a quick lab trains on so much less
	syncSteps  = 50
	quickSteps = 10 // so that a quick lab has rounds
	tuneSeed   = 100
)

var (
	rates  = []float64{4e-3, 8e-3, 16e-3} // learning rates to choose from, on the validation text
	equal  = []float64{1, 1, 1, 1}
	uneven = []float64{1, 2, 4, 8}
)

// bench trains arms and remembers what they gave.
type bench struct {
	mu     sync.Mutex
	corpus *corpus
	known  map[string]measured
	kept   map[string]bool // of these, what an earlier try had trained
	reused bool            // one of those was asked for

	path, program string // of the file of an interrupted run, "" when there is none
}

// measured stands in the file as it is: its fields are exported for JSON.
type measured struct {
	figures
	Validation float64
}

// job is one arm with one seed.
type job struct {
	a    arm
	seed uint64
}

func (j job) key() string { j.a.name = ""; return fmt.Sprintf("%+v %d", j.a, j.seed) }

func newBench() *bench { return &bench{known: map[string]measured{}, kept: map[string]bool{}} }

// do trains what is not known yet, as many at once as there are processors.
func (b *bench) do(ctx context.Context, jobs []job) error {
	if b.corpus == nil {
		c, err := newCorpus()
		if err != nil {
			return err
		}
		b.corpus = c
	}
	todo := make(chan job)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			if err := b.some(ctx, todo); err != nil {
				cancel(err) // the first is told: the others' are of this end
			}
		})
	}
	seen := map[string]bool{}
	for _, j := range jobs {
		b.mu.Lock()
		_, known := b.known[j.key()]
		b.mu.Unlock()
		b.reused = b.reused || b.kept[j.key()]
		if known || seen[j.key()] {
			continue
		}
		seen[j.key()] = true
		select {
		case todo <- j:
		case <-ctx.Done():
		}
	}
	close(todo)
	wg.Wait()
	return context.Cause(ctx)
}

// some trains jobs until there are no more, or one fails.
func (b *bench) some(ctx context.Context, todo <-chan job) error {
	e, err := newEvaluator(ctx, b.corpus)
	if err != nil {
		return err
	}
	for j := range todo {
		m, err := b.one(ctx, e, j)
		if err != nil {
			return fmt.Errorf("%s, seed %d: %w", j.a.name, j.seed, err)
		}
		if err := b.learn(j, m); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) learn(j job, m measured) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[j.key()] = m
	return b.save()
}

func (b *bench) one(ctx context.Context, e *evaluator, j job) (m measured, err error) {
	weights, f, err := train(ctx, b.corpus, j.a, j.seed)
	if err != nil {
		return m, err
	}
	m.figures = f
	if m.Loss, err = loss(ctx, e.test, weights); err != nil {
		return m, err
	}
	m.Validation, err = loss(ctx, e.validation, weights)
	return m, err
}

// seeds are those that are reported.
func (l *lab) seeds() []uint64 { return []uint64{1, 2, 3}[:l.count(3, 1)] }

// grid is the learning rates to choose from; a quick lab takes one on trust.
func (l *lab) grid() []float64 {
	if l.quick {
		return rates[1:2]
	}
	return rates
}

func (l *lab) tokens() int {
	if l.quick {
		return tokens / quickScale
	}
	return tokens
}

// results trains the arms with every seed: figures by arm and seed.
func (l *lab) results(arms ...arm) ([][]measured, error) {
	var jobs []job
	for _, a := range arms {
		for _, s := range l.seeds() {
			jobs = append(jobs, job{a, s})
		}
	}
	if err := l.bench.do(l.ctx, jobs); err != nil {
		return nil, err
	}
	out := make([][]measured, len(arms))
	for i, a := range arms {
		for _, s := range l.seeds() {
			out[i] = append(out[i], l.bench.known[job{a, s}.key()])
		}
	}
	return out, nil
}

// tuned gives each arm the learning rate of the grid with the least loss on the validation text, with a seed that is
// not reported.
func (l *lab) tuned(arms ...arm) ([]arm, error) {
	var jobs []job
	for _, a := range arms {
		for _, lr := range l.grid() {
			a.lr = lr
			jobs = append(jobs, job{a, tuneSeed})
		}
	}
	if err := l.bench.do(l.ctx, jobs); err != nil {
		return nil, err
	}
	n := len(l.grid())
	for i := range arms {
		best := 0
		for k := range n {
			if l.bench.known[jobs[i*n+k].key()].Validation < l.bench.known[jobs[i*n+best].key()].Validation {
				best = k
			}
		}
		arms[i].lr = l.grid()[best]
	}
	return arms, nil
}

// fused is the arm that most others differ from in one thing: four equal machines, H = 50, its own learning rate.
func (l *lab) fused() (arm, error) {
	steps := l.count(syncSteps, quickSteps)
	a, err := l.tuned(arm{name: fmt.Sprintf("fused, 4 machines, H = %d", steps), tokens: l.tokens(), speeds: equal, steps: steps})
	if err != nil {
		return arm{}, err
	}
	return a[0], nil
}

// losses of an arm over the seeds.
func losses(ms []measured) (s sample) {
	for _, m := range ms {
		s = append(s, m.Loss)
	}
	return s
}

// rows prints a table of arms against the first.
func (l *lab) rows(arms []arm, got [][]measured) {
	l.head("", "inner rate", "loss by seed, nats", "mean", "against the first (standard error)", "rounds", "simulated time")
	for i, a := range arms {
		by := ""
		for k, v := range losses(got[i]) {
			if k > 0 {
				by += ", "
			}
			by += nats(v)
		}
		gap := over(got[i], got[0])
		l.row(a.name, fmt.Sprint(a.lr), by, nats(losses(got[i]).mean()), fmt.Sprintf("%s %% (%s)", points(gap.mean()), percent2(gap.error())),
			fmt.Sprint(got[i][0].Rounds), fmt.Sprintf("%.0f", got[i][0].Time))
	}
	l.printf("\n")
}

// hurts is a negative control: the fused arm, spoiled, must end worse by least, a fraction of the loss.
func (l *lab) hurts(least float64, what string, spoil func(*arm)) error {
	base, err := l.fused()
	if err != nil {
		return err
	}
	bad := base
	spoil(&bad)
	arms := []arm{base, bad}
	got, err := l.results(arms...)
	if err != nil {
		return err
	}
	l.rows(arms, got)
	gap := over(got[1], got[0])
	l.require(gap.mean() >= least, "%s worse: %s %% (needed: %s %%)", what, points(gap.mean()), points(least))
	return nil
}

// atMost requires that the first's mean loss is at most so much above the second's, as a fraction.
func (l *lab) atMost(what string, a, b []measured, limit float64) {
	gap := over(a, b)
	l.require(gap.mean() <= limit, "%s: %s %% (at most %s %%)", what, points(gap.mean()), points(limit))
}

// over is the paired difference of losses as fractions of the other's.
func over(a, b []measured) (s sample) {
	for i := range a {
		s = append(s, a[i].Loss/b[i].Loss-1)
	}
	return s
}
