package replay

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/ballot"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
	"tensorturn/domain/vote"
)

const voters = 3

// newPoll is a world in which members and a single model were trained and the vote was counted. lie changes the vote
// before it is recorded.
func newPoll(t testing.TB, rule vote.Rule, lie func(*run.Voted)) *world {
	w := &world{t: t, blobs: store{}}
	var csv, packed bytes.Buffer
	csv.WriteString("x,label\n")
	for i := range 300 {
		fmt.Fprintf(&csv, "%d,%c\n", i*7%31, 'a'+i%3)
	}
	table, err := dataset.ParseCSV(&csv, dataset.CSVOptions{})
	w.must(err)
	facts, err := dataset.Pack(table, 0.6, 1, &packed)
	w.must(err)
	data := facts.Run(w.store(packed.Bytes()))
	spec, err := run.Resolve(run.Spec{Name: "poll", Mode: run.ModeEnsemble, Epochs: 1, Batch: 10, Ensemble: &run.Ensemble{Members: voters, Vote: rule, Single: true}}, data)
	w.must(err)
	w.do(run.Submit{Spec: spec, Data: data})
	for k := 1; k <= voters+1; k++ {
		w.do(run.GrantLease{Slot: slots[0], Unit: run.UnitMember, Member: k})
		epoch := w.state.LeaseOf(slots[0]).Epoch
		w.do(run.RecordMember{Slot: slots[0], Epoch: epoch, Weights: w.store(w.model(float64(k))), Layout: domain.Digest(strings.Repeat("1", 64)), Params: params, Loss: 1},
			run.RecordOutputs{Slot: slots[0], Epoch: epoch, Outputs: &run.MemberOutputs{Blob: w.store(w.outputs(k, data.Heldout)), Rows: data.Heldout, Classes: 3, Accuracy: 0.5, Loss: 1}})
	}
	v, err := ballot.Of(w.state).Count(context.Background(), w.blobs.get, w.blobs.get)
	w.must(err)
	if lie != nil {
		lie(&v)
	}
	w.do(run.RecordVote{Vote: v})
	if w.state.Phase != run.PhaseCompleted {
		t.Fatalf("the run is %s", w.state.Phase)
	}
	return w
}

// outputs is what member k says: right in its own way, and the better the lower k.
func (w *world) outputs(k, rows int) []byte {
	o := vote.Outputs{Classes: 3, Probabilities: make([]float32, 3*rows)}
	for i := range rows {
		sum := 0.0
		for c := range 3 {
			p := 1.2 + math.Sin(float64(i*c+k*17)*float64(k))
			o.Probabilities[3*i+c], sum = float32(p), sum+p
		}
		for c := range 3 {
			o.Probabilities[3*i+c] /= float32(sum)
		}
	}
	var b bytes.Buffer
	w.must(vote.WriteOutputs(&b, o))
	return b.Bytes()
}

func TestVoteIsRecomputed(t *testing.T) {
	for _, rule := range vote.Rules() {
		t.Run(string(rule), func(t *testing.T) {
			w := newPoll(t, rule, nil)
			r, err := w.verify(allChecks)
			w.must(err)
			if v := r.Vote; v == nil || !v.Recomputed || v.Members != voters || v.Temperature != w.state.Ensemble.Vote.Result.Temperature || r.Verdict != "bit-exact" {
				t.Errorf("%+v", r)
			}
		})
	}
}

// One bit of a figure is found by counting again, and by nothing else.
func TestVotesThatLieAreFound(t *testing.T) {
	for name, lie := range map[string]func(*run.Voted){
		"a weight":      func(v *run.Voted) { v.Result.Weights[1] = math.Nextafter(v.Result.Weights[1], 1) },
		"temperature":   func(v *run.Voted) { v.Result.Temperature = math.Nextafter(v.Result.Temperature, 9) },
		"accuracy":      func(v *run.Voted) { v.Result.Vote.Accuracy += 0.01 },
		"disagreement":  func(v *run.Voted) { v.Result.Disagreement = 0.5 },
		"the single":    func(v *run.Voted) { v.Result.Single.NLL = 9 },
		"no single":     func(v *run.Voted) { v.Single, v.Result.Single = nil, nil },
		"rule":          func(v *run.Voted) { v.Result.Rule = vote.Majority },
		"best":          func(v *run.Voted) { v.Result.Best = (v.Result.Best + 1) % voters },
		"a pair":        func(v *run.Voted) { v.Result.Pairs[0]++ },
		"member figure": func(v *run.Voted) { v.Result.Members[2].ECE = 0.123 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newPoll(t, vote.Mean, lie)
			if _, err := w.verify(allChecks); domain.KindOf(err) != domain.KindIntegrity {
				t.Errorf("the lie is believed: %v", err)
			}
			blind := allChecks
			blind.bits = false
			if r, err := w.verify(blind); err != nil || !r.Vote.Recomputed {
				t.Errorf("found without counting: %v", err)
			}
		})
	}
}

