// Package blob is the format of a blob: content-addressed bytes in parts of domain.MaxPartBytes, the last one shorter,
// plus a manifest that lists them. A blob's id is the SHA-256 of its manifest's bytes, so the id fixes every byte.
//
// Writer cuts a stream into parts and hands each to a callback; Reader fetches parts through a callback and checks each
// one's SHA-256 before a byte of it is used. The package never stores anything and never retries: broker.Blobs, the
// agent's cache and its uploads stand behind the callbacks. Agent, hub and trainers call it.
//
// The manifest is text, so that a person and a stock tool can follow a blob by hand:
//
//	tensorturn-blob 1
//	size 16777217
//	part <64 hex digits>
//	part <64 hex digits>
//	part <64 hex digits>
//
// Every line ends in one newline, numbers have no sign and no leading zero, and the number of parts follows from the
// size. There is exactly one manifest for given bytes.
package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"tensorturn/domain"
)

// PartBytes is the length of every part but the last.
const PartBytes = domain.MaxPartBytes

// Lines of the manifest.
const (
	magicLine  = "tensorturn-blob 1\n"
	sizeLabel  = "size "
	partLabel  = "part "
	partLength = len(partLabel) + 2*sha256.Size + 1
)

// MaxManifestBytes is the length of the manifest of a blob of domain.MaxBlobBytes; it fits one part.
const MaxManifestBytes = len(magicLine) + len(sizeLabel) + len("274877906944\n") + domain.MaxBlobBytes/PartBytes*partLength

// Put stores an object under its SHA-256 and returns when it is durable. The bytes are the writer's: they are valid
// only until Put returns.
type Put func(ctx context.Context, d domain.Digest, data []byte) error

// Get fetches an object by its SHA-256. The bytes belong to the reader from then on and must not change.
type Get func(ctx context.Context, d domain.Digest) ([]byte, error)

// Manifest lists a blob's parts in order.
type Manifest struct {
	Size  int64           // bytes of the blob
	Parts []domain.Digest // SHA-256 of each part; (Size + PartBytes - 1) / PartBytes of them
}

// Sum is the SHA-256 of data.
func Sum(data []byte) domain.Digest {
	h := sha256.Sum256(data)
	return domain.Digest(hex.EncodeToString(h[:]))
}

// Encode gives the manifest's bytes. The manifest must be valid: its parts must match its size.
func (m Manifest) Encode() []byte {
	domain.Assert(m.Size >= 0 && int64(len(m.Parts)) == partsOf(m.Size), "a manifest has as many parts as its size needs")
	b := make([]byte, 0, len(magicLine)+32+len(m.Parts)*partLength)
	b = append(b, magicLine...)
	b = append(b, sizeLabel...)
	b = strconv.AppendInt(b, m.Size, 10)
	b = append(b, '\n')
	for _, d := range m.Parts {
		b = append(b, partLabel...)
		b = append(b, d...)
		b = append(b, '\n')
	}
	return b
}

// Digest is the blob's id.
func (m Manifest) Digest() domain.Digest { return Sum(m.Encode()) }

// PartSize is the length in bytes of part i.
func (m Manifest) PartSize(i int) int {
	return int(min(m.Size-int64(i)*PartBytes, PartBytes))
}

// Parse reads a manifest strictly: only the bytes Encode gives are accepted. Errors are domain.KindInvalid.
func Parse(b []byte) (Manifest, error) {
	if len(b) > MaxManifestBytes {
		return Manifest{}, refuse("%d bytes are more than the largest manifest has (%d)", len(b), MaxManifestBytes)
	}
	rest, ok := bytes.CutPrefix(b, []byte(magicLine))
	if !ok {
		return Manifest{}, refuse("it does not begin with the line %q", magicLine[:len(magicLine)-1])
	}
	size, rest, err := parseSize(rest)
	if err != nil {
		return Manifest{}, err
	}
	n := partsOf(size)
	if int64(len(rest)) != n*int64(partLength) {
		return Manifest{}, refuse("a size of %d needs %d part lines, %d bytes; there are %d bytes", size, n, n*int64(partLength), len(rest))
	}
	m := Manifest{Size: size, Parts: make([]domain.Digest, n)}
	for i := range m.Parts {
		line := rest[i*partLength : (i+1)*partLength]
		hexed, ok := bytes.CutPrefix(line[:partLength-1], []byte(partLabel))
		if !ok || line[partLength-1] != '\n' {
			return Manifest{}, refuse("line of part %d is not %q and a digest", i, partLabel)
		}
		if m.Parts[i], err = domain.ParseDigest(string(hexed)); err != nil {
			return Manifest{}, refuse("digest of part %d is not 64 lower-case hex digits", i)
		}
	}
	return m, nil
}

// parseSize reads the line "size N" and returns what follows it.
func parseSize(b []byte) (int64, []byte, error) {
	line, rest, ok := bytes.Cut(b, []byte("\n"))
	digits, labelled := bytes.CutPrefix(line, []byte(sizeLabel))
	if !ok || !labelled || len(digits) > len("274877906944") {
		return 0, nil, refuse("its second line is not %q and a number", sizeLabel)
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != string(digits) {
		return 0, nil, refuse("its size is not a plain number")
	}
	if n > domain.MaxBlobBytes {
		return 0, nil, refuse("a size of %d is above the limit of %d", n, int64(domain.MaxBlobBytes))
	}
	return n, rest, nil
}

// partsOf is the number of parts of size bytes.
func partsOf(size int64) int64 { return (size + PartBytes - 1) / PartBytes }

func refuse(format string, args ...any) error {
	return domain.Invalid("parse blob manifest", fmt.Sprintf(format, args...), "")
}
