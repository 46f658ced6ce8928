package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"tensorturn/broker/inference"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/placement"
	"tensorturn/domain/run"
)

// Describe implements inference.Backend: a version is ready when a machine has it ready, of an ensemble one member.
func (d *Dispatcher) Describe(ctx context.Context, v *inference.Version) (inference.Facts, error) {
	f, err := d.describe(ctx, v)
	if err != nil {
		return f, err
	}
	d.wish(v)
	return f, d.await(ctx, v, 1)
}

// describe says what goes into a version.
func (d *Dispatcher) describe(ctx context.Context, v *inference.Version) (inference.Facts, error) {
	k := factsKey{v.Run, v.Data.Blob}
	d.mu.Lock()
	f, ok := d.facts[k]
	d.mu.Unlock()
	if ok {
		return f, nil
	}
	f, err := d.cfg.Facts(ctx, v)
	if err != nil {
		return f, err
	}
	if pieceRows(f) == 0 {
		return f, domain.Invalid("serve a model", fmt.Sprintf("one row of %d features and %d classes takes more than the %d bytes that cross to a machine at a time", len(f.Columns), len(f.Classes), wire.MaxAskBytes), "deploy it with --on hub")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.facts) >= maxFacts {
		clear(d.facts)
	}
	d.facts[k] = f
	return f, nil
}

// Check implements inference.Backend: machines load every model of the version, and one that only a program can run makes a
// prediction.
func (d *Dispatcher) Check(ctx context.Context, v *inference.Version) error {
	f, err := d.describe(ctx, v)
	if err != nil {
		return err
	}
	d.wish(v)
	if err := d.awaitAll(ctx, v); err != nil {
		return err
	}
	if v.Spec.Trainer != run.Process {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	for _, m := range membersOf(v) {
		if _, err := d.one(ctx, keyOf(v, m), make([]float32, len(f.Columns)), 1, len(f.Classes)); err != nil {
			return fmt.Errorf("try a prediction with a row of zeros: %w", err)
		}
	}
	return nil
}

// await waits a while until so many models of a version are ready somewhere. Where no machine is there to load one, nobody waits.
func (d *Dispatcher) await(ctx context.Context, v *inference.Version, n int) error {
	all := membersOf(v)
	ready, lacking, _, changed := d.look(v, all)
	if ready >= n {
		return nil
	}
	limit := time.NewTimer(loadWait)
	defer limit.Stop()
	for ready < n {
		if d.deserted() {
			return d.standing("predict", lacking)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return d.standing("predict", lacking)
		case <-limit.C:
			return d.standing("predict", lacking)
		}
		ready, lacking, _, changed = d.look(v, all)
	}
	return nil
}

// awaitAll waits until every model of a version is ready somewhere. One that is on its way to no machine ends it: it failed, or
// there is no room. Whoever asks is the operator, who is told why.
func (d *Dispatcher) awaitAll(ctx context.Context, v *inference.Version) error {
	limit := time.NewTimer(checkWait)
	defer limit.Stop()
	all, op := membersOf(v), "load model "+string(v.Model)
	for {
		ready, lacking, hopeless, changed := d.look(v, all)
		switch {
		case ready == len(all):
			return nil
		case hopeless:
			return cmp.Or(d.failure(lacking), d.standing(op, lacking))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return d.standing(op, lacking)
		case <-limit.C:
			return d.standing(op, lacking)
		}
	}
}

// look counts the models that are ready somewhere; lacking is one that is not, hopeless says that nothing is on its way to it.
func (d *Dispatcher) look(v *inference.Version, all []inference.Member) (ready int, lacking placement.Key, hopeless bool, changed chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.cfg.Now()
	for _, m := range all {
		k := keyOf(v, m)
		is, loading := false, false
		for _, p := range d.peers {
			if h, ok := p.holds[k]; ok && d.counts(p, now) {
				is = is || h.how == placement.Ready
				loading = loading || h.how == placement.Loading
			}
		}
		if is {
			ready++
			continue
		}
		if !hopeless {
			lacking, hopeless = k, !loading && !d.gathers(now)
		}
	}
	return ready, lacking, hopeless, d.changed
}

// pieceRows is how many rows cross at a time, so that neither question nor answer fills the link.
func pieceRows(f inference.Facts) int {
	return wire.MaxAskBytes / (4 * max(len(f.Columns), len(f.Classes), 1))
}

// Predict implements inference.Backend.
func (d *Dispatcher) Predict(ctx context.Context, v *inference.Version, features []float32) (inference.Answer, error) {
	var none inference.Answer
	f, err := d.describe(ctx, v)
	if err != nil {
		return none, err
	}
	rows, err := inference.Rows(f, features)
	if err != nil {
		return none, err
	}
	d.wish(v)
	if err := d.await(ctx, v, 1); err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if len(v.Members) > 0 {
		return d.vote(ctx, v, f, features, rows)
	}
	p, err := d.pieces(ctx, keyOf(v, membersOf(v)[0]), f, features, rows)
	if err != nil {
		return none, err
	}
	return inference.Single(f, p), nil
}

// pieces asks for all rows of one model, a message at a time.
func (d *Dispatcher) pieces(ctx context.Context, k placement.Key, f inference.Facts, features []float32, rows int) ([]float32, error) {
	var out []float32
	width, most := len(f.Columns), pieceRows(f)
	for rows > 0 {
		n := min(rows, most)
		p, err := d.one(ctx, k, features[:n*width], n, len(f.Classes))
		if err != nil {
			return nil, err
		}
		out = append(out, p...)
		features, rows = features[n*width:], rows-n
	}
	return out, nil
}

// voice is what became of one member's question.
type voice struct {
	member int // position
	values []float32
	err    error
}

// vote asks all members at a time and combines what those say that answer in time: once one has answered, the others have
// memberTimes as long as they mostly take.
func (d *Dispatcher) vote(ctx context.Context, v *inference.Version, f inference.Facts, features []float32, rows int) (inference.Answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	voices := make(chan voice, len(v.Members)) // whoever comes late finds room
	patience := memberTime
	for i, m := range v.Members {
		k := keyOf(v, m)
		if slow, known := d.slow(k); known {
			patience = max(patience, memberTimes*slow)
		}
		asking.Go(func() {
			p, err := d.pieces(ctx, k, f, features, rows)
			voices <- voice{i, p, err}
		})
	}
	answers, used, err := collect(ctx, voices, len(v.Members), patience)
	cancel() // ends those that are late at once: they only wait
	asking.Wait()
	if used == 0 {
		return inference.Answer{}, err
	}
	return inference.Combine(v, f, answers, rows, used)
}

// collect gathers voices until all have come or the patience with the last ones is over. A member that refuses the rows leaves the
// vote like one that fails; they are wrong when all say so.
func collect(ctx context.Context, voices <-chan voice, n int, patience time.Duration) (answers [][]float32, used int, failed error) {
	answers = make([][]float32, n)
	limit := time.NewTimer(patience)
	defer limit.Stop()
	var refused error
	over := false
	for heard := 0; heard < n && !(over && used > 0); {
		select {
		case s := <-voices:
			heard++
			switch {
			case s.err == nil:
				answers[s.member] = s.values
				used++
			case domain.KindOf(s.err) == domain.KindInvalid:
				refused = s.err
			case failed == nil || late(failed):
				failed = s.err
			}
		case <-limit.C:
			over = true
		case <-ctx.Done():
			if failed == nil {
				failed = domain.Unavailable("predict", "no member answered in time", "try again", ctx.Err())
			}
			return answers, used, failed
		}
	}
	return answers, used, cmp.Or(failed, refused)
}
