package archive

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pack"
)

// Sink takes what a file holds, in its order, before the signature at its end has been checked: nothing may be believed
// until Read returns without an error.
type Sink interface {
	// Begin is called once, first.
	Begin(h Header) error
	// Record gives a record of the run, Hidden the digest of somebody else's.
	Record(seq uint64, data []byte) error
	Hidden(seq uint64, digest domain.Digest) error
	// Object gives a blob's part or manifest, whose SHA-256 has been checked, and where its bytes begin in the file. data is
	// valid until the call returns.
	Object(d domain.Digest, data []byte, offset int64) error
}

// Summary is what a file says, once its signature holds.
type Summary struct {
	Header
	Head    domain.Digest
	Records uint64 // of the run
	Hidden  uint64 // of others, by their digests
	Objects uint64
	Bytes   int64
	// SignedHead is the position of Last as agents keep it: identity.OpenHead reads it.
	SignedHead []byte
}

// Read reads a file to its end and checks every frame, the order, every object's digest, and the signature over it all by
// the hub's public key. The chain of the records is the sink's to check (replay.Log does). Errors: domain.KindIntegrity,
// naming the first thing that is not what was written (records as event.Break, so that event.FirstBad finds the
// sequence); what in or the sink gives. Memory is bounded by one frame of at most 8 MiB.
func Read(in io.Reader, key ed25519.PublicKey, to Sink) (Summary, error) {
	if len(key) != ed25519.PublicKeySize {
		return Summary{}, domain.Invalid("verify export", fmt.Sprintf("a key of %d bytes is none", len(key)), "give the hub's public key: 64 hex digits")
	}
	r := &reader{in: bufio.NewReaderSize(in, 256<<10), to: to, links: newRolling(), names: newRolling(), seen: map[domain.Digest]bool{}}
	err := r.file(key)
	r.sum.Bytes = r.at
	return r.sum, err
}

type reader struct {
	in       *bufio.Reader
	at       int64 // bytes read
	to       Sink
	sum      Summary
	next     uint64 // sequence
	last     domain.Digest
	header   [32]byte // its SHA-256
	object32 [32]byte // digest of the newest object
	links    rolling
	names    rolling
	seen     map[domain.Digest]bool
	payload  bytes.Buffer
}

func (r *reader) file(key ed25519.PublicKey) error {
	start := make([]byte, len(magic))
	if err := r.full(start); err != nil || string(start) != magic {
		return bad("beginning", "it is no export of a run in a format that this program knows")
	}
	for stage := byte(kindHeader); stage != kindEnd; {
		offset := r.at
		kind, p, err := r.frame()
		if err == nil {
			stage, err = r.take(stage, kind, p, offset, key)
		}
		if err != nil {
			return r.place(stage, offset, err)
		}
	}
	if _, err := r.in.ReadByte(); !errors.Is(err, io.EOF) {
		return bad("behind the end", "there are more bytes")
	}
	return nil
}

// full reads exactly len(p) bytes.
func (r *reader) full(p []byte) error {
	n, err := io.ReadFull(r.in, p)
	r.at += int64(n)
	return err
}

// errDamaged says that the bytes of a frame are not those that were written; place says which frame.
type errDamaged string

func (e errDamaged) Error() string { return string(e) }

// frame reads one frame.
func (r *reader) frame() (byte, []byte, error) {
	var front [5]byte
	if err := r.full(front[:]); err != nil {
		return 0, nil, cut(err)
	}
	n, limit := int64(binary.BigEndian.Uint32(front[1:])), limitOf(front[0])
	if limit == 0 || n > int64(limit) {
		return 0, nil, errDamaged(fmt.Sprintf("a piece of kind %q with %d bytes", front[0], n))
	}
	r.payload.Reset()
	got, err := io.CopyN(&r.payload, r.in, n) // grows with what is there, not with what is announced
	r.at += got
	var sum [4]byte
	if err == nil {
		err = r.full(sum[:])
	}
	if err != nil {
		return 0, nil, cut(err)
	}
	crc := crc32.Update(crc32.Checksum(front[:], castagnoli), castagnoli, r.payload.Bytes())
	if crc != binary.BigEndian.Uint32(sum[:]) {
		return 0, nil, errDamaged("its checksum is wrong")
	}
	return front[0], r.payload.Bytes(), nil
}

func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errDamaged("the file ends in the middle")
	}
	return err
}

// place gives a damage its name: what the file should have had there.
func (r *reader) place(stage byte, offset int64, err error) error {
	var d errDamaged
	if !errors.As(err, &d) {
		return err
	}
	at := fmt.Sprintf("byte %d of the file", offset)
	switch {
	case stage == kindHeader:
		return bad("header", "%s (%s)", d, at)
	case stage == kindRecord:
		return event.Break(r.next, fmt.Sprintf("%s (%s)", d, at), nil)
	case r.payload.Len() >= 32:
		return bad("blob or end behind "+r.newest(), "%s (%s; it calls itself %s)", d, at, hex.EncodeToString(r.payload.Bytes()[:32]))
	}
	return bad("blob or end behind "+r.newest(), "%s (%s)", d, at)
}

