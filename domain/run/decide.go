package run

import (
	"fmt"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Decide returns the facts that follow from the command, or a *domain.Error. No facts and no error means that the
// command changes nothing: it is a repetition, or there is nothing to do. s is nil before Submitted; Decide only reads
// it. The facts of one command belong into one atomic batch, in their order.
func Decide(s *State, c Command) ([]event.Data, error) {
	if c, ok := c.(Submit); ok {
		return decideSubmit(s, c)
	}
	if s == nil {
		return nil, domain.NotFound(opOf(c), "there is no such run", "list the runs")
	}
	switch c := c.(type) {
	case Pause:
		return decidePause(s, c)
	case Resume:
		return decideResume(s)
	case Cancel:
		return decideCancel(s, c)
	case GrantLease:
		return decideGrant(s, c)
	case ReleaseLease:
		return decideRelease(s, c)
	case ExpireLease:
		return decideExpire(s, c)
	case OpenRound:
		return decideOpen(s, c)
	case AssignShard:
		return decideAssign(s, c)
	case ReturnShard:
		return decideReturn(s, c)
	case Steal:
		return decideSteal(s, c)
	case Claim:
		return decideClaim(s, c)
	case RequestContribution:
		return decideRequest(s, c)
	case ExtendRound:
		return decideExtend(s, c)
	case CloseRound:
		return decideClose(s, c)
	case Initialise:
		return decideInitialise(s, c)
	case ReportTrained:
		return decideTrained(s, c)
	case OfferContribution:
		return decideOffer(s, c)
	case RevokeContribution:
		return decideRevoke(s, c)
	case RecordMerge:
		return decideMerge(s, c)
	case RecordEvaluation:
		return decideEvaluation(s, c)
	case FailTask:
		return decideFailTask(s, c)
	case RecordCheckpoint:
		return decideCheckpoint(s, c)
	case RecordMember:
		return decideMember(s, c)
	case RecordOutputs:
		return decideOutputs(s, c)
	case DropMember:
		return decideDrop(s, c)
	case MuteMember:
		return decideMute(s, c)
	case RecordVote:
		return decideVote(s, c)
	case Copy:
		return decideCopy(s, c)
	case AdoptDelta:
		return decideAdopt(s, c)
	}
	panic(fmt.Sprintf("broken promise: run.Decide knows every command, but not %T", c))
}

// opOf names the operation for errors.
func opOf(c Command) string {
	switch c := c.(type) {
	case Submit:
		return "submit run"
	case Pause:
		return "pause run"
	case Resume:
		return "resume run"
	case Cancel:
		return "cancel run"
	case GrantLease:
		return fmt.Sprintf("grant %s to %s", c.Unit, c.Slot)
	case ReleaseLease:
		return fmt.Sprintf("release lease of %s", c.Slot)
	case ExpireLease:
		return fmt.Sprintf("expire lease of %s", c.Slot)
	case OpenRound:
		return "open round"
	case AssignShard:
		return fmt.Sprintf("assign shard to %s", c.Slot)
	case ReturnShard:
		return fmt.Sprintf("return shard of %s", c.Slot)
	case Steal:
		return fmt.Sprintf("steal from %s for %s", c.From, c.To)
	case Claim:
		return fmt.Sprintf("claim for %s", c.Slot)
	case RequestContribution:
		return fmt.Sprintf("request contribution of %s", c.Slot)
	case ExtendRound:
		return fmt.Sprintf("extend round %d", c.Round)
	case CloseRound:
		return fmt.Sprintf("close round %d", c.Round)
	case Initialise:
		return fmt.Sprintf("initialise from %s", c.Slot)
	case ReportTrained:
		return fmt.Sprintf("report chunk %d of %s", c.Chunk, c.Slot)
	case OfferContribution:
		return fmt.Sprintf("offer contribution %d of %s", c.Number, c.Slot)
	case RevokeContribution:
		return fmt.Sprintf("revoke contribution %d of %s", c.Number, c.Slot)
	case RecordMerge:
		return fmt.Sprintf("record merge of round %d", c.Round)
	case RecordEvaluation:
		return fmt.Sprintf("record evaluation of %s", c.Slot)
	case FailTask:
		return fmt.Sprintf("record failure of %s", c.Slot)
	case RecordCheckpoint:
		return fmt.Sprintf("record checkpoint of %s", c.Slot)
	case RecordMember:
		return fmt.Sprintf("record the member of %s", c.Slot)
	case RecordOutputs:
		return fmt.Sprintf("record outputs of %s", c.Slot)
	case DropMember:
		return fmt.Sprintf("drop member %d", c.Member)
	case MuteMember:
		return fmt.Sprintf("mute member %d", c.Member)
	case RecordVote:
		return "record vote"
	case Copy:
		return fmt.Sprintf("copy %s of %s for %s", plural(c.Count, "chunk"), c.From, c.Slot)
	case AdoptDelta:
		return fmt.Sprintf("adopt what %s trained under lease %d", c.Slot, c.Late)
	}
	return fmt.Sprintf("%T", c)
}

// one is a decision of a single fact.
func one(d event.Data) ([]event.Data, error) { return []event.Data{d}, nil }

// conflict refuses the command because of the present state.
func conflict(c Command, format string, args ...any) error {
	return domain.Conflict(opOf(c), fmt.Sprintf(format, args...), "")
}

// invalid refuses a command that no state would allow.
func invalid(c Command, format string, args ...any) error {
	return domain.Invalid(opOf(c), fmt.Sprintf(format, args...), "")
}

// live refuses a command on a run that has ended.
func live(s *State, c Command) error {
	if s.Phase.Ended() {
		return conflict(c, "the run is %s", s.Phase)
	}
	return nil
}

// working refuses new work on a run that has ended or is paused.
func working(s *State, c Command) error {
	if err := live(s, c); err != nil {
		return err
	}
	if s.Paused != "" {
		return conflict(c, "the run is paused: %s", s.Paused)
	}
	return nil
}

// reasonOr is the reason, clipped to its limit, or another one when it is empty.
func reasonOr(reason, otherwise string) string {
	if reason == "" {
		reason = otherwise
	}
	return domain.Clip(reason, domain.MaxReasonLength)
}
