// Package event holds the record that everything else is a fold of: the envelope, the registry of event names, the
// msgpack codec, and the hash chain that links each record to the one before it.
//
// It decides nothing and stores nothing. The aggregates (domain/run, domain/machine, domain/pool) register their
// events here; broker writes the records; projections and the hub read them back.
package event

import (
	"time"

	"tensorturn/domain"
)

// Kind is the kind of aggregate an event belongs to; it is the third token of the subject.
type Kind string

// The kinds of aggregate.
const (
	KindRun     Kind = "run"
	KindMachine Kind = "machine"
	KindPool    Kind = "pool"
)

// Data is one fact. Each aggregate has a sealed set of them. EventName must be the constant that is registered;
// Line renders the fact for people in one line without a full stop. Data is always a pointer (*run.LeaseGranted): what
// Decide returns, what is decoded, what a type switch names.
type Data interface {
	EventName() string
	Line() string
}

// Event is a decided fact before it has a place in the log: what Decide returns.
type Event struct {
	Kind Kind
	ID   string // the aggregate's id
	Data Data
}

// Actor says who caused a command: "operator", "key:<id>", "machine:<id>", "hub".
type Actor string

// Envelope is an event with its place in the log. The hub alone makes them.
type Envelope struct {
	Seq     uint64           // the record's sequence in EVENTS; not encoded, the stream gives it
	ID      string           // "<command id>.<index>"
	Kind    Kind             // aggregate kind
	Agg     string           // aggregate id
	Time    time.Time        // UTC, whole microseconds, the hub's clock
	Actor   Actor            // who caused it
	Cause   domain.CommandID // the command that was decided
	Corr    string           // correlation: ties the events of one larger story together
	Prev    domain.Digest    // SHA-256 of the record before it, empty for the first
	Data    Data
	Version int // schema version of Data, 1 at first
}
