// Package snapshot keeps frozen state as files, so that a hub starts from the newest and reads only the log behind it. A
// snapshot is a saving and never a truth: a file that is damaged, of another hub, of other types or another program, or
// that the log does not vouch for is left aside, and the whole log is replayed. The package knows no state: broker/hub says
// what is in the parts and whether the log holds the place.
//
// File: the line "tensorturn snapshot 1", the header's length (4 bytes, big endian), the header (msgpack: place, schema,
// and name, length and SHA-256 of each part), its Ed25519 signature by the hub's key (64), and the parts.
package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"tensorturn/domain"
	"tensorturn/domain/pack"
)

// Limits of snapshots.
const (
	MaxBytes  = 1 << 30 // one file; a state that takes more is replayed
	Keep      = 2       // files: the newest, and one before it in case that one is damaged
	maxParts  = 64
	maxHeader = 64 << 10
)

const (
	magic     = "tensorturn snapshot 1\n"
	suffix    = ".snapshot"
	signature = 64
)

// Snapshot is frozen state at one place of the log.
type Snapshot struct {
	Seq    uint64        // the last record folded
	Digest domain.Digest // of that record: what the next one carries as prev
	Schema domain.Digest // fingerprint of types, events and program
	Parts  []Part
}

// Part is one piece of state.
type Part struct {
	Name string
	Data []byte
}

// Signer signs with the hub's key, under a context of its own, and checks what claims to be.
type Signer interface {
	Sign(body []byte) []byte
	Signed(body, signature []byte) bool
}

// Store is a folder of snapshots. It is used by one goroutine at a time.
type Store struct {
	dir  string
	sign Signer
}

// Open makes the folder if need be, also where a file stands in its place: nothing in it is worth a hub that does not start.
func Open(dir string, sign Signer) (*Store, error) {
	if info, err := os.Lstat(dir); err == nil && info.Mode().IsRegular() {
		_ = os.Remove(dir) // what MkdirAll says next is told
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, domain.Invalid("open snapshots", err.Error(), "choose a folder that can be written")
	}
	return &Store{dir: dir, sign: sign}, nil
}

// header stands in front of the parts and is what is signed.
type header struct {
	Seq    uint64       `msgpack:"seq"`
	Digest string       `msgpack:"digest"`
	Schema string       `msgpack:"schema"`
	Parts  []headerPart `msgpack:"parts"`
}

type headerPart struct {
	Name  string `msgpack:"name"`
	Bytes int64  `msgpack:"bytes"`
	Sum   []byte `msgpack:"sha256"`
}

// Write stores a snapshot durably under its sequence and removes all but the newest Keep. Errors: domain.KindInvalid when
// it is larger than MaxBytes, domain.KindUnavailable when the disk refuses.
func (s *Store) Write(n Snapshot) error {
	h := header{Seq: n.Seq, Digest: string(n.Digest), Schema: string(n.Schema)}
	total := int64(0)
	for _, p := range n.Parts {
		sum := sha256.Sum256(p.Data)
		h.Parts = append(h.Parts, headerPart{p.Name, int64(len(p.Data)), sum[:]})
		total += int64(len(p.Data))
	}
	if total > MaxBytes || len(n.Parts) > maxParts {
		return domain.Invalid("write snapshot", fmt.Sprintf("%d bytes in %d parts, more than %d in %d", total, len(n.Parts), MaxBytes, maxParts), "")
	}
	head, err := pack.Encode(h)
	if err != nil {
		return err
	}
	if err := s.write(n, head); err != nil {
		return domain.Unavailable("write snapshot", err.Error(), "look at the hub's disk; without snapshots a start reads the whole log", err)
	}
	return s.prune()
}

func (s *Store) write(n Snapshot, head []byte) error {
	f, err := renameio.NewPendingFile(filepath.Join(s.dir, fmt.Sprintf("%020d%s", n.Seq, suffix)), renameio.WithPermissions(0o600))
	if err != nil {
		return err
	}
	defer f.Cleanup()
	parts := [][]byte{[]byte(magic), binary.BigEndian.AppendUint32(nil, uint32(len(head))), head, s.sign.Sign(head)}
	for _, p := range n.Parts {
		parts = append(parts, p.Data)
	}
	for _, p := range parts {
		if _, err := f.Write(p); err != nil {
			return err
		}
	}
	return f.CloseAtomicallyReplace()
}

