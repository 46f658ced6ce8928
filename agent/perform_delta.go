package agent

import (
	"fmt"

	"tensorturn/agent/cache"
)

// makeDelta encodes base against the boundary's snapshot into the cache. The trainer has no part in it.
func (w *worker) makeDelta(e MakeDelta) (Input, error) {
	w.rename(cache.Line{Run: e.Run, Epoch: e.Epoch, Round: e.Round, Number: e.Number, Boundary: e.Boundary})
	base, err := w.store.open(w.ctx, e.Base, w.meter.moved)
	if err != nil {
		return nil, ofTransfer(err)
	}
	f, err := w.snaps.Open(e.Boundary)
	if err != nil {
		return nil, ofDisk(err)
	}
	defer func() { _ = f.Close() }()
	from := &marked{r: base, mark: ofTransfer}
	local := &marked{r: f, mark: ofDisk}
	out := w.store.writer(w.ctx, w.meter.moved)
	if err := w.encode(e, base.Size(), from, local, out); err != nil {
		if from.err != nil {
			return nil, from.err
		}
		if local.err != nil {
			return nil, local.err
		}
		if out.failed != nil {
			return nil, out.failed
		}
		return nil, fmt.Errorf("make the delta: %w", err)
	}
	if err := drain(local); err != nil {
		return nil, err
	}
	blob, err := out.Close()
	if err != nil {
		return nil, err
	}
	if err := w.store.cache.Pin(e.Run, e.Round, blob, out.Manifest().Parts); err != nil {
		return nil, ofDisk(err)
	}
	if e.Codec.Feedback() {
		w.loss.written(blob)
	}
	return DeltaMade{Slot: w.slot, Epoch: e.Epoch, Number: e.Number, Boundary: e.Boundary, Blob: blob}, nil
}

// upload sends a blob of the cache.
func (w *worker) upload(e Upload) (Input, error) {
	if err := w.store.push(w.ctx, e.Blob, w.meter.moved); err != nil {
		return nil, err
	}
	return Uploaded{Slot: w.slot, Epoch: e.Epoch, Blob: e.Blob}, nil
}
