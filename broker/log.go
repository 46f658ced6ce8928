package broker

import (
	"context"
	"iter"
)

// Record is one encoded event with its place.
type Record struct {
	Seq     uint64 // 1, 2, 3, ... without gaps; set by the log when it is read
	Subject string // tt.ev.<kind>.<id>.<fact>
	ID      string // event id "<command id>.<index>", the record's Nats-Msg-Id
	Data    []byte // the msgpack envelope
}

// Log is the append-only record of everything decided. It has one writer: every append names the sequence it believes
// to be the last. Implementations are safe for one appender and many readers. Read and Last come behind every earlier
// Append, one that failed included: what they do not show will not appear later, unless another writer writes it.
type Log interface {
	// Append stores all records or none, durably, behind sequence expect, and returns the sequence of the last one.
	// At most domain.MaxBatchEvents records. Errors:
	//
	//   - *ConflictError: the log's last sequence is not expect. Another writer, or an earlier append that was stored
	//     although it failed: the committer looks for its own ids before it blames somebody else. Also for a batch with
	//     an event id that was stored a moment ago.
	//   - domain.KindUnavailable: nothing is known to be stored; the append may have happened (ambiguous).
	Append(ctx context.Context, expect uint64, recs []Record) (last uint64, err error)
	// Read yields the records from sequence from (1 is the first) to the end at the time of the call. A gap or an
	// unreadable record is a domain.KindIntegrity error that names the first bad sequence; the sequence then ends.
	Read(ctx context.Context, from uint64) iter.Seq2[Record, error]
	// Last is the sequence of the last record, 0 when the log is empty.
	Last(ctx context.Context) (uint64, error)
}

// Heartbeats takes messages that never decide by themselves. Append is asynchronous: a loss is allowed.
type Heartbeats interface {
	Heartbeat(machine string, data []byte)
}
