// Package archive is the file in which one run leaves its hub: the run's records, the digests of the records between them,
// the blobs that a verification reads, and the hub's signature over all of it. It holds writer and reader; neither touches
// a disk or a network, and neither believes the other. broker/gateway writes, the command line reads; DESIGN.md has the
// format and what a file proves.
//
// Nothing of other runs or machines is in it but 32 bytes for each record: its SHA-256.
package archive

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"

	"tensorturn/domain"
	"tensorturn/domain/pack"
)

// Limits of a file.
const (
	maxRecord  = domain.MaxEventBytes + 4<<10
	maxDigests = 4096 // of hidden records in one frame
	maxHeader  = 16 << 10
	// MaxObjects bounds the blobs: parts and manifests of a run with years of rounds.
	MaxObjects = 1 << 22
)

// magic begins every file; the number is the format's version.
const magic = "tensorturn export 1\n"

// The kinds of frames, in their order: one header, records and digests by sequence, objects, one end.
const (
	kindHeader = 'h'
	kindRecord = 'r'
	kindHidden = 'd'
	kindObject = 'b'
	kindEnd    = 'e'
)

// Header says what the file is about.
type Header struct {
	Run        domain.RunID  `msgpack:"run"`
	First      uint64        `msgpack:"first"`  // sequence of the run's first record
	Last       uint64        `msgpack:"last"`   // of its last record at the time
	Before     domain.Digest `msgpack:"before"` // digest of the record before it, empty when there is none
	EventsOnly bool          `msgpack:"events_only"`
	Program    string        `msgpack:"program"` // that wrote it
	Micros     int64         `msgpack:"time"`    // when, on the hub's clock
}

// statement is what the hub signs: everything in the file follows from it.
type statement struct {
	Header  []byte        `msgpack:"header"` // SHA-256 of the header's bytes
	Head    domain.Digest `msgpack:"head"`   // digest of the run's last record
	Records uint64        `msgpack:"records"`
	Links   []byte        `msgpack:"links"` // SHA-256 over the digests of all records from First to Last
	Objects uint64        `msgpack:"objects"`
	Names   []byte        `msgpack:"names"` // SHA-256 over the digests of all objects, in their order
}

// end is the last frame.
type end struct {
	Statement []byte `msgpack:"statement"`
	Signature []byte `msgpack:"signature"`
	Head      []byte `msgpack:"signed_head"` // position of Last, as agents keep it
}

// signedContext begins what is signed, so that no other signature of the hub passes for it.
const signedContext = "tensorturn export 1\n"

// Signed gives the bytes that the hub's key signs for a statement.
func Signed(statement []byte) []byte { return append([]byte(signedContext), statement...) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFrame puts kind, length, payload and CRC-32C behind b.
func appendFrame(b []byte, kind byte, payload []byte) []byte {
	start := len(b)
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, payload...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// frameBytes is what a frame has besides its payload.
const frameBytes = 1 + 4 + 4

// limitOf is the longest payload of a kind, 0 for kinds that do not exist.
func limitOf(kind byte) int {
	switch kind {
	case kindHeader, kindEnd:
		return maxHeader
	case kindRecord:
		return 8 + maxRecord
	case kindHidden:
		return 8 + 32*maxDigests
	case kindObject:
		return 32 + domain.MaxPartBytes
	}
	return 0
}

func limits() pack.Limits {
	return pack.Limits{Bytes: maxHeader, Depth: 3, Elements: 64, Memory: 4 * maxHeader}
}

// rolling is a hash over digests.
type rolling struct{ h hash.Hash }

func newRolling() rolling { return rolling{sha256.New()} }

func (r rolling) add(raw []byte) { r.h.Write(raw) }
func (r rolling) sum() []byte    { return r.h.Sum(nil) }

// bad is the error for a file that is not what was written; what names the place.
func bad(what, why string, args ...any) error {
	return domain.Integrity("verify export", what+": "+fmt.Sprintf(why, args...), "fetch the file again from the hub or from whoever sent it")
}

// ParseKey reads a hub's public key as FormatKey writes it.
func ParseKey(s string) (ed25519.PublicKey, error) {
	d, err := domain.ParseDigest(s) // 32 bytes in hex, as a digest is
	if err != nil {
		return nil, domain.Invalid("read key", "it is not 64 hex digits", "the hub's key is printed by: tensorturn log verify")
	}
	return raw(d), nil
}