func (r *reader) newest() string {
	if r.sum.Objects == 0 {
		return fmt.Sprintf("record %d", r.next-1)
	}
	return "blob " + hex.EncodeToString(r.object32[:])
}

// take handles a frame and gives the stage behind it.
func (r *reader) take(stage, kind byte, p []byte, offset int64, key ed25519.PublicKey) (byte, error) {
	switch {
	case kind == kindHeader && stage == kindHeader:
		return kindRecord, r.begin(p)
	case kind == kindRecord && stage == kindRecord:
		if err := r.record(p); err != nil || r.next <= r.sum.Last {
			return stage, err
		}
		return kindObject, nil
	case kind == kindHidden && stage == kindRecord:
		return stage, r.hidden(p)
	case kind == kindObject && stage == kindObject:
		return stage, r.object(p, offset)
	case kind == kindEnd && stage == kindObject:
		return kindEnd, r.end(p, key)
	}
	return stage, errDamaged(fmt.Sprintf("a piece of kind %q has no place there", kind))
}

func (r *reader) begin(p []byte) error {
	if err := pack.Decode(p, limits(), &r.sum.Header); err != nil {
		return errDamaged(err.Error())
	}
	h := r.sum.Header
	if !domain.ValidID(string(h.Run)) || h.First == 0 || h.Last < h.First || h.Last >= 1<<62 || (h.Before == "") != (h.First == 1) {
		return errDamaged("it describes no run")
	}
	if h.Before != "" {
		if _, err := domain.ParseDigest(string(h.Before)); err != nil {
			return errDamaged(err.Error())
		}
	}
	r.header = sha256.Sum256(p)
	r.next = h.First
	return r.to.Begin(h)
}

func (r *reader) sequence(p []byte) error {
	if len(p) < 8 || binary.BigEndian.Uint64(p) != r.next {
		return errDamaged("another record stands in its place")
	}
	return nil
}

func (r *reader) record(p []byte) error {
	if err := r.sequence(p); err != nil {
		return err
	}
	sum := sha256.Sum256(p[8:])
	r.links.add(sum[:])
	r.last = domain.Digest(hex.EncodeToString(sum[:]))
	r.sum.Records++
	if err := r.to.Record(r.next, p[8:]); err != nil {
		return err
	}
	r.next++
	return nil
}

func (r *reader) hidden(p []byte) error {
	if err := r.sequence(p); err != nil {
		return err
	}
	if p = p[8:]; len(p) == 0 || len(p)%32 != 0 {
		return errDamaged(fmt.Sprintf("%d bytes are no digests", len(p)))
	}
	if r.next+uint64(len(p)/32) > r.sum.Last {
		return errDamaged("it stands for the run's last record, which must be shown")
	}
	for ; len(p) > 0; p = p[32:] {
		r.links.add(p[:32])
		if err := r.to.Hidden(r.next, domain.Digest(hex.EncodeToString(p[:32]))); err != nil {
			return err
		}
		r.sum.Hidden++
		r.next++
	}
	return nil
}

func (r *reader) object(p []byte, offset int64) error {
	if len(p) < 32 || sha256.Sum256(p[32:]) != [32]byte(p[:32]) {
		return errDamaged("its bytes have another SHA-256")
	}
	d := domain.Digest(hex.EncodeToString(p[:32]))
	if r.seen[d] || r.sum.Objects == MaxObjects {
		return errDamaged("a blob comes twice, or there are too many")
	}
	r.seen[d] = true
	r.sum.Objects++
	r.names.add(p[:32])
	r.object32 = [32]byte(p[:32])
	return r.to.Object(d, p[32:], offset+5+32)
}

// end compares what was read with what the hub signed.
func (r *reader) end(p []byte, key ed25519.PublicKey) error {
	var e end
	var s statement
	if err := pack.Decode(p, limits(), &e); err != nil {
		return errDamaged(err.Error())
	}
	if !ed25519.Verify(key, Signed(e.Statement), e.Signature) {
		return bad("signature", "the key %s did not sign this file", FormatKey(key))
	}
	if err := pack.Decode(e.Statement, limits(), &s); err != nil {
		return errDamaged(err.Error())
	}
	r.sum.Head, r.sum.SignedHead = r.last, e.Head
	switch {
	case !bytes.Equal(s.Header, r.header[:]):
		return bad("header", "it is not the one that was signed")
	case s.Head != r.last || s.Records != r.sum.Records || !bytes.Equal(s.Links, r.links.sum()):
		return bad("records", "they are not those that were signed")
	case s.Objects != r.sum.Objects || !bytes.Equal(s.Names, r.names.sum()):
		return bad("blobs", "they are not those that were signed")
	}
	return nil
}

// FormatKey writes a public key for people: 64 hex digits.
func FormatKey(k ed25519.PublicKey) string { return hex.EncodeToString(k) }
