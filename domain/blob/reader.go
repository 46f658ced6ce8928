package blob

import (
	"context"
	"fmt"
	"io"
	"sync"

	"tensorturn/domain"
)

// MaxCachedParts bounds what ReadAt keeps (32 MiB): a block of a data set touches one or two parts, and neighbours
// are read in turn.
const MaxCachedParts = 4

// Reader reads a blob in sequence (Read: keeps one part) or at random (ReadAt: keeps MaxCachedParts). Read is for one
// goroutine; ReadAt may be called by many at once, also beside Read.
type Reader struct {
	ctx      context.Context
	get      Get
	id       domain.Digest
	manifest Manifest

	offset int64  // of the next Read
	part   []byte // what is left of Read's part

	mu     sync.Mutex // guards recent, and lets one fetch serve all who wait for the same part
	recent []cached   // ReadAt's parts, the one used last at the end
}

type cached struct {
	index int
	data  []byte
}

// Open fetches and checks the manifest of blob id. Errors keep get's kind, or are domain.KindIntegrity; they name the
// digest that is missing or damaged. ctx is used for every later fetch too.
func Open(ctx context.Context, id domain.Digest, get Get) (*Reader, error) {
	b, err := fetch(ctx, get, id, "manifest")
	if err != nil {
		return nil, err
	}
	m, err := Parse(b)
	if err != nil {
		return nil, &domain.Error{Kind: domain.KindIntegrity, Op: "open blob " + string(id), Why: "the object is not a manifest", Err: err}
	}
	return &Reader{ctx: ctx, get: get, id: id, manifest: m}, nil
}

// Size is the blob's length in bytes.
func (r *Reader) Size() int64 { return r.manifest.Size }

// Manifest lists the blob's parts.
func (r *Reader) Manifest() Manifest { return r.manifest }

// Read gives the next bytes; see io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if r.offset == r.manifest.Size {
		return 0, io.EOF
	}
	if len(r.part) == 0 {
		r.part = nil // let it go before the next one comes
		part, err := r.fetchPart(int(r.offset / PartBytes))
		if err != nil {
			return 0, err
		}
		r.part = part[r.offset%PartBytes:]
	}
	n := copy(p, r.part)
	r.part = r.part[n:]
	r.offset += int64(n)
	return n, nil
}

// ReadAt fills p from offset off; see io.ReaderAt.
func (r *Reader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, domain.Invalid("read blob "+string(r.id), "the offset is negative", "")
	}
	done := 0
	for done < len(p) && off < r.manifest.Size {
		part, err := r.cachedPart(int(off / PartBytes))
		if err != nil {
			return done, err
		}
		n := copy(p[done:], part[off%PartBytes:])
		done += n
		off += int64(n)
	}
	if done < len(p) {
		return done, io.EOF
	}
	return done, nil
}

// cachedPart returns part i and makes it the one used last.
func (r *Reader) cachedPart(i int) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, c := range r.recent {
		if c.index == i {
			copy(r.recent[k:], r.recent[k+1:])
			r.recent[len(r.recent)-1] = c
			return c.data, nil
		}
	}
	if len(r.recent) == MaxCachedParts {
		copy(r.recent, r.recent[1:])
		r.recent = r.recent[:MaxCachedParts-1]
	}
	data, err := r.fetchPart(i)
	if err != nil {
		return nil, err
	}
	r.recent = append(r.recent, cached{i, data})
	return data, nil
}

// fetchPart fetches part i and checks digest and length.
func (r *Reader) fetchPart(i int) ([]byte, error) {
	d := r.manifest.Parts[i]
	data, err := fetch(r.ctx, r.get, d, fmt.Sprintf("part %d of blob %s", i, r.id))
	if err != nil {
		return nil, err
	}
	if want := r.manifest.PartSize(i); len(data) != want {
		return nil, domain.Integrity("read blob "+string(r.id),
			fmt.Sprintf("part %d (%s) has %d bytes, its manifest says %d", i, d, len(data), want), "")
	}
	return data, nil
}

// fetch gets one object and checks its SHA-256: a store behind get may be another's.
func fetch(ctx context.Context, get Get, d domain.Digest, what string) ([]byte, error) {
	data, err := get(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("fetch %s (%s): %w", what, d, err)
	}
	if Sum(data) != d {
		return nil, domain.Integrity("fetch "+what, fmt.Sprintf("the bytes stored under %s have another SHA-256", d),
			"store the blob again from a machine that still holds it")
	}
	return data, nil
}
