package run

import (
	"fmt"
	"strconv"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/vote"
)

// The names of an ensemble's facts.
const (
	NameMemberCheckpointed = "member.checkpointed"
	NameMemberTrained      = "member.trained"
	NameMemberPredicted    = "member.predicted"
	NameMemberRequeued     = "member.requeued"
	NameMemberDropped      = "member.dropped"
	NameVoted              = "ensemble.voted"
)

// The facts of an ensemble's members, beside those of leases, which they share with fused runs.
type (
	// MemberCheckpointed says that the member's weights, optimizer state and position are in the store: whoever gets
	// it next goes on there.
	MemberCheckpointed struct {
		Member  int           `msgpack:"member"`
		Slot    domain.SlotID `msgpack:"slot"`
		Epoch   domain.Epoch  `msgpack:"epoch"`
		Blob    domain.Digest `msgpack:"blob"`
		From    int           `msgpack:"from"`             // chunks that the lineage held before
		Chunks  int           `msgpack:"chunks"`           // chunks it holds now
		Samples int64         `msgpack:"samples"`          // samples it has seen, by the ledger
		Loss    float64       `msgpack:"loss"`             // training loss of the newest chunk
		Bytes   int64         `msgpack:"bytes,omitempty"`  // of the checkpoint, as its slot says; 0 when it does not
		Single  bool          `msgpack:"single,omitempty"` // the model that is compared, not a voter
	}
	// MemberTrained says that the member has seen all of its data and its weights are in the store.
	MemberTrained struct {
		Member  int           `msgpack:"member"`
		Slot    domain.SlotID `msgpack:"slot"`
		Epoch   domain.Epoch  `msgpack:"epoch"`
		Weights domain.Digest `msgpack:"weights"`
		Layout  domain.Digest `msgpack:"layout"` // digest of names, shapes and dtypes in canonical order
		Params  int64         `msgpack:"params"` // float parameters
		From    int           `msgpack:"from"`   // chunks of the checkpoint it went on from
		Chunks  int           `msgpack:"chunks"` // all of them
		Samples int64         `msgpack:"samples"`
		Steps   int64         `msgpack:"steps"`
		Loss    float64       `msgpack:"loss"`
		Single  bool          `msgpack:"single,omitempty"` // the model that is compared, not a voter
	}
	// MemberPredicted gives the member's probabilities on all held-out rows, or says why there are none.
	MemberPredicted struct {
		Member  int            `msgpack:"member"`
		Slot    domain.SlotID  `msgpack:"slot"`
		Epoch   domain.Epoch   `msgpack:"epoch"`
		Outputs *MemberOutputs `msgpack:"outputs,omitempty"`
		Why     string         `msgpack:"why,omitempty"`    // it is exported, but neither voted nor deployed
		Single  bool           `msgpack:"single,omitempty"` // the model that is compared, not a voter
	}
	// MemberRequeued says that another slot may go on with the member, and where.
	MemberRequeued struct {
		Member     int           `msgpack:"member"`
		Slot       domain.SlotID `msgpack:"slot"` // that held it
		Epoch      domain.Epoch  `msgpack:"epoch"`
		Reason     string        `msgpack:"reason"`
		Kept       int           `msgpack:"kept"`                 // chunks in its newest checkpoint
		Samples    int64         `msgpack:"samples"`              // samples in it
		Checkpoint domain.Digest `msgpack:"checkpoint,omitempty"` // empty: it begins anew
		Single     bool          `msgpack:"single,omitempty"`     // the model that is compared, not a voter
	}
	// MemberDropped takes a member out of the vote.
	MemberDropped struct {
		Member  int    `msgpack:"member"`
		Reason  string `msgpack:"reason"`
		Samples int64  `msgpack:"samples"`          // taken out of the ledger
		Single  bool   `msgpack:"single,omitempty"` // the model that is compared, not a voter
	}
	// Voted is the members' common answer on held-out data. Anyone can recompute it from the named outputs.
	Voted struct {
		Members []VoteInput `msgpack:"members"`          // by number; Result's lists have this order
		Single  *VoteInput  `msgpack:"single,omitempty"` // the single model of the same compute
		Result  vote.Result `msgpack:"result"`
	}
)