// TestVoteOverOthersIsFound: a log whose facts were decided by somebody else's rules.
func TestVoteOverOthersIsFound(t *testing.T) {
	for name, forge := range map[string]func(w *world, v run.Voted) run.Voted{
		"a member left out": func(_ *world, v run.Voted) run.Voted {
			v.Members = v.Members[:2]
			v.Result.Weights, v.Result.Members = v.Result.Weights[:2], v.Result.Members[:2]
			return v
		},
		"other outputs": func(_ *world, v run.Voted) run.Voted {
			v.Members[0].Outputs = v.Members[1].Outputs
			return v
		},
		"another rule than asked": func(_ *world, v run.Voted) run.Voted {
			v.Result.Asked = vote.Greedy
			return v
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPoll(t, vote.Mean, nil)
			n := len(w.records) - 2 // the vote and the completion
			v := *w.facts[n].(*run.Voted)
			v.Members = append([]run.VoteInput(nil), v.Members...)
			w.records, w.facts = w.records[:n], w.facts[:n]
			f := forge(w, v)
			w.state = nil
			l, err := w.replay(allChecks)
			w.must(err)
			w.state = l.State()
			w.write(&f)
			if _, err := w.replay(allChecks); domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), "vote") {
				t.Errorf("the forged vote is believed: %v", err)
			}
		})
	}
}

// TestMembersAreTraced: who trained what, and what it weighs.
func TestMembersAreTraced(t *testing.T) {
	w := newPoll(t, vote.LogOdds, nil)
	l, err := w.replay(allChecks)
	w.must(err)
	list := l.Members()
	if len(list) != voters+1 || !list[voters].Single || list[voters].Weight != nil {
		t.Fatalf("%+v", list)
	}
	sum := 0.0
	for i, m := range list {
		if len(m.Parts) != 1 || m.Parts[0].Slot != slots[0] || m.Parts[0].Samples != run.TotalSamples(w.state.MemberSpec(i+1), w.state.Data) || m.Weights == "" {
			t.Errorf("member %d: %+v", m.Member, m)
		}
		if m.Weight != nil {
			sum += *m.Weight
		}
	}
	if math.Abs(sum-1) > 1e-12 {
		t.Errorf("the votes weigh %v together", sum)
	}
}

func TestDamageToAnEnsembleIsNamed(t *testing.T) {
	member := func(w *world, k int) *run.Member { return w.state.Member(k) }
	for name, damage := range map[string]func(*world) domain.Digest{
		"outputs part":     func(w *world) domain.Digest { return w.flip(w.part(member(w, 2).Outputs.Blob)) },
		"outputs manifest": func(w *world) domain.Digest { return w.flip(member(w, 2).Outputs.Blob) },
		"outputs lost":     func(w *world) domain.Digest { d := member(w, 1).Outputs.Blob; w.drop(d); return d },
		"single's outputs": func(w *world) domain.Digest { return w.flip(w.part(member(w, voters+1).Outputs.Blob)) },
		"member's weights": func(w *world) domain.Digest { return w.flip(w.part(member(w, 3).Weights)) },
		"weights lost":     func(w *world) domain.Digest { d := member(w, 3).Weights; w.drop(d); return d },
		"data set":         func(w *world) domain.Digest { return w.flip(w.part(w.state.Data.Blob)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newPoll(t, vote.Mean, nil)
			bad := damage(w)
			if _, err := w.verify(allChecks); domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), string(bad)) {
				t.Errorf("%s is not named: %v", bad, err)
			}
		})
	}
}
