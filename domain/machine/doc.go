// Package machine is the machine as an event-sourced aggregate: enrolled, online, suspect, lost, draining, drained,
// revoked; its slots; quarantine. Contact itself is the hub's memory; only its transitions are facts. Renewed credentials
// are no facts here: they follow from the standing, and nothing is ever decided from them.
//
//	enrolled ──first sync──▶ online ⇄ suspect ⇄ lost      (a lost machine is never deleted; it comes back online)
//	                          │ drain            revoke from any state is final
//	                          ▼
//	                       draining ──holds nothing──▶ drained ──sync of a new incarnation──▶ online
//
// Draining and quarantined are flags beside the standing: a draining machine may be suspect as well. A drain that the
// agent asked for, because it was told to stop, leads to drained and ends with that agent process. One that the operator
// asked for keeps the agent connected and idle, over restarts too, until Resume: a supervisor that starts agents again
// must not undo it.
//
// Slots may be paused one by one: by the owner, or by what the agent says of their GPUs. A paused slot contributes what it has
// trained and gets no more until no cause is left; the others work on.
//
// A benchmark is wanted when the machine joins, when its owner asks, and when its driver or its GPUs are others than before. Its agent takes
// it when no slot has work. Figures 30 % below the median of earlier ones make the machine slow: people are told, nothing else follows.
//
// Labels are words for requirements of runs; the owner gives them, or the agent was started with them.
//
// Who may cause what: hub on sync RecordBench; operator, and hub on sync, AskBench; operator Pause, Unpause, SetRest, Label; hub on sync TellLabels; hub on sync Away; enrolment (gateway, with a token) Enrol; hub on sync Connect, on timers Suspect and Lose, when a
// machine whose agent stops holds nothing MarkDrained; operator, or an agent that stops, Drain; operator Resume, Revoke; hub after
// three refusals Quarantine.
package machine
