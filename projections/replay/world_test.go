package replay

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/event"
	"tensorturn/domain/merge"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

const (
	theRun = domain.RunID("r-1")
	params = 600 // more than two blocks of the codec, and a rest
	rounds = 6
)

var slots = []domain.SlotID{"a/0", "b/0"}

// world is a real run in small: every fact is decided, every delta coded, every merge computed. Blobs are in a map.
type world struct {
	t       testing.TB
	records [][]byte
	facts   []event.Data
	state   *run.State
	blobs   store
	lie     func(round int, theta []byte) // changes merged weights before they are stored
	revoke  int                           // round whose contributions are all revoked
	cancel  int                           // round after which the run is cancelled
	down    run.Codec                     // of increments
	absent  int                           // round to which the first slot contributes nothing
}

// store is a map of objects that gives damaged ones as they are: the reader must notice.
type store map[domain.Digest][]byte

func (s store) put(_ context.Context, d domain.Digest, data []byte) error {
	s[d] = bytes.Clone(data)
	return nil
}

func (s store) get(_ context.Context, d domain.Digest) ([]byte, error) {
	if b, ok := s[d]; ok {
		return b, nil
	}
	return nil, domain.NotFound("get "+string(d), "it is not there", "")
}

// newWorld runs two slots over all rounds.
func newWorld(t testing.TB, change func(*world)) *world {
	w := &world{t: t, blobs: store{}}
	if change != nil {
		change(w)
	}
	w.train()
	return w
}

func registry() *event.Registry {
	r := event.NewRegistry()
	run.Register(r)
	return r
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) do(cs ...run.Command) {
	w.t.Helper()
	for _, c := range cs {
		facts, err := run.Decide(w.state, c)
		w.must(err)
		for _, f := range facts {
			w.write(f)
		}
	}
}

// write puts a fact behind the newest record.
func (w *world) write(f event.Data) {
	w.t.Helper()
	seq := uint64(len(w.records) + 1)
	e := event.Envelope{Seq: seq, ID: fmt.Sprintf("c-%d.0", seq), Kind: event.KindRun, Agg: string(theRun), Time: w.time(),
		Actor: "hub", Cause: domain.CommandID(fmt.Sprintf("c-%d", seq)), Data: f, Version: 1}
	if seq > 1 {
		e.Prev = event.Digest(w.records[seq-2])
	}
	b, err := event.Encode(e)
	w.must(err)
	w.records, w.facts = append(w.records, b), append(w.facts, f)
	w.state = run.Evolve(w.state, e)
}

func (w *world) time() time.Time { return time.Unix(1e9, 0).UTC() }

func (w *world) store(b []byte) domain.Digest {
	out := blob.NewWriter(context.Background(), w.blobs.put)
	_, err := out.Write(b)
	w.must(err)
	id, err := out.Close()
	w.must(err)
	return id
}

func (w *world) load(id domain.Digest) []byte {
	var b bytes.Buffer
	r, err := blob.Open(context.Background(), id, w.blobs.get)
	w.must(err)
	_, err = b.ReadFrom(r)
	w.must(err)
	return b.Bytes()
}

var layout = []safetensors.Tensor{{Name: "w", DType: safetensors.F32, Shape: []int64{params}}}

// model makes weights; seed moves them.
func (w *world) model(seed float64) []byte {
	var b bytes.Buffer
	out, err := safetensors.NewWriter(&b, layout, nil)
	w.must(err)
	data := make([]byte, 4*params)
	for i := range params {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(math.Sin(seed+float64(i)))))
	}
	_, err = out.Write(data)
	w.must(err)
	w.must(out.Close())
	return b.Bytes()
}

func (w *world) train() {
	w.t.Helper()
	spec := run.Spec{CodecDown: w.down, Name: "small", Epochs: 1, Batch: 5, Chunk: 10, Codec: run.CodecE3M0, KeepEvery: 4, Round: run.Round{Chunks: 2}}
	data := run.Dataset{Blob: w.store([]byte("rows")), Samples: 20 * rounds, Features: 2, Classes: 2, Block: 20 * rounds}
	spec, err := run.Resolve(spec, data)
	w.must(err)
	w.do(run.Submit{Spec: spec, Data: data}, run.GrantLease{Slot: slots[0], Unit: run.UnitInit})
	w.do(run.Initialise{Slot: slots[0], Epoch: w.state.LeaseOf(slots[0]).Epoch, Base: w.store(w.model(0)), Layout: safetensors.LayoutDigest(layout), Params: params})
	for !w.state.Done() {
		w.round()
		if w.state.Merged == w.cancel && w.cancel > 0 {
			w.do(run.Cancel{})
		}
	}
}

// round deals one chunk to each slot; both contribute, and the round is merged.
func (w *world) round() {
	w.t.Helper()
	w.do(run.OpenRound{})
	n := w.state.Open.Number
	for i, slot := range slots {
		c := w.state.Open.Pool[:min(len(w.state.Open.Pool), max(1, len(w.state.Open.Chunks)/2))]
		if len(c) == 0 {
			continue
		}
		w.do(run.GrantLease{Slot: slot, Unit: run.UnitTrain, Round: n}, run.AssignShard{Slot: slot, Chunks: slices.Clone(c)}, run.Claim{Slot: slot, Count: len(c)})
		l := w.state.LeaseOf(slot)
		for _, c := range slices.Clone(l.Claimed) {
			w.do(run.ReportTrained{Slot: slot, Epoch: l.Epoch, Number: w.state.Number(slot), Chunk: c, Steps: 2, Seconds: 1, Loss: 1})
		}
		if n == w.absent && i == 0 {
			w.do(run.ExpireLease{Slot: slot, Reason: "silent", Silent: 120})
			continue
		}
		w.contribute(slot, l, float64(10*n+i))
	}
	w.do(run.CloseRound{Round: n})
	if n == w.revoke {
		w.revoke = 0
		for _, slot := range slots {
			w.do(run.RevokeContribution{Slot: slot, Number: 1, Reason: "lost"})
		}
		return
	}
	w.merge()
}

