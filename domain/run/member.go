package run

import (
	"math"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/permute"
)

// UnitMember trains one member of an ensemble on the whole data set.
const UnitMember Unit = "member"

// PhaseVoting is an ensemble whose members are all in or dropped: the vote is being counted.
const PhaseVoting Phase = "voting"

// Labels of the pseudo-random streams of an ensemble. They are part of every recorded run.
const (
	seedLabel      = 0x6d656d6265722e73 // "member.s": seeds
	bootstrapLabel = 0x6d656d6265722e62 // "member.b": samples drawn
	featuresLabel  = 0x6d656d6265722e66 // "member.f": columns seen
)

// MemberSpec is the concrete spec of one member: its seed and settings instead of the run's. It follows from the spec
// and the number alone. Number Members+1 is the single model that is compared (Ensemble.Single): the run's own settings
// for as many epochs as all members together.
//
// Seeds have 31 bits and are not 0, since scripts give them to libraries that take no more.
func MemberSpec(s Spec, number int) Spec {
	e := s.Ensemble
	domain.Assert(e != nil && number >= 1 && number <= e.Members+1, "a member has a number from 1 to members, and the single one more")
	if number > e.Members {
		s.Epochs *= e.Members
		return s
	}
	e.Recipe.Grid.apply(&s, number-1)
	if *e.Recipe.Seed {
		s.Seed = permute.NewSource(s.Seed, seedLabel, uint64(number)).Uint64()>>33 | 1
	}
	return s
}

// Bootstrapped gives, for each of the n samples of the training part, the row that the member trains in its place: n draws with
// replacement. nil: every sample stands for itself.
func Bootstrapped(s Spec, number, n int) []int {
	e := s.Ensemble
	if e == nil || number > e.Members || !e.Recipe.Bootstrap {
		return nil
	}
	src := permute.NewSource(s.Seed, bootstrapLabel, uint64(number))
	rows := make([]int, n)
	for i := range rows {
		rows[i] = int(src.Below(uint64(n)))
	}
	return rows
}

// FeaturesOf lists the columns that the member sees, ascending; nil: all. s is the run's spec, not the member's.
func FeaturesOf(s Spec, number, features int) []int {
	e := s.Ensemble
	if e == nil || number > e.Members || e.Recipe.Features >= 1 {
		return nil
	}
	keep := min(max(int(math.Round(e.Recipe.Features*float64(features))), 1), features)
	all := make([]int, features)
	for i := range all {
		all[i] = i
	}
	permute.NewSource(s.Seed, featuresLabel, uint64(number)).Shuffle(all)
	kept := all[:keep]
	slices.Sort(kept)
	return kept
}

// MemberSamples is the number of samples in the first chunks of a member; spec is the member's own.
func MemberSamples(spec Spec, d Dataset, chunks int) int64 {
	if chunks >= TotalChunks(spec, d) {
		return TotalSamples(spec, d)
	}
	return Position(spec, d, domain.ChunkID(chunks))
}

// MemberSteps is the number of optimizer steps in the first chunks of a member; spec is the member's own.
func MemberSteps(spec Spec, d Dataset, chunks int) int64 {
	per := ChunksPerEpoch(spec, d)
	full := int64(ChunkSteps(spec, d, 0))
	epoch := full*int64(per-1) + int64(ChunkSteps(spec, d, domain.ChunkID(per-1)))
	return int64(chunks/per)*epoch + int64(chunks%per)*full
}

// MemberStatus is where a member stands.
type MemberStatus string

// The states of a member, in the order of its life.
const (
	MemberWaiting  MemberStatus = "waiting"  // nobody trains it
	MemberTraining MemberStatus = "training" // a slot holds its lease
	MemberIn       MemberStatus = "in"       // weights are in the store, and its outputs where it can give them
	MemberGone     MemberStatus = "dropped"  // it was dropped: it leaves the vote
)

