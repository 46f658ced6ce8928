package run

import "tensorturn/domain/event"

// The names of a run's facts. They stand in the log for ever; a new meaning is a new name.
const (
	NameSubmitted             = "run.submitted"
	NamePaused                = "run.paused"
	NameResumed               = "run.resumed"
	NameCancelled             = "run.cancelled"
	NameFailed                = "run.failed"
	NameCompleted             = "run.completed"
	NameInitialised           = "run.initialised"
	NameLeaseGranted          = "lease.granted"
	NameLeaseReleased         = "lease.released"
	NameLeaseExpired          = "lease.expired"
	NameTaskFailed            = "task.failed"
	NameRoundOpened           = "round.opened"
	NameRoundExtended         = "round.extended"
	NameRoundClosed           = "round.closed"
	NameRoundMerged           = "round.merged"
	NameShardAssigned         = "shard.assigned"
	NameShardReturned         = "shard.returned"
	NameChunksStolen          = "chunks.stolen"
	NameChunksClaimed         = "chunks.claimed"
	NameChunkTrained          = "chunk.trained"
	NameContributionRequested = "contribution.requested"
	NameContributionAccepted  = "contribution.accepted"
	NameContributionRefused   = "contribution.refused"
	NameContributionCut       = "contribution.cut"
	NameContributionRevoked   = "contribution.revoked"
	NameEvaluated             = "model.evaluated"
	NameEvaluationFailed      = "evaluation.failed"
)

// Register adds the facts of a run to r.
func Register(r *event.Registry) {
	r.Add(NameSubmitted, 1, func() event.Data { return new(Submitted) })
	r.Add(NamePaused, 1, func() event.Data { return new(Paused) })
	r.Add(NameResumed, 1, func() event.Data { return new(Resumed) })
	r.Add(NameCancelled, 1, func() event.Data { return new(Cancelled) })
	r.Add(NameFailed, 1, func() event.Data { return new(Failed) })
	r.Add(NameCompleted, 1, func() event.Data { return new(Completed) })
	r.Add(NameInitialised, 1, func() event.Data { return new(Initialised) })
	r.Add(NameLeaseGranted, 1, func() event.Data { return new(LeaseGranted) })
	r.Add(NameLeaseReleased, 1, func() event.Data { return new(LeaseReleased) })
	r.Add(NameLeaseExpired, 1, func() event.Data { return new(LeaseExpired) })
	r.Add(NameTaskFailed, 1, func() event.Data { return new(TaskFailed) })
	r.Add(NameRoundOpened, 1, func() event.Data { return new(RoundOpened) })
	r.Add(NameRoundExtended, 1, func() event.Data { return new(RoundExtended) })
	r.Add(NameRoundClosed, 1, func() event.Data { return new(RoundClosed) })
	r.Add(NameRoundMerged, 1, func() event.Data { return new(RoundMerged) })
	r.Add(NameShardAssigned, 1, func() event.Data { return new(ShardAssigned) })
	r.Add(NameShardReturned, 1, func() event.Data { return new(ShardReturned) })
	r.Add(NameChunksStolen, 1, func() event.Data { return new(ChunksStolen) })
	r.Add(NameChunksClaimed, 1, func() event.Data { return new(ChunksClaimed) })
	r.Add(NameChunkTrained, 1, func() event.Data { return new(ChunkTrained) })
	r.Add(NameContributionRequested, 1, func() event.Data { return new(ContributionRequested) })
	r.Add(NameContributionAccepted, 1, func() event.Data { return new(ContributionAccepted) })
	r.Add(NameContributionRefused, 1, func() event.Data { return new(ContributionRefused) })
	r.Add(NameContributionCut, 1, func() event.Data { return new(ContributionCut) })
	r.Add(NameContributionRevoked, 1, func() event.Data { return new(ContributionRevoked) })
	r.Add(NameEvaluated, 1, func() event.Data { return new(Evaluated) })
	r.Add(NameEvaluationFailed, 1, func() event.Data { return new(EvaluationFailed) })
	registerMembers(r)
	r.Add(NameChunksCopied, 1, func() event.Data { return new(ChunksCopied) })
	r.Add(NameDeltaAdopted, 1, func() event.Data { return new(DeltaAdopted) })
}

// EventName is the registered name. The methods stand on pointers, so that a fact has one Go type everywhere: *T.
func (*Submitted) EventName() string             { return NameSubmitted }
func (*Paused) EventName() string                { return NamePaused }
func (*Resumed) EventName() string               { return NameResumed }
func (*Cancelled) EventName() string             { return NameCancelled }
func (*Failed) EventName() string                { return NameFailed }
func (*Completed) EventName() string             { return NameCompleted }
func (*Initialised) EventName() string           { return NameInitialised }
func (*LeaseGranted) EventName() string          { return NameLeaseGranted }
func (*LeaseReleased) EventName() string         { return NameLeaseReleased }
func (*LeaseExpired) EventName() string          { return NameLeaseExpired }
func (*TaskFailed) EventName() string            { return NameTaskFailed }
func (*RoundOpened) EventName() string           { return NameRoundOpened }
func (*RoundExtended) EventName() string         { return NameRoundExtended }
func (*RoundClosed) EventName() string           { return NameRoundClosed }
func (*RoundMerged) EventName() string           { return NameRoundMerged }
func (*ShardAssigned) EventName() string         { return NameShardAssigned }
func (*ShardReturned) EventName() string         { return NameShardReturned }
func (*ChunksStolen) EventName() string          { return NameChunksStolen }
func (*ChunksClaimed) EventName() string         { return NameChunksClaimed }
func (*ChunkTrained) EventName() string          { return NameChunkTrained }
func (*ContributionRequested) EventName() string { return NameContributionRequested }
func (*ContributionAccepted) EventName() string  { return NameContributionAccepted }
func (*ContributionRefused) EventName() string   { return NameContributionRefused }
func (*ContributionCut) EventName() string       { return NameContributionCut }
func (*ContributionRevoked) EventName() string   { return NameContributionRevoked }
func (*Evaluated) EventName() string             { return NameEvaluated }
func (*EvaluationFailed) EventName() string      { return NameEvaluationFailed }
