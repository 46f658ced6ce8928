package run

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/vote"
)

// ModeEnsemble trains several diverse models on the whole data set, which vote.
const ModeEnsemble Mode = "ensemble"

// OnLoss says what becomes of a member whose machine is lost.
type OnLoss string

// What becomes of a lost member.
const (
	LossRequeue OnLoss = "requeue" // another machine goes on at its last checkpoint
	LossDrop    OnLoss = "drop"    // it leaves the vote
)

// What an ensemble's zero fields become. Each is written once, with its reason.
const (
	DefaultMembers           = 5   // where most of the gain is reached (Lakshminarayanan et al. 2017)
	DefaultFeatureFraction   = 1.0 // random starts and orders beat fewer columns where data is scarce
	DefaultOnLoss            = LossRequeue
	DefaultVote              = vote.Mean // never worse than its mean member in log loss; nothing to fit
	DefaultCheckpointSeconds = 300.0     // a lost machine costs five minutes at most, and uploads stay rare
)

// Limits of an ensemble.
const (
	MaxMembers          = 256 // a vote holds every member's probabilities in memory; the facts of one drop fit one batch
	MaxGridValues       = 64  // values of one grid setting
	MinCheckpointPeriod = 0.1 // seconds; below it uploads decide the speed
	// CheckpointPause is the part of checkpoint_seconds that must have passed before the end of an epoch is a
	// checkpoint: epochs of a small table end many times a second, and would send more than they train.
	CheckpointPause = 1.0 / 30
)

// Ensemble is what the owner of an ensemble run asks for. Members are numbered from 1.
type Ensemble struct {
	Members  int       `yaml:"members" json:"members" msgpack:"members"` // K
	Recipe   Recipe    `yaml:"recipe" json:"recipe" msgpack:"recipe"`    // how members differ
	OnLoss   OnLoss    `yaml:"on_loss" json:"on_loss" msgpack:"on_loss"`
	Min      int       `yaml:"min_members" json:"min_members" msgpack:"min_members"`                              // fewer: the run fails; default: more than half
	Deadline float64   `yaml:"deadline_seconds" json:"deadline_seconds" msgpack:"deadline_seconds"`               // from the first lease; what is missing then leaves the vote; 0: none
	Vote     vote.Rule `yaml:"vote" json:"vote" msgpack:"vote"`                                                   //
	Every    float64   `yaml:"checkpoint_seconds" json:"checkpoint_seconds" msgpack:"checkpoint_seconds"`         // between checkpoints within an epoch
	Single   bool      `yaml:"compare_single" json:"compare_single,omitempty" msgpack:"compare_single,omitempty"` // also train one model for members × epochs
}

// Recipe makes the members differ. At least one part of it must.
type Recipe struct {
	Seed      *bool   `yaml:"seed" json:"seed" msgpack:"seed"`                                    // each member has its own start and order; default true
	Bootstrap bool    `yaml:"bootstrap" json:"bootstrap,omitempty" msgpack:"bootstrap,omitempty"` // each draws its N samples with replacement
	Features  float64 `yaml:"features" json:"features" msgpack:"features"`                        // fraction of the columns each sees
	Grid      Grid    `yaml:"grid" json:"grid" msgpack:"grid"`
}

// Grid gives members settings of their own: member k takes combination k, the first list changing fastest, beginning
// anew behind the last. An empty list leaves the run's setting.
type Grid struct {
	LR          []float64 `yaml:"lr" json:"lr,omitempty" msgpack:"lr,omitempty"`
	WeightDecay []float64 `yaml:"weight_decay" json:"weight_decay,omitempty" msgpack:"weight_decay,omitempty"`
	Batch       []int     `yaml:"batch" json:"batch,omitempty" msgpack:"batch,omitempty"`
	Epochs      []int     `yaml:"epochs" json:"epochs,omitempty" msgpack:"epochs,omitempty"`
	Hidden      [][]int   `yaml:"hidden" json:"hidden,omitempty" msgpack:"hidden,omitempty"`
}

