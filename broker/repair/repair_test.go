package repair_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"tensorturn/broker"
	"tensorturn/broker/memory"
	"tensorturn/broker/repair"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
)

// written is a sound log of n records.
func written(t *testing.T, n int, seed string) map[uint64]broker.Record {
	t.Helper()
	reg := registry()
	log := memory.NewLog(nil)
	c := broker.NewCommitter(log, reg)
	if err := c.Open(context.Background(), func(event.Envelope) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		id := domain.CommandID("c-" + seed + "-" + string(rune('a'+i)))
		if i < 3 {
			id = domain.CommandID("c-" + string(rune('a'+i))) // logs of all seeds begin alike
		}
		_, err := c.Commit(context.Background(), time.Unix(int64(i), 0), []broker.Group{{Command: id, Actor: "hub",
			Events: []event.Event{{Kind: event.KindPool, ID: pool.ID, Data: &pool.Founded{}}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	out := map[uint64]broker.Record{}
	for rec, err := range log.Read(context.Background(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		out[rec.Seq] = rec
	}
	return out
}

func registry() *event.Registry {
	r := event.NewRegistry()
	pool.Register(r)
	return r
}

func head(recs map[uint64]broker.Record, seq uint64) repair.Head {
	return repair.Head{From: "an agent", Seq: seq, Digest: event.Digest(recs[seq].Data)}
}

func without(recs map[uint64]broker.Record, gone ...uint64) map[uint64]broker.Record {
	out := maps.Clone(recs)
	for _, g := range gone {
		delete(out, g)
	}
	return out
}

func changed(recs map[uint64]broker.Record, seq uint64) map[uint64]broker.Record {
	out := maps.Clone(recs)
	r := out[seq]
	r.Data = slices.Clone(r.Data)
	r.Data[len(r.Data)/2] ^= 1
	out[seq] = r
	return out
}

func first(recs map[uint64]broker.Record, n uint64) map[uint64]broker.Record {
	out := map[uint64]broker.Record{}
	for seq := uint64(1); seq <= n; seq++ {
		out[seq] = recs[seq]
	}
	return out
}

// What a damaged log and its copies give together.
func TestMerge(t *testing.T) {
	whole := written(t, 12, "x")
	fork := written(t, 12, "y") // parts from x behind record 3
	for _, c := range []struct {
		name    string
		sources []map[uint64]broker.Record
		heads   []repair.Head
		want    uint64
		healed  []uint64
		missing uint64
		refused string
	}{
		{"sound", []map[uint64]broker.Record{whole}, []repair.Head{head(whole, 12)}, 12, nil, 0, ""},
		{"a hole, and an older copy", []map[uint64]broker.Record{without(whole, 5), first(whole, 6)}, []repair.Head{head(whole, 12)}, 12, []uint64{5}, 0, ""},
		{"a changed byte, and an older copy", []map[uint64]broker.Record{changed(whole, 5), first(whole, 6)}, nil, 12, []uint64{5}, 0, ""},
		{"a cut end, and a copy", []map[uint64]broker.Record{first(whole, 9), whole}, []repair.Head{head(whole, 11)}, 12, []uint64{10, 11, 12}, 0, ""},
		{"two copies that help each other", []map[uint64]broker.Record{without(whole, 2, 8), without(whole, 3, 8), without(whole, 2, 9)}, nil, 12, []uint64{2, 8}, 0, ""},
		{"no copy has it", []map[uint64]broker.Record{without(whole, 5), without(whole, 5)}, []repair.Head{head(whole, 11)}, 4, nil, 11, ""},
		{"no copy has it, nothing is known behind it", []map[uint64]broker.Record{without(whole, 5)}, []repair.Head{head(whole, 3)}, 4, nil, 0, ""},
		{"a log that was rewritten", []map[uint64]broker.Record{fork}, []repair.Head{head(whole, 6)}, 0, nil, 0, "record 6 is not the one whose position an agent holds signed"},
		{"two histories", []map[uint64]broker.Record{whole, fork}, nil, 0, nil, 0, "have different records 4 that both follow"},
		{"nothing at all", []map[uint64]broker.Record{{}}, []repair.Head{head(whole, 2)}, 0, nil, 2, ""},
	} {
		var sources []repair.Source
		for i, s := range c.sources {
			sources = append(sources, repair.FromRecords("source "+string(rune('1'+i)), s))
		}
		var out []broker.Record
		r, err := repair.Merge(context.Background(), registry(), sources, c.heads, func(rec broker.Record) error { out = append(out, rec); return nil })
		if c.refused != "" {
			if domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), c.refused) || domain.NextOf(err) == "" {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil || r.Records != c.want || uint64(len(out)) != c.want || !slices.Equal(r.Healed, c.healed) || (r.Missing == nil) != (c.missing == 0) || r.Missing != nil && r.Missing.Seq != c.missing {
			t.Errorf("%s: %+v %v, %d records", c.name, r, err, len(out))
		}
		for i, rec := range out {
			if string(rec.Data) != string(whole[uint64(i+1)].Data) {
				t.Errorf("%s: record %d is not as it was written", c.name, i+1)
			}
		}
	}
}

// A source that cannot be read now is not one that has nothing.
func TestSlowSourceIsNoLoss(t *testing.T) {
	slow := repair.FromLog("slow", func(context.Context, uint64) (broker.Record, error) {
		return broker.Record{}, domain.Unavailable("read", "slow", "", nil)
	})
	_, err := repair.Merge(context.Background(), registry(), []repair.Source{slow}, nil, func(broker.Record) error { return nil })
	if domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("%v", err)
	}
}

// What is written is what was read, in batches, with subjects.
func TestWrite(t *testing.T) {
	whole := written(t, 12, "x")
	log := memory.NewLog(nil)
	w := repair.Write{Append: log.Append}
	for seq := uint64(1); seq <= 12; seq++ {
		rec := whole[seq]
		rec.Subject, rec.ID = "", "" // a file of a run has none
		if err := w.Add(context.Background(), registry(), rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	v := event.NewVerifier(registry())
	v.Expect(12, event.Digest(whole[12].Data))
	if _, _, err := broker.Verify(context.Background(), log, v, func(event.Envelope) error { return nil }); err != nil {
		t.Error(err)
	}
}
