package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"tensorturn/broker/memory"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/freeze"
	"tensorturn/domain/machine"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeLink is a Link within the process.
type fakeLink struct {
	mu     sync.Mutex
	handle func(string, []byte, func([]byte))
	wakes  map[string]int
	refuse error
}

func (l *fakeLink) Serve(handle func(string, []byte, func([]byte))) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handle = handle
	return l.refuse
}

func (l *fakeLink) Wake(account string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wakes == nil {
		l.wakes = map[string]int{}
	}
	l.wakes[account]++
}

func (l *fakeLink) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handle = nil
}

// send carries bytes to the hub; false when nobody serves.
func (l *fakeLink) send(account string, data []byte, reply func([]byte)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.handle == nil {
		return false
	}
	l.handle(account, data, reply)
	return true
}

// rig is a Service on memory with a fake link.
type rig struct {
	t      testing.TB
	s      *Service
	link   *fakeLink
	log    *memory.Log
	blobs  *memory.Blobs
	beats  *memory.Heartbeats
	events []event.Envelope // as a listener saw them; read after Stop or within Read
	cmds   int

	resumed uint64 // where the snapshot stands that the Service started from
	mu      sync.Mutex
	cut     []domain.MachineID
	admits  []domain.MachineID
}

func newRig(t testing.TB, change func(*ServiceConfig)) *rig {
	r := &rig{t: t, link: &fakeLink{}, log: memory.NewLog(nil), beats: &memory.Heartbeats{}}
	r.blobs = memory.NewBlobs(time.Now, nil)
	r.build(change)
	return r
}

func (r *rig) build(change func(*ServiceConfig)) {
	cfg := ServiceConfig{
		Core: Config{Timing: domain.TimingOf(testLease), Process: "p"}, Log: r.log, Registry: registry(), Blobs: r.blobs, Beats: r.beats,
		Link: r.link, Logger: zerolog.New(io.Discard),
		CutOff: func(m domain.MachineID) { r.mu.Lock(); r.cut = append(r.cut, m); r.mu.Unlock() },
		Admit:  func(m domain.MachineID) { r.mu.Lock(); r.admits = append(r.admits, m); r.mu.Unlock() },
	}
	if change != nil {
		change(&cfg)
	}
	r.s = NewService(cfg)
	r.s.inspect = func(_ context.Context, j InspectJob) Inspected {
		return Inspected{Job: j, Found: run.Inspection{Norm: 1}}
	}
	r.s.merge = func(_ context.Context, j MergeJob) Merged { return goodMerge(j) }
	r.s.stored = func(context.Context, domain.Digest) (bool, error) { return true, nil }
	r.s.Follow(follower{r})
}

// follower keeps the events of a rig; those before a snapshot it does not see.
type follower struct{ r *rig }

func (f follower) Note(es []event.Envelope) { f.r.events = append(f.r.events, es...) }
func (f follower) Parts() []freeze.Part {
	return []freeze.Part{{Name: "rig", Values: []any{&f.r.cmds}}}
}
func (f follower) Resume(seq uint64) { f.r.resumed = seq }

