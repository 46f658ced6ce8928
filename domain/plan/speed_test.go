package plan_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// trial is a pool whose slots train in virtual time. What its agents know of the hub's wishes they learn in their syncs.
type trial struct {
	*story
	rng     *rand.Rand
	now     float64
	agents  []*agent
	link    float64 // seconds for a request and its reply
	merge   float64 // seconds a merge takes
	jitter  float64 // of a chunk's time, standard deviation of its logarithm
	open    float64 // when the round was opened
	mergeAt float64
}

// agent is one slot's other side.
type agent struct {
	id     domain.SlotID
	speed  float64 // true, samples per second
	upload float64 // true, seconds

	next    float64 // time of its next periodic sync
	epoch   domain.Epoch
	number  int
	claims  []domain.ChunkID // known and not begun
	ask     bool             // a contribution is wanted
	chunk   domain.ChunkID   // under way, -1 when none
	began   float64
	ends    float64
	sends   float64 // when the upload under way is done, 0 when none
	trained []domain.ChunkID
	hubSees float64 // when the hub learnt that the chunk under way began
	rate    float64 // moving average the hub has of its speed
	worked  float64 // seconds of training
}

const trialRun = domain.RunID("r-1")

// newTrial makes a pool with a run of rounds rounds, chunks chunks each, of 1000 samples.
func newTrial(t tester, seed uint64, lease time.Duration, speeds []float64, chunks, rounds int) *trial {
	tr := &trial{story: newStory(t, lease), rng: rand.New(rand.NewPCG(seed, 1)), link: 0.05, merge: 0.2, jitter: 0.05, mergeAt: math.Inf(1)}
	for i, v := range speeds {
		id := domain.SlotID(fmt.Sprintf("%c/0", 'a'+i))
		tr.slot(id)
		tr.agents = append(tr.agents, &agent{id: id, speed: v, chunk: -1, next: tr.rng.Float64() * domain.TimingOf(lease).Sync.Seconds()})
	}
	tr.submit(trialRun, 1000*chunks, 1000, chunks, rounds, 0, 0, 0)
	tr.settle()
	tr.initialise(trialRun)
	return tr
}

// play runs to the end and gives the seconds it took.
func (tr *trial) play() float64 {
	r := tr.run(trialRun)
	tr.think()
	tr.wake()
	for r.Phase == run.PhaseTraining {
		a, t := tr.soonest()
		if tr.mergeAt <= t {
			tr.now, tr.mergeAt = tr.mergeAt, math.Inf(1)
			tr.story.merge(trialRun)
			tr.think()
			tr.wake()
			continue
		}
		tr.now = t
		tr.step(a)
		tr.wake()
		if tr.now > 1e7 {
			tr.t.Fatalf("the run does not end:\n%s", tr.show(trialRun))
		}
	}
	return tr.now
}

// soonest is the agent to which something happens next, and when.
func (tr *trial) soonest() (*agent, float64) {
	best, t := tr.agents[0], math.Inf(1)
	for _, a := range tr.agents {
		at := a.next
		if a.chunk >= 0 {
			at = min(at, a.ends)
		}
		if a.sends > 0 {
			at = min(at, a.sends)
		}
		if at < t {
			best, t = a, at
		}
	}
	return best, t
}

// step lets the agent finish what ends now, begin what it can, and sync.
func (tr *trial) step(a *agent) {
	offer := false
	switch {
	case a.chunk >= 0 && a.ends <= tr.now:
		a.worked += a.ends - a.began
		a.rate = blend(a.rate, float64(run.ChunkSamples(tr.run(trialRun).Spec, tr.run(trialRun).Data, a.chunk))/(a.ends-a.began))
		a.trained = append(a.trained, a.chunk)
		a.chunk = -1
		tr.begin(a, tr.now)
	case a.sends > 0 && a.sends <= tr.now:
		a.sends, offer = 0, true
	}
	tr.talk(a, offer)
	a.next = tr.now + domain.TimingOf(tr.lease).Sync.Seconds()
}

func blend(old, x float64) float64 {
	if old == 0 {
		return x
	}
	return 0.7*old + 0.3*x
}

// begin starts the next known claim.
func (tr *trial) begin(a *agent, at float64) {
	if a.chunk >= 0 || a.sends > 0 || a.ask || len(a.claims) == 0 {
		return
	}
	a.chunk, a.claims = a.claims[0], a.claims[1:]
	r := tr.run(trialRun)
	n := float64(run.ChunkSamples(r.Spec, r.Data, a.chunk))
	a.began, a.hubSees = at, at
	a.ends = at + n/a.speed*math.Exp(tr.jitter*tr.rng.NormFloat64())
}

// talk is one sync: report, offer, plan, and the reply.
func (tr *trial) talk(a *agent, offer bool) {
	r := tr.run(trialRun)
	if l := r.TrainLease(a.id); l != nil && l.Epoch == a.epoch && r.Number(a.id) == a.number {
		for _, c := range a.trained {
			if !slices.Contains(l.Claimed, c) {
				continue // reported before, or another slot has counted its copy
			}
			tr.must(trialRun, run.ReportTrained{Slot: a.id, Epoch: a.epoch, Number: a.number, Chunk: c, Steps: 1, Seconds: 1, Loss: 1})
		}
		if offer {
			tr.contribute(trialRun, a.id)
		}
	}
	tr.think()
	l := r.TrainLease(a.id)
	if l == nil {
		a.drop()
		return
	}
	if l.Epoch != a.epoch || r.Number(a.id) != a.number {
		a.drop()
		a.epoch, a.number = l.Epoch, r.Number(a.id)
	}
	a.ask, a.claims = l.Contribute != "", nil
	for _, c := range l.Claimed {
		if c != a.chunk {
			a.claims = append(a.claims, c)
		}
	}
	tr.begin(a, tr.now+tr.link)
	if a.ask && a.chunk < 0 && a.sends == 0 {
		a.sends = tr.now + tr.link + a.upload
	}
}

