// Package plan is the scheduler as a pure function: a snapshot of slots and runs in, commands with reasons out. It
// grants leases, deals shards by speed, grants claims, steals for idle slots, asks for contributions, places evaluations,
// and opens, closes and extends rounds.
//
// It never decides (run.Decide does), never expires a lease (the hub's timers do), and knows no clock: ages and speeds
// are numbers in the snapshot. broker/hub calls Next after every batch of syncs and on every tick; the simulator does
// the same. DESIGN.md has the rules, the formulas and the measured figures.
package plan
