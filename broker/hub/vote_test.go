package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain"
	"tensorturn/domain/ballot"
	"tensorturn/domain/blob"
	"tensorturn/domain/dataset"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
	"tensorturn/domain/vote"
)

// polls is a world with a store, in which an ensemble waits for its vote.
type polls struct {
	*world
	store   store
	labels  []int32
	outputs [][]float32 // by member
	blobs   []domain.Digest
	counts  int // votes that the worker counted
	trouble error
}

const pollClasses = 3

// newPolls submits a run of so many members and brings them in, trained by machine a. edit changes what member k says.
func newPolls(t *testing.T, members int, edit func(k int, p []float32), options ...func(*polls)) *polls {
	p := &polls{world: newWorld(t), store: newStore(t)}
	p.vote = func(j VoteJob) Counted {
		p.counts++
		if p.trouble != nil {
			return Counted{Job: j, Err: p.trouble}
		}
		return Vote(context.Background(), p.store, j)
	}
	for _, o := range options {
		o(p)
	}
	facts, data := p.pack()
	p.submit("r-1", func(s *run.Spec, d *run.Dataset) {
		*s = run.Spec{Name: "poll", Mode: run.ModeEnsemble, Epochs: 1, Batch: 10, Ensemble: &run.Ensemble{Members: members, Min: 1}}
		*d = facts.Run(data)
	})
	p.enrol("a", 1, 1)
	for k := 1; k <= members; k++ {
		p.bringIn(k, edit)
	}
	return p
}

// pack makes a table of three classes and keeps the labels of its held-out rows.
func (p *polls) pack() (dataset.Facts, domain.Digest) {
	var csv, packed bytes.Buffer
	csv.WriteString("x,y,label\n")
	for i := range 400 {
		fmt.Fprintf(&csv, "%d,%d,%c\n", i*7%31, i*i%17, 'a'+i%pollClasses)
	}
	table, err := dataset.ParseCSV(&csv, dataset.CSVOptions{})
	p.must(err)
	facts, err := dataset.Pack(table, 0.5, 1, &packed)
	p.must(err)
	set, err := dataset.Open(bytes.NewReader(packed.Bytes()), int64(packed.Len()))
	p.must(err)
	labels := make([]int, facts.Heldout)
	p.must(set.Heldout(0, facts.Heldout, make([]float32, facts.Heldout*facts.Features()), labels))
	for _, l := range labels {
		p.labels = append(p.labels, int32(l))
	}
	return facts, p.store.put(packed.Bytes())
}

// bringIn trains member k by hand: commands instead of an agent.
func (p *polls) bringIn(k int, edit func(int, []float32)) {
	p.t.Helper()
	said := make([]float32, len(p.labels)*pollClasses)
	for i, l := range p.labels {
		right := float32(0.4)
		if (i*5+k*7)%10 < 7 {
			right = 0.8
		}
		for c := range pollClasses {
			said[i*pollClasses+c] = (1 - right) / (pollClasses - 1)
		}
		wrong := (int(l) + k) % pollClasses
		if right < 0.5 {
			said[i*pollClasses+wrong] += 0.3
			right = 0.1
		}
		said[i*pollClasses+int(l)] = right
		sum := float32(0)
		for _, v := range said[i*pollClasses : (i+1)*pollClasses] {
			sum += v
		}
		for c := range pollClasses {
			said[i*pollClasses+c] /= sum
		}
	}
	if edit != nil {
		edit(k, said)
	}
	p.outputs = append(p.outputs, said)
	p.blobs = append(p.blobs, p.store.put(rawOutputs(p.t, said)))
	p.predict(k, p.blobs[k-1])
}

// predict grants member k to a slot and records its outputs; a member without weights is trained first.
func (p *polls) predict(k int, outputs domain.Digest) {
	p.t.Helper()
	do := func(c run.Command) { p.t.Helper(); p.must(p.do(event.KindRun, "r-1", c)) }
	if p.state("r-1").LeaseOf("a/0") == nil { // the planner may have been faster
		do(run.GrantLease{Slot: "a/0", Unit: run.UnitMember, Member: k})
	}
	l := p.state("r-1").LeaseOf("a/0")
	if l.Member != k {
		p.t.Fatalf("a/0 holds member %d, not %d", l.Member, k)
	}
	if p.state("r-1").Member(k).Weights == "" {
		do(run.RecordMember{Slot: "a/0", Epoch: l.Epoch, Weights: digest("weights", k), Layout: digest("layout"), Params: 9, Loss: 0.1})
	}
	do(run.RecordOutputs{Slot: "a/0", Epoch: l.Epoch, Outputs: &run.MemberOutputs{Blob: outputs, Rows: len(p.labels), Classes: pollClasses, Accuracy: 0.5, Loss: 1}})
}

