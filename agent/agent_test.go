package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"tensorturn/agent/cache"
	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/builtin"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

// rig is an agent with a scripted hub and a blob server.
type rig struct {
	hub   *scriptedHub
	store *blobServer
	cache *cache.Cache
	agent *Agent
	log   *bytes.Buffer
}

func newRig(t *testing.T, slots int, open trainer.Factory, edit func(*run.Spec)) *rig {
	t.Helper()
	r := &rig{store: newBlobServer(t), log: &bytes.Buffer{}}
	job := packJob(t, r.store, edit)
	r.hub = newScriptedHub(job, slots, func(slot, number int) []domain.ChunkID {
		first := domain.ChunkID(6*(number-1) + 3*slot)
		return []domain.ChunkID{first, first + 1, first + 2}
	})
	var err error
	if r.cache, err = cache.Open(t.TempDir(), cache.Options{Reserve: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cache.Close() })
	if r.agent, err = New(Config{
		Incarnation: "i-1", Slots: slots, Build: "test", Seed: 1, Transport: r.hub, Blobs: r.store.client(t),
		Cache: r.cache, Trainer: open, Log: zerolog.New(zerolog.SyncWriter(r.log)),
	}); err != nil {
		t.Fatal(err)
	}
	quick := func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	r.agent.store.up.pause, r.agent.store.down.pause = quick, quick
	t.Cleanup(r.agent.Stop)
	return r
}

