package blob

import (
	"context"
	"errors"
	"fmt"

	"tensorturn/domain"
)

// Writer turns a stream into a blob. It holds at most one part. Not safe for concurrent use.
type Writer struct {
	ctx      context.Context
	put      Put
	part     []byte
	manifest Manifest
	err      error // the first failure, or errClosed
}

var errClosed = errors.New("write to a closed blob writer")

// NewWriter begins a blob whose parts and manifest go through put, each before the next one is begun. ctx ends all of
// it; a writer that is never closed leaves parts that no manifest names.
func NewWriter(ctx context.Context, put Put) *Writer {
	return &Writer{ctx: ctx, put: put}
}

// Write takes the next bytes of the blob. After an error every call gives that error.
func (w *Writer) Write(p []byte) (int, error) {
	done := 0
	for w.err == nil && done < len(p) {
		n := min(len(p)-done, PartBytes-len(w.part))
		w.part = append(w.part, p[done:done+n]...)
		done += n
		if len(w.part) == PartBytes {
			w.flush()
		}
	}
	return done, w.err
}

// Close stores the last part and then the manifest, and returns the blob's id.
func (w *Writer) Close() (domain.Digest, error) {
	if w.err == nil && len(w.part) > 0 {
		w.flush()
	}
	if w.err != nil {
		return "", w.err
	}
	w.err, w.part = errClosed, nil
	b := w.manifest.Encode()
	id := Sum(b)
	if err := w.put(w.ctx, id, b); err != nil {
		return "", fmt.Errorf("store manifest %s: %w", id, err)
	}
	return id, nil
}

// Manifest lists what has been stored so far; after Close, all of it.
func (w *Writer) Manifest() Manifest { return w.manifest }

// flush stores the part under way.
func (w *Writer) flush() {
	if w.manifest.Size+int64(len(w.part)) > domain.MaxBlobBytes {
		w.err = domain.Invalid("write blob", fmt.Sprintf("it is larger than the limit of %d bytes", int64(domain.MaxBlobBytes)), "")
		return
	}
	d := Sum(w.part)
	if err := w.put(w.ctx, d, w.part); err != nil {
		w.err = fmt.Errorf("store part %d (%s): %w", len(w.manifest.Parts), d, err)
		return
	}
	w.manifest.Size += int64(len(w.part))
	w.manifest.Parts = append(w.manifest.Parts, d)
	w.part = w.part[:0]
}