// IsEnsemble reports whether the run's models vote.
func (s *Spec) IsEnsemble() bool { return s.Mode == ModeEnsemble && s.Ensemble != nil }

// Size is the number of combinations, 1 for an empty grid.
func (g *Grid) Size() int {
	n := 1
	for _, l := range []int{len(g.LR), len(g.WeightDecay), len(g.Batch), len(g.Epochs), len(g.Hidden)} {
		n = min(n*max(l, 1), MaxMembers*MaxGridValues) // beyond it no member comes
	}
	return n
}

// apply sets combination i in s.
func (g *Grid) apply(s *Spec, i int) {
	i = pick(g.LR, i, &s.Optimizer.LR)
	i = pick(g.WeightDecay, i, &s.Optimizer.WeightDecay)
	i = pick(g.Batch, i, &s.Batch)
	i = pick(g.Epochs, i, &s.Epochs)
	pick(g.Hidden, i, &s.Model.Hidden)
}

// pick takes the value of a mixed-radix digit and gives the higher digits.
func pick[T any](values []T, i int, into *T) int {
	if len(values) == 0 {
		return i
	}
	*into = values[i%len(values)]
	return i / len(values)
}

// fillEnsemble sets the zero fields of an ensemble.
func fillEnsemble(s *Spec) {
	e := Ensemble{}
	if s.Ensemble != nil {
		e = *s.Ensemble // the caller's stays as it is
	}
	or(&e.Members, DefaultMembers)
	or(&e.OnLoss, DefaultOnLoss)
	or(&e.Min, e.Members/2+1)
	or(&e.Vote, DefaultVote)
	or(&e.Every, DefaultCheckpointSeconds)
	or(&e.Recipe.Features, DefaultFeatureFraction)
	if e.Recipe.Seed == nil {
		own := true
		e.Recipe.Seed = &own
	}
	s.Ensemble = &e
}

// checkEnsemble checks an ensemble's own settings and refuses those that only fused runs have.
func checkEnsemble(s *Spec) error {
	e := s.Ensemble
	err := first(
		within("ensemble.members", e.Members, 1, MaxMembers),
		within("ensemble.min_members", e.Min, 1, max(e.Members, 1)),
		oneOf("ensemble.on_loss", e.OnLoss, LossRequeue, LossDrop),
		within("ensemble.deadline_seconds", e.Deadline, 0, MaxDeadline),
		oneOf("ensemble.vote", e.Vote, vote.Rules()...),
		within("ensemble.checkpoint_seconds", e.Every, MinCheckpointPeriod, MaxDeadline),
		above("ensemble.recipe.features", e.Recipe.Features, 1),
	)
	for _, f := range []struct {
		name string
		v    any
	}{{"round", s.Round}, {"outer", s.Outer}, {"codec", s.Codec}, {"codec_down", s.CodecDown}, {"max_chunks_per_contribution", s.MaxChunksPerContribution},
		{"evaluate_every", s.EvaluateEvery}, {"keep_every", s.KeepEvery}} {
		if err == nil && !reflect.ValueOf(f.v).IsZero() {
			err = domain.Invalid(opSpec, f.name+" is set, but members of an ensemble are never merged", "remove "+f.name+", or set mode: fused")
		}
	}
	return first(err, checkRecipe(s))
}