// packJob packs a small table and puts it into the server.
func packJob(t *testing.T, s *blobServer, edit func(*run.Spec)) wire.Job {
	t.Helper()
	var csv strings.Builder
	for i := range 400 {
		fmt.Fprintf(&csv, "%d,%d,%d,%d\n", i%7, (i*i)%11, (i*3)%5, i%2)
	}
	table, err := dataset.ParseCSV(strings.NewReader(csv.String()), dataset.CSVOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := blob.NewWriter(t.Context(), func(_ context.Context, d domain.Digest, data []byte) error {
		s.set(func() { s.objects[d] = bytes.Clone(data) })
		return nil
	})
	facts, err := dataset.Pack(table, 0.2, 1, w)
	if err != nil {
		t.Fatal(err)
	}
	id, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	spec := run.Spec{Codec: run.CodecFP32, Batch: 8, Chunk: 16}
	if edit != nil {
		edit(&spec)
	}
	data := facts.Run(id)
	if spec, err = run.Resolve(spec, data); err != nil {
		t.Fatal(err)
	}
	return wire.Job{Spec: spec, Data: data}
}

func (r *rig) wait(t *testing.T) {
	t.Helper()
	select {
	case <-r.agent.Done():
	case <-time.After(patience):
		t.Fatalf("the agent did not end; its log:\n%s", r.log)
	}
}

// plain trains chunks from the base without pool or agent.
func (r *rig) plain(t *testing.T, chunks []domain.ChunkID) []byte {
	t.Helper()
	ctx := t.Context()
	get := func(_ context.Context, d domain.Digest) ([]byte, error) {
		r.store.mu.Lock()
		defer r.store.mu.Unlock()
		return r.store.objects[d], nil
	}
	data, err := blob.Open(ctx, r.hub.job.Data.Blob, get)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := builtin.Open(ctx, trainer.Job{Run: "r-1", Spec: r.hub.job.Spec, Dataset: r.hub.job.Data, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	base, err := blob.Open(ctx, r.hub.base, get)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Load(ctx, base); err != nil {
		t.Fatal(err)
	}
	for _, c := range chunks {
		if _, err := tr.Train(ctx, c, func(trainer.Progress) {}); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := tr.Save(ctx, &out); err != nil {
		t.Fatal(err)
	}
	return values(t, &out)
}

// offered reads what an offer's delta holds.
func (r *rig) offered(t *testing.T, o wire.Offer) []byte {
	t.Helper()
	f, err := blob.Open(t.Context(), o.Blob, func(_ context.Context, d domain.Digest) ([]byte, error) {
		r.store.mu.Lock()
		defer r.store.mu.Unlock()
		if data := r.store.objects[d]; data != nil {
			return data, nil
		}
		return nil, domain.NotFound("get", string(d), "")
	})
	if err != nil {
		t.Fatal(err)
	}
	return values(t, f)
}

func values(t *testing.T, in io.Reader) []byte {
	t.Helper()
	f, err := safetensors.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for {
		_, data, err := f.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(data)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
}

// The whole story with the real trainer, over a link that cuts every object's first transfer both ways: init, training
// on two slots, contributions, a cut to a boundary, a second contribution from the base, evaluation, end. The offered
// weights are those of plain training, bit for bit.
func TestAgentWholeStory(t *testing.T) {
	r := newRig(t, 2, builtin.Open, nil)
	r.hub.keep[1] = 2
	cut := map[string]bool{}
	r.store.set(func() {
		r.store.cut = func(method string, d domain.Digest) int {
			first := !cut[method+string(d)]
			cut[method+string(d)] = true
			if first {
				return 20
			}
			return -1
		}
	})
	if err := r.agent.Start(); err != nil {
		t.Fatal(err)
	}
	r.wait(t)
	r.hub.complain(t)
	if got := r.agent.Reason(); got != "the hub has drained this machine" {
		t.Errorf("it ended because %q", got)
	}
	if r.hub.eval == nil || r.hub.eval.Samples != r.hub.job.Data.Heldout {
		t.Errorf("evaluation: %+v, want %d samples", r.hub.eval, r.hub.job.Data.Heldout)
	}
	for key, want := range map[string][]domain.ChunkID{"0/1": {0, 1, 2}, "1/1": {3, 4}} {
		o := r.hub.offers[key]
		if fmt.Sprint(o.Chunks) != fmt.Sprint(want) {
			t.Errorf("contribution %s: chunks %v, want %v", key, o.Chunks, want)
			continue
		}
		if !bytes.Equal(r.offered(t, o), r.plain(t, want)) {
			t.Errorf("contribution %s is not what plain training gives", key)
		}
	}
	for _, key := range []string{"0/2", "1/2"} {
		if o := r.hub.offers[key]; len(o.Chunks) != 3 {
			t.Errorf("contribution %s: chunks %v", key, o.Chunks)
		}
	}
	if n := len(r.cache.Pinned()); n != 0 {
		t.Errorf("%d deltas are still pinned although their round is merged", n)
	}
}

// hookedTrainer wraps the real one and lets a test step in before each chunk.
type hookedTrainer struct {
	trainer.Trainer
	before func(ctx context.Context, c domain.ChunkID) error
	closed func()
}

func (s *hookedTrainer) Train(ctx context.Context, c domain.ChunkID, progress func(trainer.Progress)) (trainer.Result, error) {
	if err := s.before(ctx, c); err != nil {
		return trainer.Result{}, err
	}
	return s.Trainer.Train(ctx, c, progress)
}

func (s *hookedTrainer) Close() error {
	if s.closed != nil {
		s.closed()
	}
	return s.Trainer.Close()
}

func hooked(before func(ctx context.Context, c domain.ChunkID) error, closed func()) trainer.Factory {
	return func(ctx context.Context, job trainer.Job) (trainer.Trainer, error) {
		t, err := builtin.Open(ctx, job)
		return &hookedTrainer{Trainer: t, before: before, closed: closed}, err
	}
}

// A trainer's error and its panic reach the hub as task errors; the agent lives on.
func TestAgentReportsTaskErrors(t *testing.T) {
	for name, before := range map[string]func(context.Context, domain.ChunkID) error{
		"error": func(context.Context, domain.ChunkID) error { return errors.New("the sky fell") },
		"panic": func(context.Context, domain.ChunkID) error { panic("the sky fell") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, hooked(before, nil), nil)
			if err := r.agent.Start(); err != nil {
				t.Fatal(err)
			}
			r.until(t, func(q wire.SyncRequest) bool { return strings.Contains(q.Slots[0].Error, "the sky fell") })
			r.hub.set(func() { r.hub.stop = true })
			r.wait(t)
		})
	}
}

// until waits for a report.
func (r *rig) until(t *testing.T, ok func(wire.SyncRequest) bool) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case q := <-r.hub.seen:
			if ok(q) {
				return
			}
		case <-limit:
			t.Fatalf("the report did not come; the log:\n%s", r.log)
		}
	}
}

