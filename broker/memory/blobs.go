package memory

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"tensorturn/broker"
	"tensorturn/domain"
)

// Blobs is a broker.Blobs in memory.
type Blobs struct {
	mu    sync.Mutex
	objs  map[domain.Digest]object
	now   func() time.Time
	fault func(Op) Fault
	puts  int
}

type object struct {
	data   []byte
	stored time.Time
}

// NewBlobs makes an empty store. now gives the time of storage; fault is asked once for each operation, under the
// store's lock; nil is no faults.
func NewBlobs(now func() time.Time, fault func(Op) Fault) *Blobs {
	return &Blobs{objs: map[domain.Digest]object{}, now: now, fault: fault}
}

// SetFault replaces the fault function.
func (b *Blobs) SetFault(fault func(Op) Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = fault
}

// begin asks for the fault of an operation. The error, if any, is for the caller; do says whether the operation happens.
func (b *Blobs) begin(ctx context.Context, op Op) (do bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, domain.Unavailable("memory "+string(op), "the time is over", "try again", err)
	}
	f := ask(b.fault, op)
	return f == None || f == FailAfter || f == FailConflict, failure(f, op)
}

// Has implements broker.Blobs.
func (b *Blobs) Has(ctx context.Context, ds []domain.Digest) ([]bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.begin(ctx, OpList); err != nil {
		return nil, err
	}
	has := make([]bool, len(ds))
	for i, d := range ds {
		_, has[i] = b.objs[d]
	}
	return has, nil
}

// Put implements broker.Blobs.
func (b *Blobs) Put(ctx context.Context, d domain.Digest, data []byte) error {
	if err := broker.CheckBlob(d, data); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	do, err := b.begin(ctx, OpPut)
	if _, there := b.objs[d]; do && !there {
		b.objs[d] = object{data: slices.Clone(data), stored: b.now()}
		b.puts++
	}
	return err
}

// Get implements broker.Blobs.
func (b *Blobs) Get(ctx context.Context, d domain.Digest) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.begin(ctx, OpGet); err != nil {
		return nil, err
	}
	o, ok := b.objs[d]
	if !ok {
		return nil, broker.BlobMissing(d)
	}
	if broker.CheckBlob(d, o.data) != nil {
		return nil, broker.BlobDamaged(d)
	}
	return slices.Clone(o.data), nil
}

// Delete implements broker.Blobs.
func (b *Blobs) Delete(ctx context.Context, d domain.Digest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	do, err := b.begin(ctx, OpDelete)
	if do {
		delete(b.objs, d)
	}
	return err
}

// All implements broker.Blobs: by digest, as they are when the iteration begins.
func (b *Blobs) All(ctx context.Context) iter.Seq2[broker.BlobInfo, error] {
	return func(yield func(broker.BlobInfo, error) bool) {
		b.mu.Lock()
		_, err := b.begin(ctx, OpList)
		infos := make([]broker.BlobInfo, 0, len(b.objs))
		for _, d := range slices.Sorted(maps.Keys(b.objs)) {
			infos = append(infos, broker.BlobInfo{Digest: d, Size: int64(len(b.objs[d].data)), Stored: b.objs[d].stored})
		}
		b.mu.Unlock()
		if err != nil {
			yield(broker.BlobInfo{}, err)
			return
		}
		for _, i := range infos {
			if !yield(i, nil) {
				return
			}
		}
	}
}

// Corrupt changes the stored bytes of an object that is there.
func (b *Blobs) Corrupt(d domain.Digest, change func([]byte) []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objs[d]
	domain.Assert(ok, "there is an object "+d.Short()+" to corrupt")
	o.data = change(slices.Clone(o.data))
	b.objs[d] = o
}

// Puts counts the objects written so far; a Put of an object that is there writes none.
func (b *Blobs) Puts() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.puts
}

// Heartbeats keeps the newest heartbeat of each machine.
type Heartbeats struct {
	mu     sync.Mutex
	newest map[string][]byte
}

// Heartbeat implements broker.Heartbeats.
func (h *Heartbeats) Heartbeat(machine string, data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.newest == nil {
		h.newest = map[string][]byte{}
	}
	h.newest[machine] = slices.Clone(data)
}

// Newest gives the newest heartbeat of a machine, nil when there is none.
func (h *Heartbeats) Newest(machine string) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.newest[machine]
}
