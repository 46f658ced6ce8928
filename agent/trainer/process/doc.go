// Package process is the trainer that runs the owner's own program: it starts it as a child process, speaks the protocol
// of agent/trainer/PROTOCOL.md with it, and implements agent/trainer.Trainer over it. What the program says, prints and
// writes is foreign: messages, files and logs are bounded and checked before anything is built from them.
//
// It never learns of the hub, holds no credential and gives none away: the child gets a short list of variables and its
// own folders. A child ends with its trainer, with everything it started; on Linux it also dies with the agent.
//
// The agent opens one Trainer per slot and run through an Opener, which outlives them: it remembers which runs ran out of
// memory, numbers the attempts and keeps their logs. Package code packs and unpacks the owner's folder.
//
// golang.org/x/sys gives waitid, by which a group is killed before its number is free again.
package process

import "time"

// Limits of a child (PROTOCOL.md section 2 gives those of its messages).
const (
	MaxMessage   = 64 << 10 // bytes of one line, line feed included
	MaxText      = 2000     // bytes of a text for people
	MaxLogLine   = 64 << 10 // bytes; longer lines are split
	MaxLog       = 64 << 20 // bytes of an attempt's log on disk: the newest half to whole of it
	TailLines    = 50       // kept for the error
	MaxTailLine  = 400      // bytes of a kept line
	signBytes    = 64 << 10 // of the end of a log, searched for what a program died of
	MaxLogs      = 32       // logs of old attempts that are kept
	maxRuns      = 256      // runs an Opener remembers
	maxSocket    = 100      // bytes of a socket's path; the kernel takes 107
	quickSweeps  = 10       // of them at once: a fork bomb must get no time
	sweepPause   = 20 * time.Millisecond
	maxSweeps    = 100 // passes over the process table until a fork bomb counts as won
	drainTime    = time.Second
	helloWait    = 20 * time.Second // for a member of an ensemble to show whether it speaks; most do within seconds
	patience     = 3                // more such waits where its weights are trained already and only its word is wanted
	closeGrace   = 5 * time.Second  // from close to SIGTERM
	killGrace    = 10 * time.Second // from SIGTERM to SIGKILL (design section 9)
	bytesPerTile = 64 << 10         // of weights copied at a time
)