// Ensembling is the state of an ensemble's members; nil in fused runs.
type Ensembling struct {
	Members []Member // 1 to K in order, then the single model if it is compared
	Began   int64    // the hub's clock at the first lease in unix microseconds; 0 before. The deadline counts from it
	Vote    *Voted   // nil before the vote
}

// Member is one model of an ensemble.
type Member struct {
	Number int
	Single bool // the model that is compared, not a voter
	Status MemberStatus
	Slot   domain.SlotID // of its lease, empty when nobody holds it

	// What its lineage of checkpoints has seen, each sample counted once however often it was requeued.
	Chunks     int
	Samples    int64
	Segments   []Segment
	Checkpoint domain.Digest // weights, optimizer state and position; empty before the first
	Saved      int           // checkpoints recorded

	Weights domain.Digest // empty until it is trained
	Layout  domain.Digest
	Params  int64
	Loss    float64 // training loss at the end
	Outputs *MemberOutputs
	By      domain.SlotID // who made the outputs
	Lost    int           // times the hub could not vote over its outputs
	Unvoted string        // why it gives no outputs, empty when it does

	Fails    int           // task errors in a row
	FailedOn domain.SlotID // where it failed last
	Requeued int           // times it was requeued
	Reason   string        // why it was dropped
}

// Segment is a stretch of a member's training under one lease.
type Segment struct {
	Slot  domain.SlotID
	Epoch domain.Epoch
	From  int // chunks before it
	To    int // chunks after it
}

// MemberOutputs are a member's class probabilities on the held-out rows, and what its own trainer measured there.
type MemberOutputs struct {
	Blob     domain.Digest `msgpack:"blob"`     // safetensors, one float32 tensor "probabilities" [rows, classes]
	Rows     int           `msgpack:"rows"`     // all held-out rows, in their order
	Classes  int           `msgpack:"classes"`  //
	Accuracy float64       `msgpack:"accuracy"` // fraction
	Loss     float64       `msgpack:"loss"`     // mean cross-entropy, nats
}

// Settled reports whether nothing more comes from the member.
func (m *Member) Settled() bool { return m.Status == MemberIn || m.Status == MemberGone }

// Member is the member with the number, nil when there is none.
func (s *State) Member(number int) *Member {
	if s.Ensemble == nil || number < 1 || number > len(s.Ensemble.Members) {
		return nil
	}
	return &s.Ensemble.Members[number-1]
}

// MemberSpec is the concrete spec of the state's member.
func (s *State) MemberSpec(number int) Spec { return MemberSpec(s.Spec, number) }

// MemberLeft is the number of samples the member has still to train beyond its newest checkpoint.
func (s *State) MemberLeft(m *Member) int64 {
	if m.Weights != "" {
		return 0
	}
	return TotalSamples(s.MemberSpec(m.Number), s.Data) - m.Samples
}

// MembersIn counts the members (not the single model) that are in, and those that still may come.
func (s *State) MembersIn() (in, open int) {
	for i := range s.Ensemble.Members {
		switch m := &s.Ensemble.Members[i]; {
		case m.Single:
		case m.Status == MemberIn:
			in++
		case m.Status != MemberGone:
			open++
		}
	}
	return in, open
}

// Voters lists the members whose outputs are voted over, by number.
func (s *State) Voters() []*Member {
	var out []*Member
	if s.Ensemble == nil {
		return nil
	}
	for i := range s.Ensemble.Members {
		if m := &s.Ensemble.Members[i]; !m.Single && m.Status == MemberIn && m.Outputs != nil {
			out = append(out, m)
		}
	}
	return out
}

// NeedsVote gives the voters, by number, and whether the run waits for RecordVote.
func (s *State) NeedsVote() ([]*Member, bool) {
	if s.Phase != PhaseVoting {
		return nil, false
	}
	return s.Voters(), true
}

// allSettled reports whether nothing more comes from any member, taking except as settled.
func (s *State) allSettled(except int) bool {
	for i := range s.Ensemble.Members {
		if m := &s.Ensemble.Members[i]; m.Number != except && !m.Settled() {
			return false
		}
	}
	return true
}
