package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"tensorturn/broker/inference"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/placement"
)

// Dispatcher asks agents. It is safe for concurrent use.
type Dispatcher struct {
	cfg Config

	mu      sync.Mutex
	peers   map[domain.MachineID]*peer
	wants   map[placement.Key]want
	order   []placement.Key // of wants
	wishes  []wish
	since   time.Time     // the start
	planned time.Time     // when, zero: at the next look
	changed chan struct{} // closed when a machine has another model ready

	next  uint64
	open  map[uint64]*question
	speed map[placement.Key]*speeds
	spare float64 // questions that may be asked twice
	facts map[factsKey]inference.Facts
}

type factsKey struct {
	run  domain.RunID
	data domain.Digest
}

// question is one wire.Ask under way. It stays open until it is answered or nobody waits, so that a machine that says nothing
// counts as loaded.
type question struct {
	id    uint64
	peer  *peer
	key   placement.Key
	rows  int
	width int // classes
	began time.Time
	end   *time.Timer
	said  chan said // holds one
}

// said is what became of a question.
type said struct {
	values []float32
	err    error
	away   bool // the machine has not begun: asking another costs nothing
}

// New makes a dispatcher that knows no machine yet.
func New(cfg Config) *Dispatcher {
	return &Dispatcher{cfg: cfg, since: cfg.Now(), peers: map[domain.MachineID]*peer{}, open: map[uint64]*question{}, speed: map[placement.Key]*speeds{},
		facts: map[factsKey]inference.Facts{}, spare: hedgeSaved, changed: make(chan struct{})}
}

// one asks for the rows of one message: the least loaded machine first. A machine that has not begun costs nothing and the next
// is asked; one that fails is replaced once; one that is slow is overtaken by another, and whoever answers first counts. That the
// rows are wrong is believed when a second machine says so, or there is none: the first may only be broken.
func (d *Dispatcher) one(ctx context.Context, k placement.Key, values []float32, rows, width int) ([]float32, error) {
	answers := make(chan said, 16) // one for each machine that is asked
	var tried []*peer
	launch := func() bool {
		if len(tried) == cap(answers) {
			return false
		}
		p := d.launch(ctx, k, values, rows, width, tried, answers)
		if p != nil {
			tried = append(tried, p)
		}
		return p != nil
	}
	if !launch() {
		return nil, d.standing("predict", k)
	}
	hedge := time.NewTimer(d.hedgeAfter(k))
	defer hedge.Stop()
	running, retried := 1, false
	var refused error
	for {
		select {
		case s := <-answers:
			running--
			switch {
			case s.err == nil:
				return s.values, nil
			case domain.KindOf(s.err) == domain.KindInvalid && refused != nil:
				return nil, s.err
			case (s.away || !retried) && launch():
				retried = retried || !s.away
				running++
			case running > 0:
			case refused != nil && s.away:
				return nil, refused
			case s.away:
				return nil, d.standing("predict", k)
			default:
				return nil, s.err
			}
			if domain.KindOf(s.err) == domain.KindInvalid {
				refused = s.err
			}
		case <-hedge.C:
			if d.mayHedge() && launch() {
				running++
			}
		case <-ctx.Done():
			return nil, domain.Unavailable("predict", "the machines did not answer in time", "try again", ctx.Err())
		}
	}
}

// launch asks the least loaded machine that holds the model and was not tried, nil when there is none.
func (d *Dispatcher) launch(ctx context.Context, k placement.Key, values []float32, rows, width int, tried []*peer, answers chan said) *peer {
	for {
		q := d.register(ctx, k, rows, width, tried, answers)
		if q == nil {
			return nil
		}
		left := answerTime.Seconds()
		if end, ok := ctx.Deadline(); ok {
			left = max(time.Until(end).Seconds(), 0.001)
		}
		b, err := wire.EncodeAsk(&wire.Ask{ID: q.id, Run: k.Run, Member: k.Member, Weights: k.Weights, Rows: rows, Values: wire.PackValues(values), Left: left})
		if err == nil {
			err = d.cfg.Sender.Send(q.peer.account, q.id, b)
		}
		if err == nil {
			return q.peer
		}
		d.cfg.Logger.Warn().Err(err).Str("machine", string(q.peer.id)).Msg("question not sent")
		d.close(q.id)
		tried = append(slices.Clip(tried), q.peer)
	}
}

