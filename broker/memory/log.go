// Package memory holds Log, Blobs and Heartbeats in memory, with fault points: what a disk, a network or a second writer
// would do to a hub, at a moment the caller chooses. The simulator and tests drive it; no hub of a user runs on it.
//
// It has no goroutine, clock or random source: time is given, and luck is in the caller's Fault function.
package memory

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"tensorturn/broker"
	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Fault is what goes wrong with one operation.
type Fault int

// The faults.
const (
	None         Fault = iota
	FailBefore         // nothing happens, and the caller is told that it is not known
	FailAfter          // it happens, and the caller is told that it is not known: the answer was lost
	FailConflict       // it happens, the answer is lost, and the retry underneath meets its own records: a conflict
	Full               // nothing happens: no space
	ReadOnly           // nothing happens: the store takes no writes
)

// Op says which operation asks the Fault function.
type Op string

// The operations.
const (
	OpAppend Op = "append"
	OpRead   Op = "read"
	OpLast   Op = "last"
	OpPut    Op = "put"
	OpGet    Op = "get"
	OpDelete Op = "delete"
	OpList   Op = "list"
)

// Log is a broker.Log in memory.
type Log struct {
	mu    sync.Mutex
	recs  []broker.Record
	gone  map[uint64]bool // records lost by Lose
	ids   map[string]bool
	fault func(Op) Fault
}

// NewLog makes an empty log. fault is asked once for each operation, under the log's lock; nil is no faults.
func NewLog(fault func(Op) Fault) *Log {
	return &Log{gone: map[uint64]bool{}, ids: map[string]bool{}, fault: fault}
}

// SetFault replaces the fault function.
func (l *Log) SetFault(fault func(Op) Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = fault
}

func ask(fault func(Op) Fault, op Op) Fault {
	if fault == nil {
		return None
	}
	return fault(op)
}

// failure is the error that the caller of an operation with fault f sees, nil for none.
func failure(f Fault, op Op) error {
	switch f {
	case FailBefore, FailAfter, FailConflict:
		return domain.Unavailable("memory "+string(op), "the answer was lost", "try again", nil)
	case Full:
		return domain.Unavailable("memory "+string(op), "no space left", "make room", nil)
	case ReadOnly:
		return domain.Unavailable("memory "+string(op), "the store takes no writes", "look at the disk", nil)
	}
	return nil
}

// Append implements broker.Log.
func (l *Log) Append(ctx context.Context, expect uint64, recs []broker.Record) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := broker.CheckBatch(recs); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, domain.Unavailable("memory append", "the time is over", "try again", err)
	}
	f := ask(l.fault, OpAppend)
	if f != None && f != FailAfter && f != FailConflict {
		return 0, failure(f, OpAppend)
	}
	last := uint64(len(l.recs))
	if expect != last {
		return 0, &broker.ConflictError{Expected: expect, Actual: last}
	}
	for _, r := range recs {
		if l.ids[r.ID] {
			return 0, &broker.ConflictError{Expected: expect, Actual: last}
		}
	}
	for _, r := range recs {
		l.push(r)
	}
	if f == FailConflict {
		return 0, &broker.ConflictError{Expected: expect, Actual: uint64(len(l.recs))}
	}
	return uint64(len(l.recs)), failure(f, OpAppend)
}

func (l *Log) push(r broker.Record) {
	r.Seq, r.Data = uint64(len(l.recs)+1), slices.Clone(r.Data)
	l.recs, l.ids[r.ID] = append(l.recs, r), true
}

// Read implements broker.Log.
func (l *Log) Read(ctx context.Context, from uint64) iter.Seq2[broker.Record, error] {
	return func(yield func(broker.Record, error) bool) {
		l.mu.Lock()
		recs, f := l.recs[:len(l.recs):len(l.recs)], ask(l.fault, OpRead)
		gone := make(map[uint64]bool, len(l.gone))
		for seq := range l.gone {
			gone[seq] = true
		}
		l.mu.Unlock()
		if err := failure(f, OpRead); err != nil {
			yield(broker.Record{}, err)
			return
		}
		for seq := max(from, 1); seq <= uint64(len(recs)); seq++ {
			if err := ctx.Err(); err != nil {
				yield(broker.Record{}, domain.Unavailable("memory read", "the time is over", "try again", err))
				return
			}
			if gone[seq] {
				yield(broker.Record{}, event.Break(seq, "the record is missing", nil))
				return
			}
			r := recs[seq-1]
			r.Data = slices.Clone(r.Data)
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Last implements broker.Log.
func (l *Log) Last(ctx context.Context) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := failure(ask(l.fault, OpLast), OpLast); err != nil {
		return 0, err
	}
	return uint64(len(l.recs)), ctx.Err()
}

// Corrupt changes the stored bytes of the record at seq: a flipped bit that the disk did not notice.
func (l *Log) Corrupt(seq uint64, change func([]byte) []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	domain.Assert(seq >= 1 && seq <= uint64(len(l.recs)), fmt.Sprintf("there is a record %d to corrupt", seq))
	recs := slices.Clone(l.recs) // a reader may hold the old list
	recs[seq-1].Data = change(slices.Clone(recs[seq-1].Data))
	l.recs = recs
}

// Lose makes the record at seq unreadable: a block that is gone.
func (l *Log) Lose(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone[seq] = true
}

// Cut forgets every record behind seq: a store that was rolled back.
func (l *Log) Cut(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.recs[seq:] {
		delete(l.ids, r.ID)
	}
	l.recs = slices.Clone(l.recs[:seq])
}

// Intrude appends a record without asking anybody: what a second hub would do.
func (l *Log) Intrude(r broker.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.push(r)
}