func (w *world) contribute(slot domain.SlotID, l *run.Lease, seed float64) {
	w.t.Helper()
	var delta bytes.Buffer
	norm, err := merge.EncodeDelta(merge.CodecE3M0, bytes.NewReader(w.load(w.state.Base)), bytes.NewReader(w.model(seed)), w.state.Base, &delta)
	w.must(err)
	w.do(run.OfferContribution{Slot: slot, Epoch: l.Epoch, Number: w.state.Number(slot), Chunks: slices.Clone(l.Trained), Boundaries: []int{len(l.Trained)}, Steps: 2,
		Blob: w.store(delta.Bytes()), Codec: run.CodecE3M0, Inspection: &run.Inspection{Norm: norm}})
}

func (w *world) merge() {
	w.t.Helper()
	var base, momentum bytes.Buffer
	inputs, _ := w.state.NeedsMerge()
	job := merge.Job{Base: bytes.NewReader(w.load(w.state.Base)), BaseDigest: w.state.Base, Eta: w.state.Open.Eta, Mu: w.state.Open.Mu, NextBase: &base, NextMomentum: &momentum}
	if w.state.Momentum != "" {
		job.Momentum = bytes.NewReader(w.load(w.state.Momentum))
	}
	for _, in := range inputs {
		job.Inputs = append(job.Inputs, merge.Input{Delta: bytes.NewReader(w.load(in.Blob)), Codec: merge.Codec(in.Codec), Samples: in.Samples})
	}
	var increment, residual bytes.Buffer
	if w.down != "" {
		job.Down = merge.Down{Codec: merge.Codec(w.down), Increment: &increment, NextResidual: &residual}
		if w.state.Residual != "" {
			job.Down.Residual = bytes.NewReader(w.load(w.state.Residual))
		}
	}
	res, err := merge.Merge(job)
	w.must(err)
	theta := base.Bytes()
	if w.lie != nil {
		w.lie(w.state.Open.Number, theta)
	}
	c := run.RecordMerge{Round: w.state.Open.Number, NextBase: w.store(theta), NextMomentum: w.store(momentum.Bytes()), StepNorm: res.StepNorm}
	if w.down != "" {
		c.Increment, c.NextResidual = w.store(increment.Bytes()), w.store(residual.Bytes())
	}
	w.do(c)
}

// merges lists the facts of all merges.
func (w *world) merges() []*run.RoundMerged {
	var out []*run.RoundMerged
	for _, f := range w.facts {
		if m, ok := f.(*run.RoundMerged); ok {
			out = append(out, m)
		}
	}
	return out
}

// drop removes a blob and its parts.
func (w *world) drop(id domain.Digest) {
	r, err := blob.Open(context.Background(), id, w.blobs.get)
	w.must(err)
	for _, p := range r.Manifest().Parts {
		delete(w.blobs, p)
	}
	delete(w.blobs, id)
}

// part is the only part of a small blob.
func (w *world) part(id domain.Digest) domain.Digest {
	r, err := blob.Open(context.Background(), id, w.blobs.get)
	w.must(err)
	return r.Manifest().Parts[0]
}

// flip changes one bit in the middle of an object.
func (w *world) flip(d domain.Digest) domain.Digest {
	w.blobs[d][len(w.blobs[d])/2] ^= 1
	return d
}

// prune drops what the keep policy of the hub drops: weights and momentum of all but every k-th round and the last three.
func (w *world) prune() (dropped int) {
	for _, m := range w.merges() {
		if m.Round%w.state.Spec.KeepEvery != 0 && m.Round <= w.state.Merged-3 {
			w.drop(m.NextBase)
			w.drop(m.NextMomentum)
			if m.NextResidual != "" {
				w.drop(m.NextResidual)
			}
			dropped++
		}
	}
	return dropped
}

// replay feeds the records to a log.
func (w *world) replay(c checks) (*Log, error) {
	l := New(registry(), theRun)
	l.checks = c
	for i, b := range w.records {
		if err := l.Add(uint64(i+1), b); err != nil {
			return l, err
		}
	}
	return l, nil
}

// verify replays and recomputes.
func (w *world) verify(c checks) (Report, error) {
	l, err := w.replay(c)
	if err != nil {
		return Report{}, err
	}
	return l.Verify(context.Background(), w.blobs.get, &scratch{}, nil)
}

// scratch keeps the objects of three rounds.
type scratch struct{ now, before, oldest store }

func (s *scratch) Put(ctx context.Context, d domain.Digest, data []byte) error {
	if s.now == nil {
		s.now = store{}
	}
	return s.now.put(ctx, d, data)
}

func (s *scratch) Get(ctx context.Context, d domain.Digest) ([]byte, error) {
	all := maps.Clone(s.oldest)
	if all == nil {
		all = store{}
	}
	maps.Copy(all, s.before)
	maps.Copy(all, s.now)
	return all.get(ctx, d)
}

func (s *scratch) Forget() { s.oldest, s.before, s.now = s.before, s.now, nil }