// drop forgets what the agent held: its lease or its contribution is over.
func (a *agent) drop() {
	a.epoch, a.claims, a.trained, a.ask, a.chunk, a.sends = 0, nil, nil, false, -1, 0
}

// think shows plan what the hub knows and does what it proposes.
func (tr *trial) think() {
	r := tr.run(trialRun)
	for _, a := range tr.agents {
		p := tr.slot(a.id)
		p.Speed, p.Upload, p.Busy, p.Shown = a.rate, 0, 0, 0
		if a.rate > 0 {
			p.Upload = a.upload
		}
		if a.chunk >= 0 {
			p.Busy = max(tr.now-a.hubSees, 0)
			p.Shown = p.Busy
		}
	}
	before := r.Open
	if r.Open != nil {
		tr.ages[trialRun] = tr.now - tr.open
	}
	tr.settle()
	if r.Open != nil && r.Open != before {
		tr.open = tr.now
	}
	if r.Open != nil && r.Open.Closed && math.IsInf(tr.mergeAt, 1) {
		tr.mergeAt = tr.now + tr.merge
	}
}

// wake hints to idle agents that there is something for them.
func (tr *trial) wake() {
	r := tr.run(trialRun)
	for _, a := range tr.agents {
		if l := r.TrainLease(a.id); l != nil && a.chunk < 0 && a.sends == 0 && (len(l.Claimed) > 0 || l.Contribute != "") {
			a.next = min(a.next, tr.now+tr.link)
		}
	}
}

// steals counts the steals of the whole story.
func (s *story) steals() int {
	n := 0
	for _, d := range s.facts {
		if _, ok := d.(*run.ChunksStolen); ok {
			n++
		}
	}
	return n
}

// TestSpeed is what the scheduler is for: slots at 1:2:4:8 take at most 1.10 times what they would take if nobody ever
// waited, uploads, merges, replies, unsteady speeds and the first round's ignorance included. The last column is what
// equal shards without steals would take.
func TestSpeed(t *testing.T) {
	for _, tc := range []struct {
		name                        string
		lease                       time.Duration
		unit                        float64 // samples per second of the slowest slot; a chunk is 1000
		chunks, rounds              int
		upload, link, merge, jitter float64 // seconds; jitter is a fraction
		allowed                     float64 // at worst
	}{
		{"ten chunks for the slowest", 120 * time.Second, 25, 150, 10, 2, 0.05, 0.2, 0.05, 1.10},
		{"one round, no speed known", 120 * time.Second, 25, 150, 1, 2, 0.05, 0.2, 0.05, 1.10},
		{"speeds that jump by a fifth", 120 * time.Second, 25, 150, 10, 2, 0.05, 0.2, 0.20, 1.10},
		{"uploads of a twentieth of the round", 120 * time.Second, 25, 150, 10, 20, 0.2, 0.2, 0.05, 1.10},
		{"five chunks for the slowest", 120 * time.Second, 25, 80, 10, 2, 0.05, 0.2, 0.05, 1.10},
		{"three chunks for the slowest", 120 * time.Second, 25, 40, 10, 2, 0.05, 0.2, 0.05, 1.15},
		{"rounds of 4 s, lease of 6 s", 6 * time.Second, 2500, 150, 10, 0.03, 0.005, 0.02, 0.05, 1.10},
		{"rounds of 4 s, lease of 120 s", 120 * time.Second, 2500, 150, 10, 0.03, 0.005, 0.02, 0.05, 1.10},
	} {
		const seeds = 4
		worst, sum, steals := 0.0, 0.0, 0
		ideal := float64(tc.chunks*tc.rounds*1000) / (15 * tc.unit)
		for seed := range uint64(seeds) {
			tr := newTrial(t, seed, tc.lease, []float64{tc.unit, 2 * tc.unit, 4 * tc.unit, 8 * tc.unit}, tc.chunks, tc.rounds)
			tr.link, tr.merge, tr.jitter = tc.link, tc.merge, tc.jitter
			for _, a := range tr.agents {
				a.upload = tc.upload
			}
			ratio := tr.play() / ideal
			worst, sum, steals = max(worst, ratio), sum+ratio, steals+tr.steals()
		}
		static := float64(tc.rounds) * (float64(tc.chunks)*1000/4/tc.unit + tc.upload + tc.merge) / ideal
		t.Logf("%-36s %.3f of the ideal in the mean, %.3f at worst, %.1f steals a round; static equal shards %.2f",
			tc.name, sum/seeds, worst, float64(steals)/seeds/float64(tc.rounds), static)
		if worst > tc.allowed {
			t.Errorf("%s: %.3f of the ideal, allowed are %.2f", tc.name, worst, tc.allowed)
		}
	}
}