func (r *rig) start() {
	r.t.Helper()
	if err := r.s.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) do(kind event.Kind, id string, cmd any) error {
	r.mu.Lock()
	r.cmds++
	n := r.cmds
	r.mu.Unlock()
	return r.s.Do(r.t.Context(), Do{Command: domain.CommandID(fmt.Sprintf("c-%d", n)), Actor: "operator", Targets: []Target{{Kind: kind, ID: id, Command: cmd}}})
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// found makes the pool and its machines.
func (r *rig) found(names ...string) {
	r.t.Helper()
	r.must(r.do(event.KindPool, "pool", pool.Found{At: time.Now()}))
	for _, n := range names {
		r.must(r.do(event.KindMachine, n, machine.Enrol{ID: domain.MachineID(n), NKey: "U" + n, Account: "A" + n, Slots: 1, At: time.Now()}))
	}
}

func (r *rig) submit(id string) {
	r.t.Helper()
	s := run.Spec{Name: id, Epochs: 1, Batch: 10, Chunk: 10, Codec: run.CodecFP32, Round: run.Round{Chunks: 6}}
	d := run.Dataset{Blob: digest("data"), Samples: 120, Heldout: 20, Features: 4, Classes: 2, Block: 120}
	s, err := run.Resolve(s, d)
	r.must(err)
	r.must(r.do(event.KindRun, id, run.Submit{Spec: s, Data: d}))
}

// request sends a sync over the link and waits for its answer.
func (r *rig) request(account string, req wire.SyncRequest) *wire.SyncReply {
	r.t.Helper()
	b, err := wire.EncodeRequest(&req)
	r.must(err)
	return r.raw(account, b)
}

func (r *rig) raw(account string, b []byte) *wire.SyncReply {
	r.t.Helper()
	got := make(chan []byte, 1)
	if !r.link.send(account, b, func(b []byte) { got <- b }) {
		return nil
	}
	reply, err := wire.DecodeReply(<-got)
	r.must(err)
	return reply
}

// A run completes through the Service, over encoded messages, in virtual time; the listener has seen the whole log.
func TestServiceCompletesARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		done := make(chan struct{})
		r.s.OnCommitted(func(es []event.Envelope) {
			for _, e := range es {
				if _, ok := e.Data.(*run.Completed); ok {
					close(done)
				}
			}
		})
		r.start()
		r.found("a", "b")
		r.submit("r-1")
		var agents sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			agents.Go(func() { r.live(newFakeAgent(domain.MachineID(name), 1, 10), done) })
		}
		<-done
		agents.Wait()
		r.s.Stop()
		r.s.Stop()
		for i, e := range r.events {
			if e.Seq != uint64(i)+1 {
				t.Fatalf("the listener got sequence %d at place %d", e.Seq, i+1)
			}
		}
		if r.beats.Newest("a") == nil {
			t.Error("no heartbeat")
		}
		if r.link.wakes["Aa"]+r.link.wakes["Ab"] == 0 {
			t.Error("nobody was woken")
		}
		if err := r.do(event.KindRun, "r-1", run.Resume{}); domain.KindOf(err) != domain.KindUnavailable {
			t.Errorf("after Stop: %v", err)
		}
		// another process reads the same log and gives its listener the same events
		again := &rig{t: t, link: &fakeLink{}, log: r.log, blobs: r.blobs, beats: r.beats}
		again.build(nil)
		again.start()
		again.s.Stop()
		if len(again.events) != len(r.events) || !slices.Equal(again.admits, []domain.MachineID{"a", "b"}) {
			t.Errorf("a new process told %d of %d events and admitted %v", len(again.events), len(r.events), again.admits)
		}
	})
}

// live is an agent's life: work a second, speak, obey.
func (r *rig) live(a *fakeAgent, done chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		a.work(1)
		if reply := r.request("A"+string(a.id), a.request()); reply != nil {
			a.hear(reply)
		}
	}
}

// Stop decides what waits and refuses what comes later; whatever was answered with success is in the log.
func TestServiceStopUnderLoad(t *testing.T) {
	for range 5 {
		r := newRig(t, nil)
		r.start()
		r.found()
		var callers sync.WaitGroup
		var mu sync.Mutex
		enrolled := 0
		begun := make(chan struct{}, 64)
		for i := range 64 {
			callers.Go(func() {
				begun <- struct{}{}
				name := fmt.Sprintf("m-%d", i)
				err := r.do(event.KindMachine, name, machine.Enrol{ID: domain.MachineID(name), NKey: "U" + name, Account: "A" + name, Slots: 1, At: time.Now()})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					enrolled++
				case domain.KindOf(err) != domain.KindUnavailable:
					t.Errorf("refused with %v", err)
				}
			})
		}
		for range 32 {
			<-begun
		}
		var stops sync.WaitGroup
		for range 3 {
			stops.Go(r.s.Stop)
		}
		stops.Wait()
		callers.Wait()
		stored := 0
		for _, e := range r.events {
			if _, ok := e.Data.(*machine.BecameEnrolled); ok {
				stored++
			}
		}
		if stored != enrolled {
			t.Errorf("%d callers were told of success, %d machines are in the log", enrolled, stored)
		}
	}
}

func TestServiceStartFailures(t *testing.T) {
	t.Run("log cannot be read", func(t *testing.T) {
		r := newRig(t, nil)
		r.log.SetFault(func(memory.Op) memory.Fault { return memory.FailBefore })
		if err := r.s.Start(t.Context()); domain.KindOf(err) != domain.KindUnavailable {
			t.Errorf("started: %v", err)
		}
		r.s.Stop()
	})
	t.Run("link cannot serve", func(t *testing.T) {
		r := newRig(t, nil)
		r.link.refuse = errors.New("no link")
		if err := r.s.Start(t.Context()); err == nil {
			t.Error("started without a link")
		}
		r.s.Stop()
	})
	t.Run("stopped before it began", func(t *testing.T) {
		r := newRig(t, nil)
		r.s.Stop()
		if err := r.do(event.KindPool, "pool", pool.Found{}); domain.KindOf(err) != domain.KindUnavailable {
			t.Errorf("decided: %v", err)
		}
	})
}

// stall holds the loop within a question until release is called.
func (r *rig) stall() (release func()) {
	in, out, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_ = r.s.Read(r.t.Context(), func(*Core) { close(in); <-out })
	}()
	<-in
	return func() { close(out); <-done }
}

