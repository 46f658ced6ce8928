// Package brokertest is what every implementation of the storage ports must do: one suite that broker/memory and
// broker/jetstream both pass. Only tests import it.
package brokertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"tensorturn/broker"
	"tensorturn/domain"
)

// testLimit ends a test that hangs.
const testLimit = 60 * time.Second

// Records makes n records of a command. Nothing in them is an event: a log does not look inside.
func Records(command string, n int) []broker.Record {
	recs := make([]broker.Record, n)
	for i := range recs {
		recs[i] = broker.Record{Subject: "tt.ev.run.r-1.lamp_lit", ID: fmt.Sprintf("%s.%d", command, i), Data: fmt.Appendf(nil, "%s %d", command, i)}
	}
	return recs
}

// All reads the log from a sequence on.
func All(t testing.TB, l broker.Log, from uint64) []broker.Record {
	t.Helper()
	var recs []broker.Record
	for r, err := range l.Read(t.Context(), from) {
		if err != nil {
			t.Fatalf("read from %d: %v", from, err)
		}
		recs = append(recs, r)
	}
	return recs
}

// Log runs the suite. open gives a log that is empty and ends with the test.
func Log(t *testing.T, open func(t *testing.T) broker.Log) {
	for name, test := range map[string]func(context.Context, *testing.T, broker.Log){
		"empty":                  testEmpty,
		"append and read":        testAppendAndRead,
		"large batch":            testLargeBatch,
		"large record":           testLargeRecord,
		"wrong sequence":         testWrongSequence,
		"all or nothing":         testAllOrNothing,
		"same id again":          testSameIDAgain,
		"refused for what it is": testRefused,
		"end of a read":          testEndOfRead,
		"readers beside writer":  testReadersBesideWriter,
		"context is over":        testContextOver,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), testLimit)
			defer cancel()
			test(ctx, t, open(t))
		})
	}
}

func mustAppend(ctx context.Context, t *testing.T, l broker.Log, expect uint64, recs []broker.Record) {
	t.Helper()
	last, err := l.Append(ctx, expect, recs)
	if err != nil || last != expect+uint64(len(recs)) {
		t.Fatalf("append of %d behind %d: last %d, %v", len(recs), expect, last, err)
	}
}

func wantLast(ctx context.Context, t *testing.T, l broker.Log, want uint64) {
	t.Helper()
	if last, err := l.Last(ctx); err != nil || last != want {
		t.Fatalf("last is %d, %v; want %d", last, err, want)
	}
}

// wantRecords demands that the log from a sequence on is just these records.
func wantRecords(t *testing.T, l broker.Log, from uint64, want []broker.Record) {
	t.Helper()
	got := All(t, l, from)
	if len(got) != len(want) {
		t.Fatalf("%d records from %d, want %d", len(got), from, len(want))
	}
	for i, w := range want {
		g := got[i]
		if g.Seq != from+uint64(i) || g.Subject != w.Subject || g.ID != w.ID || !bytes.Equal(g.Data, w.Data) {
			t.Fatalf("record %d is %s %s with %d bytes, want %s %s with %d", g.Seq, g.Subject, g.ID, len(g.Data), w.Subject, w.ID, len(w.Data))
		}
	}
}

func testEmpty(ctx context.Context, t *testing.T, l broker.Log) {
	wantLast(ctx, t, l, 0)
	if recs := All(t, l, 1); len(recs) != 0 {
		t.Fatalf("an empty log has %d records", len(recs))
	}
	if recs := All(t, l, 7); len(recs) != 0 {
		t.Fatalf("an empty log has %d records from 7", len(recs))
	}
}

func testAppendAndRead(ctx context.Context, t *testing.T, l broker.Log) {
	a, b := Records("a", 3), Records("b", 1)
	b[0].Subject = "tt.ev.machine.m-1.lamp_turned"
	mustAppend(ctx, t, l, 0, a)
	mustAppend(ctx, t, l, 3, b)
	wantLast(ctx, t, l, 4)
	wantRecords(t, l, 1, append(a, b...))
	wantRecords(t, l, 4, b)
	if recs := All(t, l, 5); len(recs) != 0 {
		t.Fatalf("%d records behind the end", len(recs))
	}
}

func testLargeBatch(ctx context.Context, t *testing.T, l broker.Log) {
	recs := Records("big", domain.MaxBatchEvents)
	mustAppend(ctx, t, l, 0, recs)
	wantRecords(t, l, 1, recs)
	if _, err := l.Append(ctx, 1000, Records("more", domain.MaxBatchEvents+1)); domain.KindOf(err) != domain.KindInvalid {
		t.Fatalf("a batch of %d: %v", domain.MaxBatchEvents+1, err)
	}
	wantLast(ctx, t, l, 1000)
}

func testLargeRecord(ctx context.Context, t *testing.T, l broker.Log) {
	recs := Records("large", 3)
	for i := range recs {
		recs[i].Data = []byte(strings.Repeat("x", broker.MaxRecordBytes))
	}
	mustAppend(ctx, t, l, 0, recs[:1])
	mustAppend(ctx, t, l, 1, recs[1:])
	wantRecords(t, l, 1, recs)
}