// checkRecipe refuses members that would be equal, and settings that the trainer could not obey.
func checkRecipe(s *Spec) error {
	r := &s.Ensemble.Recipe
	if s.Ensemble.Members > 1 && !*r.Seed && !r.Bootstrap && r.Features == 1 && r.Grid.Size() == 1 {
		return domain.Invalid(opSpec, "ensemble.recipe makes all members equal: they have one seed, all samples, all features and no grid",
			"leave ensemble.recipe.seed out, or set bootstrap, features or grid")
	}
	if s.Trainer == Process {
		for _, f := range []struct {
			name string
			set  bool
		}{{"features", r.Features != 1}, {"grid.lr", len(r.Grid.LR) > 0}, {"grid.weight_decay", len(r.Grid.WeightDecay) > 0}, {"grid.hidden", len(r.Grid.Hidden) > 0}} {
			if f.set {
				return domain.Invalid(opSpec, "ensemble.recipe."+f.name+" is set, but the trainer is a program of your own",
					"remove it; the program may choose by TENSORTURN_MEMBER")
			}
		}
	}
	for name, n := range r.Grid.lengths() {
		if n > MaxGridValues {
			return bad("ensemble.recipe.grid."+name, fmt.Sprintf("%d values long", n), fmt.Sprintf("at most %d values", MaxGridValues))
		}
	}
	for k := 1; k <= s.Ensemble.Members; k++ {
		if err := checkMember(s, k); err != nil {
			return err
		}
	}
	if s.Ensemble.Single {
		return within("epochs × ensemble.members", s.Epochs*s.Ensemble.Members, 1, MaxEpochs)
	}
	return nil
}

// lengths gives the number of values of each list, in order.
func (g *Grid) lengths() func(yield func(string, int) bool) {
	return func(yield func(string, int) bool) {
		_ = yield("lr", len(g.LR)) && yield("weight_decay", len(g.WeightDecay)) && yield("batch", len(g.Batch)) &&
			yield("epochs", len(g.Epochs)) && yield("hidden", len(g.Hidden))
	}
}

// checkMember checks what the grid gives one member.
func checkMember(s *Spec, k int) error {
	m := MemberSpec(*s, k)
	err := first(within("batch", m.Batch, 1, MaxBatch), within("epochs", m.Epochs, 1, MaxEpochs), checkChunk(&m))
	if s.Trainer != Process {
		err = first(err, checkModel(&m.Model), checkOptimizer(&m.Optimizer))
	}
	if err == nil {
		return nil
	}
	why := err.Error()
	if e := (*domain.Error)(nil); errors.As(err, &e) {
		why = e.Why
	}
	return domain.Invalid(opSpec, fmt.Sprintf("ensemble.recipe.grid, member %d: %s", k, why), domain.NextOf(err))
}

// checkNoEnsemble refuses settings of an ensemble in a fused run.
func checkNoEnsemble(s *Spec) error {
	for _, f := range []struct {
		name string
		set  bool
	}{{"ensemble", s.Ensemble != nil}, {"output", s.Output != ""}, {"predict", s.Predict != nil}} {
		if f.set {
			return domain.Invalid(opSpec, f.name+" is set, but the mode is "+string(s.Mode), "add mode: ensemble, or remove "+f.name)
		}
	}
	return nil
}

// checkOutput refuses a name that would leave the output folder.
func checkOutput(s *Spec) error {
	if s.Output == "" {
		return nil
	}
	err := checkText("output", s.Output, domain.MaxNameLength)
	if err == nil && !filepathLocal(s.Output) {
		err = bad("output", fmt.Sprintf("%q", s.Output), "the name of a file in the output folder, for example model.safetensors")
	}
	return err
}

// filepathLocal reports whether the name is a plain one, of no folder.
func filepathLocal(name string) bool {
	return name != "." && name != ".." && !strings.ContainsAny(name, `/\:`)
}

// checkMemberSizes refuses members whose position could not be counted in chunks, with the numbers.
func checkMemberSizes(s *Spec, d *Dataset) error {
	n := s.Ensemble.Members
	if s.Ensemble.Single {
		n++
	}
	for k := 1; k <= n; k++ {
		m := MemberSpec(*s, k)
		if total := chunkCount(&m, d); total > MaxChunks {
			return domain.Invalid(opSpec, fmt.Sprintf("chunk is %d: member %d would have %d chunks, at most %d are possible", s.Chunk, k, total, MaxChunks), "set a larger chunk")
		}
	}
	return nil
}
