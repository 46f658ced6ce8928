// Package run is the run: its specification, chunks, rounds, leases, steals, contributions and ledger, as one
// event-sourced aggregate. Decide refuses or returns facts; Evolve applies a fact and cannot fail. It never schedules
// (domain/plan proposes, Decide disposes), never measures time and never touches bytes of weights.
//
// # Life of a run
//
//	submitted ──init unit──▶ training ──last chunk merged──▶ evaluating ──▶ completed
//	    │                      │  ▲
//	    │                      ▼  │ pause / resume
//	    └──▶ failed, cancelled ◀──┘
//
// # Life of a chunk
//
//	queued ──claim──▶ claimed ──report──▶ trained ──accept──▶ contributed ──merge──▶ merged
//	  ▲  ▲              │                    │                     │
//	  │  └──────────────┴─ lease lost, cut, returned ─┘            │
//	  └───────────────────── contribution revoked ─────────────────┘
//
// A queued chunk is either in the round's pool (nobody's) or in one slot's shard. Steals move chunks from the tail of
// one shard to another; claimed chunks are never stolen. "Trained" is volatile: the weights that hold it live on one
// slot until they are contributed. The ledger counts on acceptance, so that at the end samples counted = epochs × N.
//
// # Life of a member
//
//	waiting ──lease──▶ training ──checkpoints──▶ trained ──outputs──▶ in ──all in or dropped──▶ vote
//	   ▲                  │ │
//	   └──lost, recalled──┘ └──on_loss: drop, deadline, failed──▶ dropped
//
// # Who may cause what
//
//	operator   Submit, Pause, Resume, Cancel
//	agent      ReportTrained, OfferContribution, Initialise, RecordEvaluation, FailTask (all carry the lease's epoch)
//	agent      RecordCheckpoint, RecordMember, RecordOutputs (ensembles)
//	plan       DropMember; GrantLease, AssignShard, ReturnShard, Steal, Claim, Copy, RequestContribution, OpenRound
//	hub timer  ExpireLease, ReleaseLease, ExtendRound, CloseRound
//	hub worker RecordMerge, RevokeContribution, RecordVote, MuteMember
//
// # Rules
//
//  1. One slot holds at most one lease of a run. Its epoch is the log sequence of its grant; a command with another
//     epoch is fenced.
//
//  2. A train lease is for (run, round, slot). A slot may contribute several times in a round; contribution numbers
//     count up per (round, slot) over all its leases in that round. After each contribution, accepted, refused or cut
//     to nothing, the slot starts again from the round's base. Reports name their contribution: one that crossed a
//     refusal on its way must not count for the next.
//
//  3. A contribution is all or nothing. One that names a chunk the lease does not hold uncounted is cut to the longest
//     prefix, in the slot's training order, that it does hold, at a boundary the agent reports; the same event returns
//     every held chunk behind the cut to the pool. An empty prefix returns all.
//
//  4. Claimed chunks that an accepted contribution leaves out go back to the pool in the same event.
//
//  5. A lease that ends (expired, released, round closed, cancelled) returns all it holds to the pool, claimed and
//     trained alike, and its shard too.
//
//  6. B, the chunks of a planned round, is fixed by the first round. Missing chunks are carried on top of the next
//     round's B; after the last planned round they form extra rounds.
//
//  7. A round is complete when all its chunks are counted. At its deadline it closes with at least half of its chunks
//     counted; below that the deadline doubles and the run shows stalled.
//
//  8. The gates of a contribution (facts measured by the hub's worker, judged here): readable, right base, names,
//     shapes and dtypes, finite, and from the fourth merge on norm/√steps at most NormGate times the moving average,
//     or its highest value so far if that is more: a slot that returns late steps as the run did early.
//     A refusal returns the chunks. If the norm gate refuses every slot of a round, the run pauses with the reason and no
//     machine is blamed; when its owner resumes it, the gate learns anew what is usual. Samples and steps are the
//     ledger's own, never the agent's.
//
//  9. Evaluation never blocks a round. After MaxEvaluationFailures the run completes "not evaluated", as it does when
//     nothing was held out.
//
//  10. Task errors count: MaxTaskFailures in a row end the run with the reason. Losses of machines do not count.
//
//  11. A delta that cannot be read at the merge is revoked: the ledger is corrected first, its chunks are trained again.
//     A closed round that loses its only contribution keeps the last good model.
//
//  12. A paused run gives out no new work; what is claimed may be trained, contributed and merged.
//
//  13. An ensemble (mode: ensemble) has members instead of chunks and rounds. One lease at a time trains one member on the whole
//     data set; its checkpoints are a chain, and only what they hold is counted. Who loses a member's lease loses what came
//     after the newest one: the member is requeued, or dropped as the owner asked. When every member is in or dropped, and at
//     least min_members are in, the run waits for the vote over those that have outputs; fewer fail it with the reason.
//     Outputs that the vote cannot read are made again from the member's weights, MaxOutputsLost times at most; after that, and
//     when they are no probabilities, the member stays in without a vote.
//
//  14. A slot without work may train copies of the last chunks that another lease holds. At most two copies of a chunk live, and
//     a copy is not copied. The copies are claimed under the copier's own lease and are a contribution of their own, begun
//     from the round's base: it takes no other chunk. Who is accepted first counts the chunk. The other one loses it: what it
//     has besides it contributes before it claims again, without anything new, since the lost chunk may be in its weights; with
//     nothing besides, it starts again from the base. When one of two holders loses its lease, the other is the only one.
//
//  15. What a lease held at its end may still be contributed by its slot, under a new epoch, while its base is the round's or the
//     previous one's: the longest prefix, at a boundary whose weights are there, of chunks that are queued: not contributed, and
//     claimed by nobody. Made from the previous base, it weighs four fifths of its samples in the merge; the ledger counts all.
//
//  16. Before a run spreads, the slot that makes its first base may try a step and say what that took (Initialised). Who has less, or
//     does not meet the spec's requirements, gets no lease; a lease that is held stays. That is the planner's to see (domain/match),
//     as is priority: Decide grants what it is asked for.
//
// DESIGN.md tells the path of a chunk, the limits and why. testdata/scenarios has a story for each rule and race.
package run
