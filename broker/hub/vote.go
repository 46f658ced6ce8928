package hub

import (
	"context"
	"errors"
	"slices"
	"time"

	"tensorturn/broker"
	"tensorturn/domain"
	"tensorturn/domain/ballot"
	"tensorturn/domain/run"
)

// VoteJob asks a worker to count an ensemble's vote. It is asked again after a restart.
type VoteJob struct {
	Run    domain.RunID
	Ballot ballot.Ballot
}

// Counted is a worker's result.
type Counted struct {
	Job  VoteJob
	Vote run.Voted
	// Faults lists members whose outputs cannot be voted over; Err is any other failure: try again.
	Faults []*ballot.InputError
	Err    error
}

func (VoteJob) isOutput() {}
func (Counted) isInput()  {}

// maxVotes is how many votes wait for the worker.
const maxVotes = MaxLiveRuns

// counting is a vote that a worker counts or will count.
type counting struct {
	job      VoteJob
	running  bool
	attempts int
	retry    time.Time
}

// Vote does what the Service's worker does with a vote: for a caller that drives Core itself.
func Vote(ctx context.Context, blobs broker.Blobs, j VoteJob) Counted {
	return weights{blobs: blobs}.vote(ctx, j)
}

// vote reads the ballot. Members' outputs that are damaged in the store are removed, like deltas, so that a second upload
// does not find them there.
func (w weights) vote(ctx context.Context, j VoteJob) Counted {
	out := Counted{Job: j}
	v, err := j.Ballot.Count(ctx, w.getOrRemove, w.blobs.Get)
	if out.Faults = ballot.Faults(err); out.Faults == nil {
		out.Vote, out.Err = v, err
	}
	return out
}

// voteOf gives the vote that the run waits for, nil when it waits for none.
func (c *Core) voteOf(s *run.State) *counting {
	if _, waits := s.NeedsVote(); !waits {
		delete(c.mem.votes, s.ID)
		return nil
	}
	job := VoteJob{Run: s.ID, Ballot: ballot.Of(s)}
	v := c.mem.votes[s.ID]
	if v == nil || !sameVote(v.job, job) {
		v = &counting{job: job}
		c.mem.votes[s.ID] = v
	}
	return v
}

func sameVote(a, b VoteJob) bool {
	x, y := a.Ballot, b.Ballot
	return a.Run == b.Run && slices.Equal(x.Voters, y.Voters) && (x.Single == nil) == (y.Single == nil) && (x.Single == nil || *x.Single == *y.Single)
}

// voted hears a worker's result for the vote that the run still waits for.
func (b *batch) voted(x Counted) {
	v := b.c.mem.votes[x.Job.Run]
	if v == nil || !v.running || !sameVote(v.job, x.Job) {
		return
	}
	v.running = false
	s := b.c.fold.runs[x.Job.Run]
	if s == nil || b.c.voteOf(s) != v {
		return
	}
	b.beginOwn(hubActor, string(x.Job.Run), "voted", string(x.Job.Run), uint64Text(b.seq))
	switch {
	case len(x.Faults) > 0:
		b.faulty(s, v, x.Faults)
	case x.Err != nil:
		if k := domain.KindOf(x.Err); s.Paused == "" && (k == domain.KindInvalid || k == domain.KindIntegrity || k == domain.KindNotFound) {
			// the data's own labels are gone, or nothing can be computed: a person must look
			_, err := b.run(s.ID, run.Pause{Reason: domain.Clip("vote failed: "+x.Err.Error(), domain.MaxReasonLength)})
			b.refused(err)
		}
		v.again(b.now)
	default:
		delete(b.c.mem.votes, s.ID)
		for _, in := range x.Vote.Members {
			delete(b.c.mem.wanted, in.Outputs)
		}
		_, err := b.run(s.ID, run.RecordVote{Vote: x.Vote})
		b.refused(err)
	}
}

// faulty asks the makers of lost outputs for them again. Those that nobody can give within one lease time are made again
// from the member's weights; outputs that are no probabilities have no vote.
func (b *batch) faulty(s *run.State, v *counting, faults []*ballot.InputError) {
	muted := false
	for _, f := range faults {
		m := s.Member(f.Input.Member)
		maker := m.By.Machine()
		if f.Gone && !b.c.mem.overdue(f.Input.Outputs, maker, b.now, b.c.cfg.Timing.Lease) {
			b.wake(maker)
			continue
		}
		delete(b.c.mem.wanted, f.Input.Outputs)
		_, err := b.run(s.ID, run.MuteMember{Member: m.Number, Outputs: f.Input.Outputs, Again: f.Gone, Reason: domain.Clip(f.Err.Error(), domain.MaxReasonLength)})
		b.refused(err)
		muted = muted || err == nil
	}
	if muted {
		delete(b.c.mem.votes, s.ID) // the voters are others now
		return
	}
	v.again(b.now)
	v.retry = earlier(v.retry, b.now.Add(b.c.cfg.Timing.Suspect)) // the lease time that the agents have is counted in these
}

func (v *counting) again(now time.Time) {
	v.attempts++
	v.retry = now.Add(backoff(v.attempts-1, retryFirst, retryLongest))
}

// redoVote makes a vote due again whose result was not decided.
func (m *liveness) redoVote(x Counted) {
	if v := m.votes[x.Job.Run]; v != nil && sameVote(v.job, x.Job) {
		v.running = false
	}
}

// missedOutputs marks votes that wait for a blob which its maker does not have: they need not wait any longer.
func (m *liveness) missedOutputs(d domain.Digest, now time.Time) {
	for _, v := range m.votes { // each is only marked: order does not matter
		lost := func(in run.VoteInput) bool { return in.Outputs == d }
		if slices.ContainsFunc(v.job.Ballot.Voters, lost) || v.job.Ballot.Single != nil && lost(*v.job.Ballot.Single) {
			v.retry = now
		}
	}
}

// voteAll counts one vote at a time.
func (s *Service) voteAll(ctx context.Context) {
	for {
		select {
		case j := <-s.votes:
			began := time.Now()
			c := s.vote(ctx, j)
			s.logVote(c, time.Since(began))
			s.post(ctx, c)
		case <-ctx.Done():
			return
		}
	}
}

// logVote says how a vote went. One that failed is said aloud: its run stands still until it succeeds.
func (s *Service) logVote(c Counted, took time.Duration) {
	l, text := s.cfg.Logger.Info(), "vote counted"
	if c.Err != nil || len(c.Faults) > 0 {
		err := c.Err
		for _, f := range c.Faults {
			err = errors.Join(err, f)
		}
		l, text = s.cfg.Logger.Warn().AnErr("err", err).Str("next", domain.NextOf(err)), "vote not counted, tried again"
	}
	l.Str("run", string(c.Job.Run)).Int("members", len(c.Job.Ballot.Voters)).Int64("took_ms", took.Milliseconds()).Msg(text)
}