// prune removes all but the newest files.
func (s *Store) prune() error {
	names, err := s.names()
	if err != nil {
		return err
	}
	for _, n := range names[min(Keep, len(names)):] {
		if err := os.Remove(filepath.Join(s.dir, n)); err != nil {
			return domain.Unavailable("remove old snapshot", err.Error(), "", err)
		}
	}
	return nil
}

// names lists the files, newest first: their names begin with the sequence in 20 digits.
func (s *Store) names() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, domain.Unavailable("list snapshots", err.Error(), "", err)
	}
	var names []string
	for _, e := range entries {
		if n := e.Name(); strings.HasSuffix(n, suffix) && len(n) == 20+len(suffix) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	slices.Reverse(names)
	return names, nil
}

// Read yields the snapshots of the schema, newest first, and an error for each file that is none.
func (s *Store) Read(ctx context.Context, schema domain.Digest) iter.Seq2[Snapshot, error] {
	return func(yield func(Snapshot, error) bool) {
		names, err := s.names()
		if err != nil {
			yield(Snapshot{}, err)
			return
		}
		for _, n := range names[:min(len(names), 2*Keep)] {
			if ctx.Err() != nil {
				return
			}
			snap, err := s.read(n, schema)
			if err != nil {
				err = fmt.Errorf("snapshot %s is not used: %w", n, err)
			}
			if !yield(snap, err) {
				return
			}
		}
	}
}

func (s *Store) read(name string, schema domain.Digest) (Snapshot, error) {
	f, err := os.Open(filepath.Join(s.dir, name))
	if err != nil {
		return Snapshot{}, err
	}
	defer f.Close()
	h, err := s.readHeader(f)
	if err != nil {
		return Snapshot{}, err
	}
	if h.Schema != string(schema) {
		return Snapshot{}, errors.New("it was written by another version of the program")
	}
	n := Snapshot{Seq: h.Seq, Digest: domain.Digest(h.Digest), Schema: schema}
	info, err := f.Stat()
	if err != nil {
		return Snapshot{}, err
	}
	left := info.Size() - int64(len(magic)+4+signature) - h.length
	for _, p := range h.Parts {
		if p.Bytes < 0 || p.Bytes > left {
			return Snapshot{}, errors.New("it is cut")
		}
		left -= p.Bytes
		data := make([]byte, p.Bytes)
		if _, err := io.ReadFull(f, data); err != nil {
			return Snapshot{}, err
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != hex.EncodeToString(p.Sum) {
			return Snapshot{}, fmt.Errorf("part %q is damaged", p.Name)
		}
		n.Parts = append(n.Parts, Part{p.Name, data})
	}
	if left != 0 {
		return Snapshot{}, fmt.Errorf("%d bytes behind its end", left)
	}
	return n, nil
}

// signedHeader is a header whose signature held, and its length.
type signedHeader struct {
	header
	length int64
}

// readHeader trusts nothing before the signature has been checked.
func (s *Store) readHeader(f io.Reader) (signedHeader, error) {
	var h signedHeader
	start := make([]byte, len(magic)+4)
	if _, err := io.ReadFull(f, start); err != nil || string(start[:len(magic)]) != magic {
		return h, errors.New("it is no snapshot of this format")
	}
	n := binary.BigEndian.Uint32(start[len(magic):])
	if n > maxHeader {
		return h, fmt.Errorf("a header of %d bytes", n)
	}
	body := make([]byte, n+signature)
	if _, err := io.ReadFull(f, body); err != nil {
		return h, errors.New("it is cut")
	}
	if !s.sign.Signed(body[:n], body[n:]) {
		return h, errors.New("this hub did not sign it")
	}
	h.length = int64(n)
	lim := pack.Limits{Bytes: maxHeader, Depth: 4, Elements: 10 * (maxParts + 1), Memory: 4 * maxHeader}
	return h, pack.Decode(body[:n], lim, &h.header)
}