// VoteInput is a member as the vote read it.
type VoteInput struct {
	Member  int           `json:"member" msgpack:"member"`
	Outputs domain.Digest `json:"outputs" msgpack:"outputs"`
}

func registerMembers(r *event.Registry) {
	r.Add(NameMemberCheckpointed, 1, func() event.Data { return new(MemberCheckpointed) })
	r.Add(NameMemberTrained, 1, func() event.Data { return new(MemberTrained) })
	r.Add(NameMemberPredicted, 1, func() event.Data { return new(MemberPredicted) })
	r.Add(NameMemberRequeued, 1, func() event.Data { return new(MemberRequeued) })
	r.Add(NameMemberDropped, 1, func() event.Data { return new(MemberDropped) })
	r.Add(NameMemberMuted, 1, func() event.Data { return new(MemberMuted) })
	r.Add(NameVoted, 1, func() event.Data { return new(Voted) })
}

func (*MemberCheckpointed) EventName() string { return NameMemberCheckpointed }
func (*MemberTrained) EventName() string      { return NameMemberTrained }
func (*MemberPredicted) EventName() string    { return NameMemberPredicted }
func (*MemberRequeued) EventName() string     { return NameMemberRequeued }
func (*MemberDropped) EventName() string      { return NameMemberDropped }
func (*Voted) EventName() string              { return NameVoted }

// modelWord names a model of an ensemble: the one that is compared has a number behind the members' and is none of them.
func modelWord(number int, single bool) string {
	if single {
		return "the single model"
	}
	return "member " + strconv.Itoa(number)
}

func (e *MemberCheckpointed) Line() string {
	return fmt.Sprintf("%s keeps %s at chunk %d, %s seen, loss %.4g, checkpoint %s", e.Slot, modelWord(e.Member, e.Single), e.Chunks, plural(int(e.Samples), "sample"), e.Loss, e.Blob.Short())
}

func (e *MemberTrained) Line() string {
	return fmt.Sprintf("%s has trained %s: %s in %s, loss %.4g, weights %s", e.Slot, modelWord(e.Member, e.Single), plural(int(e.Samples), "sample"), plural(int(e.Steps), "step"), e.Loss, e.Weights.Short())
}

func (e *MemberPredicted) Line() string {
	if e.Outputs == nil {
		return fmt.Sprintf("%s brings %s in without a vote", e.Slot, modelWord(e.Member, e.Single)) + why(e.Why)
	}
	return fmt.Sprintf("%s brings %s in: accuracy %.4f, loss %.4g on %s", e.Slot, modelWord(e.Member, e.Single), e.Outputs.Accuracy, e.Outputs.Loss, plural(e.Outputs.Rows, "row"))
}

func (e *MemberRequeued) Line() string {
	kept := "from its beginning"
	if e.Checkpoint != "" {
		kept = fmt.Sprintf("from chunk %d, %s kept", e.Kept, plural(int(e.Samples), "sample"))
	}
	return fmt.Sprintf("%s is requeued, to go on %s", modelWord(e.Member, e.Single), kept) + why(e.Reason)
}

func (e *MemberDropped) Line() string {
	return fmt.Sprintf("%s is dropped", modelWord(e.Member, e.Single)) + why(e.Reason)
}

func (e *Voted) Line() string {
	r := &e.Result
	return fmt.Sprintf("%s vote by %s: accuracy %.4f, loss %.4g after temperature %.3g; a member alone has %.4f on average", plural(len(e.Members), "member"), r.Rule,
		r.Vote.Accuracy, r.Vote.ScaledNLL, r.Temperature, r.Mean.Accuracy)
}