// register opens a question to the best machine.
func (d *Dispatcher) register(ctx context.Context, k placement.Key, rows, width int, tried []*peer, answers chan said) *question {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.cfg.Now()
	var best *peer
	for _, id := range d.ids() {
		p := d.peers[id]
		if p.holds[k].how != placement.Ready || !d.counts(p, now) || slices.Contains(tried, p) {
			continue
		}
		if best == nil || p.open < best.open {
			best = p
		}
	}
	if best == nil || len(d.open) >= maxOpen {
		return nil
	}
	d.next++
	q := &question{id: d.next, peer: best, key: k, rows: rows, width: width, began: time.Now(), said: answers}
	left := answerTime
	if end, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(end))
	}
	q.end = time.AfterFunc(left, func() { d.close(q.id) })
	d.open[q.id] = q
	best.open += rows
	d.spare = min(hedgeSaved, d.spare+hedgeShare)
	return q
}

// close takes a question out of the open ones, nil when it is no longer.
func (d *Dispatcher) close(id uint64) *question {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.open[id]
	if q == nil {
		return nil
	}
	delete(d.open, id)
	q.end.Stop()
	q.peer.open -= q.rows
	return q
}

// Answer takes a machine's bytes. The account is what the server says of the caller: one that was not asked is not heard.
func (d *Dispatcher) Answer(account string, data []byte) {
	s, err := wire.DecodeSaid(data)
	if err != nil {
		d.cfg.Logger.Warn().Err(err).Str("account", account).Msg("unreadable answer")
		return
	}
	d.mu.Lock()
	q := d.open[s.ID]
	wrong := q == nil || q.peer.account != account
	d.mu.Unlock()
	if wrong || d.close(s.ID) == nil {
		return // too late, or another's
	}
	q.said <- d.judge(q, s)
}

// judge checks what a machine answered.
func (d *Dispatcher) judge(q *question, s *wire.Said) said {
	const op = "predict on an agent" // who asks for predictions is not told which
	switch {
	case s.Away:
		return said{err: domain.Unavailable(op, "it does not have the model ready", "try again", nil), away: true}
	case s.Error != nil:
		d.cfg.Logger.Warn().Str("machine", string(q.peer.id)).Str("run", string(q.key.Run)).Int("member", q.key.Member).Str("err", s.Error.Why).Msg("prediction failed on a machine")
		return said{err: s.Error.Err(op)}
	case len(s.Values) != 4*q.rows*q.width:
		return said{err: domain.Integrity(op, fmt.Sprintf("%d bytes are no answer for %d rows of %d classes", len(s.Values), q.rows, q.width), "")}
	}
	values := wire.UnpackValues(s.Values)
	for _, v := range values {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return said{err: domain.Integrity(op, "it answers with numbers that are not finite", "")}
		}
	}
	d.mu.Lock()
	sp := d.speed[q.key]
	if sp == nil {
		if len(d.speed) >= maxFacts {
			clear(d.speed)
		}
		sp = &speeds{}
		d.speed[q.key] = sp
	}
	sp.add(time.Since(q.began))
	d.mu.Unlock()
	return said{values: values}
}

// Unreached hears that nobody listened to a question: the machine's link is gone.
func (d *Dispatcher) Unreached(id uint64) {
	q := d.close(id)
	if q == nil {
		return
	}
	d.mu.Lock()
	q.peer.gone, d.planned = true, time.Time{}
	d.mu.Unlock()
	q.said <- said{err: domain.Unavailable("predict on an agent", "it is not connected", "try again", nil), away: true}
}

// hedgeAfter is how long a first answer may take until another machine is asked.
func (d *Dispatcher) hedgeAfter(k placement.Key) time.Duration {
	slow, known := d.slow(k)
	if !known {
		return hedgeFirst
	}
	return min(max(slow+slow/2, hedgeLeast), hedgeMost)
}

// slow is the time within which nineteen of twenty answers of a model came.
func (d *Dispatcher) slow(k placement.Key) (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sp := d.speed[k]
	if sp == nil || sp.n < fewAnswers {
		return 0, false
	}
	return sp.slow(), true
}

// mayHedge takes from the share of questions that may be asked twice.
func (d *Dispatcher) mayHedge() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.spare < 1 {
		return false
	}
	d.spare--
	return true
}

// speeds are the newest times of a model's answers.
type speeds struct {
	n     int
	times [latencies]time.Duration
}

func (s *speeds) add(t time.Duration) {
	s.times[s.n%latencies] = t
	s.n++
}

func (s *speeds) slow() time.Duration {
	sorted := slices.Sorted(slices.Values(s.times[:min(s.n, latencies)]))
	return sorted[len(sorted)*19/20]
}

// late reports whether an error is the context's end.
func late(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
