package archive

import (
	"context"
	"crypto/ed25519"
	"io"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/event"
	"tensorturn/projections/replay"
)

// File is a file that was read to its end and whose signature and chain hold. Objects are read from it when they are asked
// for.
type File struct {
	Summary
	Log     *replay.Log
	at      io.ReaderAt
	objects map[domain.Digest]place
}

// place is where an object's bytes are in the file.
type place struct {
	offset int64
	length int
}

// Source is a file: read once from its beginning, and then here and there.
type Source interface {
	io.Reader
	io.ReaderAt
}

// Open reads a file, checks it by the hub's public key, and folds the run out of it. marks are sequences whose points will
// be asked for (replay.Log.Mark). Errors are Read's and replay.Log's: domain.KindIntegrity, naming the first thing that is
// not what was written.
func Open(src Source, key ed25519.PublicKey, reg *event.Registry, marks ...uint64) (*File, error) {
	f := &File{at: src, objects: map[domain.Digest]place{}}
	sum, err := Read(src, key, &opening{f: f, reg: reg, marks: marks})
	f.Summary = sum
	return f, err
}

// opening is the Sink of Open.
type opening struct {
	f     *File
	reg   *event.Registry
	marks []uint64
}

func (o *opening) Begin(h Header) error {
	o.f.Log = replay.Behind(o.reg, h.Run, h.First-1, h.Before)
	for _, m := range o.marks {
		o.f.Log.Mark(m)
	}
	return nil
}

func (o *opening) Record(seq uint64, data []byte) error {
	return o.f.Log.Add(seq, slices.Clone(data)) // what is decoded may keep parts of it
}

func (o *opening) Hidden(seq uint64, d domain.Digest) error { return o.f.Log.Hide(seq, d) }

func (o *opening) Object(d domain.Digest, data []byte, offset int64) error {
	o.f.objects[d] = place{offset, len(data)}
	return nil
}

// Get reads an object; it is a blob.Get.
func (f *File) Get(_ context.Context, d domain.Digest) ([]byte, error) {
	p, ok := f.objects[d]
	if !ok {
		return nil, domain.NotFound("read blob "+d.Short(), "it is not in the file", "")
	}
	b := make([]byte, p.length)
	if _, err := f.at.ReadAt(b, p.offset); err != nil {
		return nil, domain.Unavailable("read blob "+d.Short(), "the file cannot be read", "", err)
	}
	if blob.Sum(b) != d {
		return nil, bad("blob "+string(d), "its bytes have changed since the file was read")
	}
	return b, nil
}
