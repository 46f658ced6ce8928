package domain

import "time"

// Limits that more than one package obeys. Each is written once, with its reason.
const (
	MaxIDLength        = 48        // fits a subject token and a file name with room to spare
	MaxSlotsPerMachine = 64        // one GPU or CPU each; more is a typing error
	MaxMachines        = 1024      // one owner's pool on one hub
	MaxNameLength      = 80        // names people give
	MaxPartBytes       = 8 << 20   // JetStream warns above 8 MiB a message; larger synced puts fail with 429
	MaxBlobBytes       = 256 << 30 // 32,768 parts; a manifest of them stays below one part
	MaxMessageBytes    = 1 << 20   // one control message between agent and hub
	MaxEventBytes      = 512 << 10 // one event's data
	MaxBatchEvents     = 1000      // JetStream's atomic batch
	MaxReasonLength    = 240       // reasons in events
)

// Lease timing. Every figure derives from one lease time L, which the hub's owner may set.
const (
	DefaultLease = 120 * time.Second // home links drop for a minute
	MinLease     = 2 * time.Second   // below this a sync interval is shorter than a slow link's round trip
	MaxLease     = time.Hour
)

// Timing holds the durations that derive from one lease time L (design section 4).
type Timing struct {
	Lease   time.Duration // L: a lease without progress for this long is lost
	Sync    time.Duration // L/24: how often an agent speaks when nothing happens
	Suspect time.Duration // L/8: no contact for this long makes a machine suspect
	Lost    time.Duration // L: and for this long, lost
	Fence   time.Duration // 9/10 L: an agent without contact stops committing
	Ahead   time.Duration // L/4: claims reach this far ahead, so that a reconnect starves nobody (30 s of 120 s)
	Grace   time.Duration // L: after a hub restart nothing expires
}

// TimingOf derives the durations from the lease time L.
func TimingOf(l time.Duration) Timing {
	return Timing{Lease: l, Sync: l / 24, Suspect: l / 8, Lost: l, Fence: l * 9 / 10, Ahead: l / 4, Grace: l}
}