// rawOutputs writes an outputs file without the checks of vote.WriteOutputs: agents are not trusted.
func rawOutputs(t testing.TB, p []float32) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := safetensors.NewWriter(&b, []safetensors.Tensor{{Name: "probabilities", DType: safetensors.F32, Shape: []int64{int64(len(p) / pollClasses), pollClasses}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range p {
		bits := math.Float32bits(v)
		if _, err := w.Write([]byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// wait lets the hub tick for so long.
func (p *polls) wait(d time.Duration) {
	for end := p.now.Add(d); p.now.Before(end); {
		p.now = p.now.Add(time.Second)
		p.step(Tick{})
	}
}

func (p *polls) part(id domain.Digest) domain.Digest {
	p.t.Helper()
	r, err := blob.Open(context.Background(), id, p.store.Get)
	p.must(err)
	return r.Manifest().Parts[0]
}

func TestVoteIsCountedFromTheStore(t *testing.T) {
	p := newPolls(t, 3, nil)
	s := p.state("r-1")
	if s.Phase != run.PhaseCompleted || s.Ensemble.Vote == nil {
		t.Fatalf("the run is %s: %s", s.Phase, p.tail(5))
	}
	want, err := vote.Compute(vote.Input{Classes: pollClasses, Labels: p.labels, Members: p.outputs}, vote.Mean)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, s.Ensemble.Vote.Result); d != "" {
		t.Errorf("the recorded vote is another (-want +got):\n%s", d)
	}
	if want.Vote.Accuracy <= want.Mean.Accuracy {
		t.Errorf("this test votes over nothing: %+v", want)
	}
	if p.counts != 1 {
		t.Errorf("the vote was counted %d times", p.counts)
	}
}

func TestLostOutputsAreAskedForAndMadeAgain(t *testing.T) {
	t.Run("given again in time", func(t *testing.T) {
		p := newLate(t)
		if got := p.core.mem.wantedFrom("a"); len(got) != 1 || got[0] != p.blobs[0] {
			t.Fatalf("wanted from a: %v", got)
		}
		p.store.put(rawOutputs(t, p.outputs[0]))
		p.wait(p.core.cfg.Timing.Lease / 2)
		if s := p.state("r-1"); s.Phase != run.PhaseCompleted || len(s.Ensemble.Vote.Members) != 2 {
			t.Fatalf("the run is %s: %s", s.Phase, p.tail(5))
		}
		if got := p.core.mem.wantedFrom("a"); len(got) != 0 {
			t.Errorf("still wanted: %v", got)
		}
	})
	t.Run("made again from the weights", func(t *testing.T) {
		p := newLate(t)
		p.wait(p.core.cfg.Timing.Lease + 20*time.Second)
		s := p.state("r-1")
		if m := s.Member(1); s.Phase != run.PhaseTraining || m.Status != run.MemberWaiting || m.Weights == "" {
			t.Fatalf("the run is %s, member 1 %s: %s", s.Phase, m.Status, p.tail(5))
		}
		p.predict(1, p.store.put(rawOutputs(t, p.outputs[0])))
		if s := p.state("r-1"); s.Phase != run.PhaseCompleted || len(s.Ensemble.Vote.Members) != 2 {
			t.Fatalf("the run is %s: %s", s.Phase, p.tail(5))
		}
	})
	t.Run("its maker has them no more", func(t *testing.T) {
		p := newLate(t)
		b := newBatch(p.core, p.now, 1)
		b.noteMissing("a", []domain.Digest{p.blobs[0]})
		p.wait(time.Second)
		if m := p.state("r-1").Member(1); m.Status != run.MemberWaiting {
			t.Fatalf("member 1 is %s: %s", m.Status, p.tail(5))
		}
	})
}

// newLate is a world in which member 1's outputs are damaged before the vote is counted first.
func newLate(t *testing.T) *polls {
	t.Helper()
	p := newPolls(t, 2, nil, func(p *polls) { p.hold = true })
	p.store.Corrupt(p.part(p.blobs[0]), func(b []byte) []byte { b[len(b)-2] ^= 1; return b })
	p.release()
	if s := p.state("r-1"); s.Phase != run.PhaseVoting || p.counts != 1 {
		t.Fatalf("the run is %s after %d counts: %s", s.Phase, p.counts, p.tail(5))
	}
	return p
}

func TestOutputsThatAreNoneHaveNoVote(t *testing.T) {
	for name, edit := range map[string]func([]float32){
		"not a number":   func(p []float32) { p[7] = float32(math.NaN()) },
		"negative":       func(p []float32) { p[7] = -0.1 },
		"sum is not one": func(p []float32) { p[0], p[1], p[2] = 0.5, 0.1, 0.1 },
		"infinite":       func(p []float32) { p[7] = float32(math.Inf(1)) },
		"all zero":       func(p []float32) { clear(p) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPolls(t, 3, func(k int, said []float32) {
				if k == 2 {
					edit(said)
				}
			})
			s := p.state("r-1")
			if s.Phase != run.PhaseCompleted || len(s.Ensemble.Vote.Members) != 2 || s.Member(2).Unvoted == "" || s.Member(2).Status != run.MemberIn {
				t.Fatalf("the run is %s, member 2 %+v: %s", s.Phase, s.Member(2), p.tail(5))
			}
			if !strings.Contains(s.Member(2).Unvoted, "row ") {
				t.Errorf("the reason is %q", s.Member(2).Unvoted)
			}
		})
	}
}

func TestTroubleOfTheStoreIsTriedAgain(t *testing.T) {
	p := newPolls(t, 2, nil, func(p *polls) { p.trouble = domain.Unavailable("read", "disk full", "", nil) })
	p.wait(30 * time.Second)
	s := p.state("r-1")
	if s.Phase != run.PhaseVoting || s.Paused != "" || p.counts < 2 || p.counts > 30 {
		t.Fatalf("the run is %s (%s) after %d counts", s.Phase, s.Paused, p.counts)
	}
	p.trouble = nil
	p.wait(time.Minute)
	if s := p.state("r-1"); s.Phase != run.PhaseCompleted {
		t.Fatalf("the run is %s: %s", s.Phase, p.tail(5))
	}
}

// TestLabelsThatAreGonePause: the data set is the hub's own, so that nobody can be asked for it.
func TestLabelsThatAreGonePause(t *testing.T) {
	p := newPolls(t, 2, nil, func(p *polls) { p.hold = true })
	data := p.state("r-1").Data.Blob
	lost := p.store.get(data)
	p.must(p.store.Delete(context.Background(), p.part(data)))
	p.release()
	if s := p.state("r-1"); s.Phase != run.PhaseVoting || !strings.Contains(s.Paused, "labels") {
		t.Fatalf("the run is %s (%q)", s.Phase, s.Paused)
	}
	p.store.put(lost) // from a backup
	p.wait(2 * time.Minute)
	if s := p.state("r-1"); s.Phase != run.PhaseCompleted {
		t.Fatalf("the run is %s: %s", s.Phase, p.tail(5))
	}
}

// TestLateVotesChangeNothing: a result for other members, or after the word has been spoken.
func TestLateVotesChangeNothing(t *testing.T) {
	p := newPolls(t, 2, nil)
	events := len(p.events)
	p.step(Counted{Job: VoteJob{Run: "r-1", Ballot: ballot.Of(p.state("r-1"))}, Err: errors.New("disk full")}, Counted{Job: VoteJob{Run: "r-9"}})
	if len(p.events) != events {
		t.Errorf("a late result is recorded: %s", p.tail(3))
	}
}

// TestVoteAfterRestart: a hub that is killed before the result counts the vote again.
func TestVoteAfterRestart(t *testing.T) {
	p := newPolls(t, 2, nil, func(p *polls) { p.hold = true })
	p.hold = false
	p.open()
	p.wait(time.Second)
	if s := p.state("r-1"); s.Phase != run.PhaseCompleted || p.counts != 1 {
		t.Fatalf("the run is %s after %d counts: %s", s.Phase, p.counts, p.tail(5))
	}
}
