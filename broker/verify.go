package broker

import (
	"context"
	"fmt"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Holds reports whether the log's record at seq has the digest. Errors: domain.KindUnavailable, the log cannot be read.
func Holds(ctx context.Context, log Log, seq uint64, digest domain.Digest) (bool, error) {
	for rec, err := range log.Read(ctx, seq) {
		if domain.KindOf(err) == domain.KindIntegrity {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		return rec.Seq == seq && event.Digest(rec.Data) == digest, nil
	}
	return false, nil
}

// Verify reads the log behind the verifier's head, gives every good event to apply, and returns the last good record.
// Errors are those of Committer.Open. Several may read at the same time.
func Verify(ctx context.Context, log Log, v *event.Verifier, apply func(event.Envelope) error) (uint64, domain.Digest, error) {
	err := verify(ctx, log, v, apply)
	seq, head := v.Head()
	return seq, head, err
}

// Pieces of a replay: records are decoded and hashed ahead of the one who links and applies them, each half of the work.
const (
	pieceRecords = 256
	piecesAhead  = 4
)

// parsed is a piece of the log; the error, if any, comes behind its records.
type parsed struct {
	recs []Record
	ps   []event.Parsed
	err  error
}

func verify(ctx context.Context, log Log, v *event.Verifier, apply func(event.Envelope) error) error {
	from, _ := v.Head()
	callers := ctx
	ctx, stop := context.WithCancel(ctx)
	pieces, done := make(chan parsed, piecesAhead), make(chan struct{})
	go func() {
		defer close(done)
		defer close(pieces)
		parse(ctx, log, v.Registry(), from+1, pieces)
	}()
	defer func() { stop(); <-done }()
	for p := range pieces {
		for i, one := range p.ps {
			e, err := v.Take(one)
			if err == nil {
				err = filed(p.recs[i], e)
			}
			if err != nil {
				return err
			}
			if err := apply(e); err != nil {
				return err
			}
		}
		if p.err != nil {
			return p.err
		}
	}
	if err := callers.Err(); err != nil { // the reader may have ended for this and could not say so
		return domain.Unavailable("read log", "the time is over", "try again", err)
	}
	return v.Finish()
}

// parse reads the log piece by piece until its end, an error, or the end of ctx.
func parse(ctx context.Context, log Log, reg *event.Registry, from uint64, to chan<- parsed) {
	var p parsed
	send := func() bool {
		select {
		case to <- p:
			p = parsed{}
			return true
		case <-ctx.Done():
			return false
		}
	}
	for rec, err := range log.Read(ctx, from) {
		if err != nil {
			p.err = err
			break
		}
		one := event.Parse(reg, rec.Seq, rec.Data)
		rec.Data = nil // read; what is kept of it is its place
		p.recs, p.ps = append(p.recs, rec), append(p.ps, one)
		if len(p.ps) == pieceRecords && !send() {
			return
		}
	}
	if len(p.ps) > 0 || p.err != nil {
		send()
	}
}

// VerifyRecord gives the next record to the verifier and compares its place with what it says of itself.
func VerifyRecord(v *event.Verifier, rec Record) (event.Envelope, error) {
	e, err := v.Next(rec.Seq, rec.Data)
	if err == nil {
		err = filed(rec, e)
	}
	return e, err
}

// filed compares a record's subject and id, which no chain covers, with what the record says.
func filed(rec Record, e event.Envelope) error {
	if rec.Subject == e.Subject() && rec.ID == e.ID {
		return nil
	}
	return event.Break(rec.Seq, fmt.Sprintf("the record of %s %s is filed under %s as %s", e.Subject(), e.ID,
		domain.Clip(rec.Subject, 160), domain.Clip(rec.ID, 80)), nil)
}
