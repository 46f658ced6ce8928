package sim

// mark is a rare situation that the seeds together must reach: a test that never meets it proves nothing about it.
type mark int

// The marks.
const (
	markSteal mark = iota
	markRequeue
	markFenced
	markCut
	markHeldRestart
	markAmbiguous
	markCameBack
	markDeadlineClose
	markExtended
	markDrainContribution
	markQuarantine
	markRevokedContribution
	markMergeInterrupted
	markDuplicateSync
	markLateReply
	markSentAgain
	markGone
	markNorm
	markGatePause
	markTaskFailed
	markVoted
	markMemberResumed
	markMemberDropped
	markFrozenStart
	markCutPrefix
	markCopied
	markCopyWon
	markCopyLost
	markCopyInherits
	markAdopted
	markAdoptedBefore
	markAdoptedPrefix
	markLateCounted
	markCollected
	markSecondHub
	markGrown
	markFedBack
	markLeftAdopted
	markClockJump
	markCandid
	markCount
)

// String names the mark.
func (m mark) String() string {
	return [markCount]string{
		"a steal", "chunks requeued by an expired lease", "an offer refused as fenced", "an offer cut", "hub restarted while leases were held",
		"an append that failed was found stored", "the holder of an expired lease came back", "a round closed at its deadline with chunks missing",
		"a deadline extended", "a draining machine's contribution accepted", "a machine quarantined", "an accepted contribution revoked",
		"a merge interrupted by a crash of the hub", "a repeated sync answered", "a late reply ignored",
		"a lost delta sent again", "a delta asked for again is gone", "a delta refused by the norm gate", "a run paused by its norm gate",
		"a trainer's failure recorded", "members have voted", "a member gone on from another machine's checkpoint", "a member dropped", "the hub begins from a snapshot",
		"an overlapping contribution cut to its prefix", "a speculative copy begun", "a speculative copy counted first", "a speculative copy lost to the other one",
		"a copy left alone when the other holder lost its lease", "a late delta adopted", "a late delta of the previous round's base adopted",
		"a late delta cut to its prefix", "a late delta counted",
		"orphans collected", "a second hub refused",
		"a base made from the one before and an increment", "what a delta lost given back to the next one",
		"work that a killed process had left adopted", "the hub started with its clock set forward or back", "a machine told a secret that the hub must not keep",
	}[m]
}

// marks counts how often each situation was met in one world.
type marks [markCount]int