func wantConflict(t *testing.T, err error, expected uint64) {
	t.Helper()
	var c *broker.ConflictError
	if !errors.As(err, &c) || c.Expected != expected {
		t.Fatalf("got %v, want a conflict behind %d", err, expected)
	}
}

func testWrongSequence(ctx context.Context, t *testing.T, l broker.Log) {
	mustAppend(ctx, t, l, 0, Records("a", 2))
	for _, expect := range []uint64{0, 1, 3, 1 << 40} {
		_, err := l.Append(ctx, expect, Records(fmt.Sprintf("one-%d", expect), 1))
		wantConflict(t, err, expect)
		_, err = l.Append(ctx, expect, Records(fmt.Sprintf("two-%d", expect), 2))
		wantConflict(t, err, expect)
	}
	wantLast(ctx, t, l, 2)
	mustAppend(ctx, t, l, 2, Records("b", 1))
}

func testAllOrNothing(ctx context.Context, t *testing.T, l broker.Log) {
	mustAppend(ctx, t, l, 0, Records("a", 2))
	mixed := append(Records("b", 3), Records("a", 1)...) // the last one has an id that is stored
	if _, err := l.Append(ctx, 2, mixed); err == nil {
		t.Fatal("a batch with a stored id passes")
	}
	wantLast(ctx, t, l, 2)
	mustAppend(ctx, t, l, 2, Records("b", 3))
}

// testSameIDAgain is what a retry after a lost answer looks like, with the old expectation and with a fresh one.
func testSameIDAgain(ctx context.Context, t *testing.T, l broker.Log) {
	for _, n := range []int{1, 5} {
		recs := Records(fmt.Sprintf("cmd-%d", n), n)
		before, _ := l.Last(ctx)
		mustAppend(ctx, t, l, before, recs)
		_, err := l.Append(ctx, before, recs)
		wantConflict(t, err, before)
		_, err = l.Append(ctx, before+uint64(n), recs)
		wantConflict(t, err, before+uint64(n))
		wantLast(ctx, t, l, before+uint64(n))
	}
}

func testRefused(ctx context.Context, t *testing.T, l broker.Log) {
	for name, change := range map[string]func(*broker.Record){
		"no id":            func(r *broker.Record) { r.ID = "" },
		"id twice":         func(r *broker.Record) { r.ID = "a.0" },
		"wildcard subject": func(r *broker.Record) { r.Subject = "tt.ev.>" },
		"foreign subject":  func(r *broker.Record) { r.Subject = "$JS.API.STREAM.DELETE.EVENTS" },
		"no data":          func(r *broker.Record) { r.Data = nil },
		"too much data":    func(r *broker.Record) { r.Data = make([]byte, broker.MaxRecordBytes+1) },
	} {
		recs := Records("a", 2)
		change(&recs[1])
		if _, err := l.Append(ctx, 0, recs); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := l.Append(ctx, 0, nil); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("no records: %v", err)
	}
	wantLast(ctx, t, l, 0)
}

// testEndOfRead demands that a read ends at the end there was when it began, and can be broken off.
func testEndOfRead(ctx context.Context, t *testing.T, l broker.Log) {
	mustAppend(ctx, t, l, 0, Records("a", 3))
	n := uint64(0)
	for r, err := range l.Read(ctx, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; r.Seq != n {
			t.Fatalf("sequence %d at place %d", r.Seq, n)
		}
		mustAppend(ctx, t, l, 2+n, Records(fmt.Sprintf("b-%d", n), 1))
	}
	if n != 3 {
		t.Fatalf("read %d records, want the 3 there were", n)
	}
	for range l.Read(ctx, 1) {
		break
	}
	wantLast(ctx, t, l, 6)
}

func testReadersBesideWriter(ctx context.Context, t *testing.T, l broker.Log) {
	const batches, per = 20, 10
	done := make(chan error, 4)
	for range cap(done) {
		go func() {
			for seen := uint64(0); seen < batches*per; {
				want := uint64(1)
				for r, err := range l.Read(ctx, 1) {
					if err != nil || r.Seq != want {
						done <- fmt.Errorf("sequence %d instead of %d: %w", r.Seq, want, err)
						return
					}
					want++
				}
				if (want-1)%per != 0 {
					done <- fmt.Errorf("a reader saw %d records: part of a batch", want-1)
					return
				}
				seen = want - 1
			}
			done <- nil
		}()
	}
	for i := range uint64(batches) {
		mustAppend(ctx, t, l, i*per, Records(fmt.Sprintf("w-%d", i), per))
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func testContextOver(ctx context.Context, t *testing.T, l broker.Log) {
	mustAppend(ctx, t, l, 0, Records("a", 3))
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := l.Append(over, 3, Records("b", 1)); domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("append: %v", err)
	}
	if _, err := l.Last(over); err == nil {
		t.Error("last: no error")
	}
	for _, err := range l.Read(over, 1) {
		if domain.KindOf(err) != domain.KindUnavailable {
			t.Errorf("read: %v", err)
		}
	}
}