// The queue is bounded: the next caller is told to come again, and an agent too.
func TestServiceQueueFull(t *testing.T) {
	r := newRig(t, nil)
	r.start()
	defer r.s.Stop()
	r.found("a")
	release := r.stall()
	for range maxQueue {
		r.must(r.s.put(task{read: func(*Core) {}}))
	}
	if err := r.do(event.KindPool, "pool", pool.Found{}); domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("one too many: %v", err)
	}
	a := newFakeAgent("a", 1, 1)
	if reply := r.request("Aa", a.request()); reply.Error == nil || reply.Error.Kind != domain.KindUnavailable {
		t.Errorf("an agent was told %+v", reply.Error)
	}
	release()
	if reply := r.request("Aa", a.request()); reply.Error != nil {
		t.Errorf("when there is room again: %+v", reply.Error)
	}
}

// One sync of a machine is in work; of those that wait the newest wins, and the others are not answered.
func TestServiceNewestSyncWins(t *testing.T) {
	r := newRig(t, nil)
	r.start()
	defer r.s.Stop()
	r.found("a")
	release := r.stall()
	a := newFakeAgent("a", 1, 1)
	answered := make(chan uint64, 8)
	for range 4 {
		req := a.request()
		b, err := wire.EncodeRequest(&req)
		r.must(err)
		r.link.send("Aa", b, func([]byte) { answered <- req.Counter })
	}
	release()
	if first, second := <-answered, <-answered; first != 1 || second != 4 {
		t.Errorf("answered %d and %d, want 1 and 4", first, second)
	}
	select {
	case n := <-answered:
		t.Errorf("answered %d as well", n)
	default:
	}
}

func TestServiceForeignBytes(t *testing.T) {
	r := newRig(t, nil)
	r.start()
	defer r.s.Stop()
	r.found("a")
	for name, b := range map[string][]byte{"empty": nil, "five bytes": {0xdd, 0xff, 0xff, 0xff, 0xff}, "text": []byte("hello")} {
		if reply := r.raw("Aa", b); reply.Error == nil || reply.Error.Kind != domain.KindInvalid {
			t.Errorf("%s: %+v", name, reply.Error)
		}
	}
	a := newFakeAgent("a", 1, 1)
	if reply := r.request("Ax", a.request()); reply.Error == nil || reply.Error.Kind != domain.KindDenied {
		t.Errorf("unknown account: %+v", reply.Error)
	}
	r.must(r.do(event.KindMachine, "a", machine.Revoke{Reason: "lost"}))
	if reply := r.request("Aa", a.request()); reply.Error == nil || reply.Error.Kind != domain.KindDenied {
		t.Errorf("revoked: %+v", reply.Error)
	}
	if !slices.Equal(r.cut, []domain.MachineID{"a"}) {
		t.Errorf("cut off %v", r.cut)
	}
}

func TestServiceRenewsCredentials(t *testing.T) {
	fail := false
	r := newRig(t, func(c *ServiceConfig) {
		c.Renew = func(m domain.MachineID) (string, error) {
			if fail {
				return "", errors.New("no key")
			}
			return "jwt of " + string(m), nil
		}
	})
	r.start()
	defer r.s.Stop()
	r.found("a")
	a := newFakeAgent("a", 1, 1)
	if reply := r.request("Aa", a.request()); reply.Credential != "" {
		t.Error("renewed without being asked")
	}
	req := a.request()
	req.Renew = true
	if reply := r.request("Aa", req); reply.Credential != "jwt of a" {
		t.Errorf("credential %q", reply.Credential)
	}
	fail = true
	req = a.request()
	req.Renew = true
	if reply := r.request("Aa", req); reply.Credential != "" || reply.Error != nil {
		t.Errorf("a failed renewal gave %+v", reply)
	}
}

// Commands and syncs of many callers at once are all answered.
func TestServiceManyCallers(t *testing.T) {
	r := newRig(t, nil)
	r.start()
	names := make([]string, 16)
	for i := range names {
		names[i] = fmt.Sprintf("m-%d", i)
	}
	r.found(names...)
	r.submit("r-1")
	var wg sync.WaitGroup
	for _, n := range names {
		wg.Go(func() {
			a := newFakeAgent(domain.MachineID(n), 1, 10)
			for range 20 {
				a.work(1)
				a.hear(r.request("A"+n, a.request()))
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			r.must(r.s.Read(t.Context(), func(c *Core) { c.References() }))
		}
	})
	wg.Wait()
	r.s.Stop()
	if n := len(r.events); n < 50 {
		t.Errorf("only %d events", n)
	}
}