// A lease that is taken away in the middle of a chunk ends the trainer's work at once, closes the torn trainer, and the
// slot serves the next lease.
func TestAgentAbandonsMidChunk(t *testing.T) {
	begun, closed := make(chan struct{}, 1), make(chan struct{}, 1)
	once := true
	before := func(ctx context.Context, _ domain.ChunkID) error {
		if !once {
			return nil
		}
		once = false
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	r := newRig(t, 1, hooked(before, func() {
		select {
		case closed <- struct{}{}:
		default:
		}
	}), nil)
	if err := r.agent.Start(); err != nil {
		t.Fatal(err)
	}
	<-begun
	r.hub.set(func() { r.hub.numbers[0] = contributions + 1 }) // nothing more to train: evaluate
	<-closed
	r.wait(t)
	r.hub.complain(t)
	if r.hub.eval == nil {
		t.Error("the slot did not serve the next lease")
	}
}

// The hub disappears while a chunk is trained; the agent goes on with what it holds and offers it when the hub is back.
func TestAgentComputesThroughAnOutage(t *testing.T) {
	var mu sync.Mutex
	trained := 0
	all := make(chan struct{})
	var r *rig
	r = newRig(t, 1, hooked(func(_ context.Context, c domain.ChunkID) error {
		mu.Lock()
		defer mu.Unlock()
		trained++
		switch trained {
		case 1:
			r.hub.set(func() { r.hub.fail = true })
		case 3:
			close(all)
		}
		return nil
	}, nil), nil)
	if err := r.agent.Start(); err != nil {
		t.Fatal(err)
	}
	<-all // all three claims were begun without the hub
	r.hub.set(func() { r.hub.fail = false; r.hub.wake() })
	r.wait(t)
	r.hub.complain(t)
}

// Drain before anything was given: the agent says so, the hub says stop, it ends.
func TestAgentDrains(t *testing.T) {
	r := newRig(t, 1, builtin.Open, nil)
	r.hub.set(func() { r.hub.stop = true })
	r.agent.Drain()
	r.agent.Drain()
	if err := r.agent.Start(); err != nil {
		t.Fatal(err)
	}
	r.wait(t)
}

// Start and Stop in every order, from many goroutines: nothing hangs, nothing is left (goleak in TestMain).
func TestAgentStartStop(t *testing.T) {
	r := newRig(t, 2, builtin.Open, nil)
	r.agent.Stop()
	if err := r.agent.Start(); domain.KindOf(err) != domain.KindConflict {
		t.Errorf("start after stop: got %v", err)
	}
	for range 5 {
		r := newRig(t, 2, builtin.Open, nil)
		if err := r.agent.Start(); err != nil {
			t.Fatal(err)
		}
		if err := r.agent.Start(); domain.KindOf(err) != domain.KindConflict {
			t.Errorf("second start: got %v", err)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(r.agent.Stop)
		}
		wg.Wait()
		select {
		case <-r.agent.Done():
		default:
			t.Error("stop returned before the agent had ended")
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for name, c := range map[string]Config{
		"no slots":       {Incarnation: "i"},
		"throttle":       {Incarnation: "i", Slots: 1, Throttle: 1.5},
		"no incarnation": {Slots: 1},
		"no ports":       {Incarnation: "i", Slots: 1},
	} {
		if _, err := New(c); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
