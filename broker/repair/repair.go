// Package repair puts a damaged log together again from what is left of it and from copies: record by record the one that follows
// from the record before it, checked against positions that the hub's key has signed. It invents nothing and drops nothing
// that is known to have been there: where no source has the next record the log ends, and when a signed position lies
// behind that end the repair is refused. It reads ports and writes through a callback; cmd opens the stores and moves the files.
package repair

import (
	"context"
	"errors"
	"fmt"

	"tensorturn/broker"
	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Source is a place where records may be found.
type Source struct {
	Name string
	// Record gives the record at seq; domain.KindNotFound or KindIntegrity when this source has no good one. Other errors end
	// the repair: a source that is slow must not look like one that has nothing.
	Record func(ctx context.Context, seq uint64) (broker.Record, error)
}

// Head is a position that the hub's key has signed.
type Head struct {
	From   string // who kept it
	Seq    uint64
	Digest domain.Digest
}

// Report says what a repair has found.
type Report struct {
	Records uint64         // from 1, without a gap
	Digest  domain.Digest  // of the last
	By      map[string]int // records taken from each source
	Healed  []uint64       // sequences that the first source did not have, at most maxHealed
	Proven  uint64         // the highest signed position that the result contains
	Missing *Head          // the signed position behind its end, nil when there is none
}

// maxHealed bounds the list of sequences; the counts are whole.
const maxHealed = 64

// Merge follows the chain through the sources, the first that has the next record being taken, and gives each record to emit.
// Errors: domain.KindIntegrity when a signed position contradicts the result, or when two sources have different records that
// both follow; emit's own. A signed position behind the end is not an error here: Report.Missing says so, and nobody may write
// the result without asking.
func Merge(ctx context.Context, reg *event.Registry, sources []Source, heads []Head, emit func(broker.Record) error) (Report, error) {
	r := Report{By: map[string]int{}}
	v := &chain{reg: reg, sources: sources}
	for {
		rec, from, err := v.next(ctx, r.Records+1, r.Digest)
		if err != nil {
			return r, err
		}
		if from < 0 {
			break
		}
		d := event.Digest(rec.Data)
		for _, h := range heads {
			if h.Seq == rec.Seq && h.Digest != d {
				return r, domain.Integrity("repair log", fmt.Sprintf("record %d is not the one whose position %s holds signed", rec.Seq, h.From), "leave the source that it comes from away: "+sources[from].Name)
			}
			if h.Seq == rec.Seq {
				r.Proven = max(r.Proven, h.Seq)
			}
		}
		if err := emit(rec); err != nil {
			return r, err
		}
		r.Records, r.Digest = rec.Seq, d
		r.By[sources[from].Name]++
		if from > 0 && len(r.Healed) < maxHealed {
			r.Healed = append(r.Healed, rec.Seq)
		}
	}
	for i, h := range heads {
		if h.Seq > r.Records && (r.Missing == nil || h.Seq > r.Missing.Seq) {
			r.Missing = &heads[i]
		}
	}
	return r, nil
}

// chain finds the record that follows.
type chain struct {
	reg     *event.Registry
	sources []Source
}

// next gives the record at seq that follows prev and the source that has it, -1 when none has.
func (c *chain) next(ctx context.Context, seq uint64, prev domain.Digest) (broker.Record, int, error) {
	var found broker.Record
	at := -1
	for i, s := range c.sources {
		rec, err := s.Record(ctx, seq)
		switch k := domain.KindOf(err); {
		case k == domain.KindNotFound || k == domain.KindIntegrity:
			continue
		case err != nil:
			return found, -1, fmt.Errorf("read record %d of %s: %w", seq, s.Name, err)
		}
		if !c.follows(rec, seq, prev) {
			continue
		}
		if at >= 0 && string(found.Data) != string(rec.Data) {
			return found, -1, domain.Integrity("repair log", fmt.Sprintf("%s and %s have different records %d that both follow: one of them was written to after a restore", c.sources[at].Name, s.Name, seq),
				"give only the one that is to be kept")
		}
		if at < 0 {
			found, at = rec, i
		}
	}
	return found, at, nil
}

// follows reports whether the record is whole and links to the one before it.
func (c *chain) follows(rec broker.Record, seq uint64, prev domain.Digest) bool {
	e, err := event.Decode(c.reg, seq, rec.Data)
	return err == nil && rec.Seq == seq && e.Prev == prev && (rec.ID == "" || rec.ID == e.ID) && (rec.Subject == "" || rec.Subject == e.Subject())
}

// FromLog is a source over a log that may be damaged, record by record.
func FromLog(name string, get func(ctx context.Context, seq uint64) (broker.Record, error)) Source {
	return Source{Name: name, Record: get}
}

// FromRecords is a source over records in memory, such as an exported file.
func FromRecords(name string, recs map[uint64]broker.Record) Source {
	return Source{Name: name, Record: func(_ context.Context, seq uint64) (broker.Record, error) {
		if r, ok := recs[seq]; ok {
			return r, nil
		}
		return broker.Record{}, domain.NotFound(fmt.Sprintf("record %d", seq), "it is not in "+name, "")
	}}
}

// Write appends records in batches through a.
type Write struct {
	Append func(ctx context.Context, expect uint64, recs []broker.Record) (uint64, error)
	batch  []broker.Record
	bytes  int
	last   uint64
}

// maxBytes bounds a batch's data.
const maxBytes = 4 << 20

// Add takes the next record; its subject and id are filled in from the event where the source had none.
func (w *Write) Add(ctx context.Context, reg *event.Registry, rec broker.Record) error {
	if rec.Subject == "" || rec.ID == "" {
		e, err := event.Decode(reg, rec.Seq, rec.Data)
		if err != nil {
			return err
		}
		rec.Subject, rec.ID = e.Subject(), e.ID
	}
	if len(w.batch) == domain.MaxBatchEvents || w.bytes+len(rec.Data) > maxBytes {
		if err := w.Flush(ctx); err != nil {
			return err
		}
	}
	w.batch, w.bytes = append(w.batch, rec), w.bytes+len(rec.Data)
	return nil
}

// Flush writes what is left.
func (w *Write) Flush(ctx context.Context) error {
	if len(w.batch) == 0 {
		return nil
	}
	last, err := w.Append(ctx, w.last, w.batch)
	if err != nil {
		return fmt.Errorf("write record %d: %w", w.last+1, err)
	}
	if want := w.batch[len(w.batch)-1].Seq; last != want {
		return errors.New("the new log does not number as the old one did")
	}
	w.last, w.batch, w.bytes = last, nil, 0
	return nil
}
