package event

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"tensorturn/domain"
)

// Digest is the link to a record: what the next record carries as Prev.
func Digest(record []byte) domain.Digest {
	h := sha256.Sum256(record)
	return domain.Digest(hex.EncodeToString(h[:]))
}

// BreakError says where a log stops being the one that was written.
type BreakError struct {
	Seq uint64 // the first bad sequence: damaged, missing, or not the one that followed its predecessor
	Why string
	Err error // cause, may be nil
}

func (e *BreakError) Error() string {
	if e.Err != nil {
		return e.Why + ": " + e.Err.Error()
	}
	return e.Why
}

// Unwrap gives the cause.
func (e *BreakError) Unwrap() error { return e.Err }

// Break is the domain.KindIntegrity error for a log that is bad from seq on.
func Break(seq uint64, why string, cause error) error {
	return &domain.Error{Kind: domain.KindIntegrity, Op: "read log", Why: fmt.Sprintf("first bad sequence %d", seq),
		Next: "keep the directory as it is and restore it from a backup, or read on from a copy of the log elsewhere",
		Err:  &BreakError{Seq: seq, Why: why, Err: cause}}
}

// FirstBad finds the first bad sequence in an error of Break.
func FirstBad(err error) (uint64, bool) {
	var b *BreakError
	if errors.As(err, &b) {
		return b.Seq, true
	}
	return 0, false
}

// Verifier reads a log from its beginning, or from a place that is trusted, and stops at the first record that is not
// the one that was written there. It is fed by whoever reads: hub start, log verify, an export.
type Verifier struct {
	reg     *Registry
	seq     uint64
	head    domain.Digest
	anchors map[uint64]domain.Digest
	broken  error
}

// NewVerifier begins at the first record.
func NewVerifier(r *Registry) *Verifier { return ResumeVerifier(r, 0, "") }

// ResumeVerifier begins behind the record at seq, whose digest is known from a source that is trusted.
func ResumeVerifier(r *Registry, seq uint64, head domain.Digest) *Verifier {
	return &Verifier{reg: r, seq: seq, head: head, anchors: map[uint64]domain.Digest{}}
}

// Expect adds a digest known from outside the log, such as a signed head: the record at seq must have it.
func (v *Verifier) Expect(seq uint64, d domain.Digest) { v.anchors[seq] = d }

// Head is the last record that was found good, and its digest; 0 and "" before the first.
func (v *Verifier) Head() (uint64, domain.Digest) { return v.seq, v.head }

// Next takes the record at seq, which must be the one behind Head, and gives its envelope. The error is that of Break
// and stays: a broken log has no good records behind the break.
func (v *Verifier) Next(seq uint64, data []byte) (Envelope, error) {
	if v.broken != nil {
		return Envelope{}, v.broken
	}
	return v.Take(Parse(v.reg, seq, data))
}

// Parsed is a record that was read by itself: what can be done with many at a time, before they are put in order.
type Parsed struct {
	seq    uint64
	e      Envelope
	digest domain.Digest
	err    error
}

// Parse reads the record at seq by itself.
func Parse(r *Registry, seq uint64, data []byte) Parsed {
	p := Parsed{seq: seq, digest: Digest(data)}
	p.e, p.err = Decode(r, seq, data)
	return p
}

// Take is Next for a record that was parsed with the same registry.
func (v *Verifier) Take(p Parsed) (Envelope, error) {
	if v.broken == nil {
		v.broken = v.link(p)
	}
	if v.broken != nil {
		return Envelope{}, v.broken
	}
	v.seq, v.head = p.seq, p.digest
	return p.e, nil
}

// Skip goes on behind the record at seq, which must be the next one, by its digest alone: the record is not shown, and
// somebody vouches for the digest.
func (v *Verifier) Skip(seq uint64, digest domain.Digest) error {
	if v.broken == nil && seq != v.seq+1 {
		v.broken = Break(v.seq+1, fmt.Sprintf("the record is missing, %d comes next", seq), nil)
	}
	if a, ok := v.anchors[seq]; ok && v.broken == nil && a != digest {
		v.broken = Break(seq, fmt.Sprintf("the record is %s, but was known as %s", name(digest), name(a)), nil)
	}
	if v.broken != nil {
		return v.broken
	}
	v.seq, v.head = seq, digest
	return nil
}

// link says why a record is not the next one.
func (v *Verifier) link(p Parsed) error {
	want := v.seq + 1
	if p.seq != want {
		return Break(want, fmt.Sprintf("the record is missing, %d comes next", p.seq), nil)
	}
	if p.err != nil {
		return Break(want, "the record cannot be read", p.err)
	}
	if p.e.Prev != v.head {
		return Break(want, fmt.Sprintf("the record follows %s, but %s stands before it", name(p.e.Prev), name(v.head)), nil)
	}
	if a, ok := v.anchors[p.seq]; ok && a != p.digest {
		return Break(want, fmt.Sprintf("the record is %s, but was known as %s", name(p.digest), name(a)), nil)
	}
	return nil
}

// Registry is what the verifier reads records with.
func (v *Verifier) Registry() *Registry { return v.reg }

// Finish says whether every expected record has come: a log that ends before one was cut.
func (v *Verifier) Finish() error {
	if v.broken != nil {
		return v.broken
	}
	known := v.seq
	for seq := range v.anchors {
		known = max(known, seq)
	}
	if known > v.seq {
		return Break(v.seq+1, fmt.Sprintf("the log ends, but was known up to %d at least", known), nil)
	}
	return nil
}

func name(d domain.Digest) string {
	if d == "" {
		return "nothing"
	}
	return "record " + d.Short()
}
