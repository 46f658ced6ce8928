package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
	"tensorturn/test/offline"
)

// durability kills the hub and cuts its power, and counts what a client outside of it had been told and is gone.
func durability(o options, bin string) error {
	bad := false
	err := kit.InBed(os.Stderr, func(b *kit.Bed) {
		w := newWorld(b, bin, false, o.seed)
		fmt.Printf("%d kills of the hub: ", o.kills)
		w.kills(o.kills)
		fmt.Println(strings.Join(w.seen, "; "))
	})
	if err != nil {
		return err
	}
	if why := needStrace(); why != "" {
		fmt.Println("power cuts not run here:", why)
		return nil
	}
	err = kit.InBed(os.Stderr, func(b *kit.Bed) {
		w := newWorld(b, bin, false, o.seed)
		fmt.Printf("%d power cuts: ", o.cuts)
		r := w.powerCuts(o.cuts, false)
		fmt.Println(r)
		bad = r.lost > 0 || r.broken > 0
		control := w.powerCuts(min(o.cuts, 20), true)
		fmt.Printf("control, %d power cuts where fsync does nothing: %s\n", min(o.cuts, 20), control)
		if control.lost+control.broken == 0 {
			b.Errorf("without syncs nothing was lost: the experiment shows nothing")
		}
	})
	if err == nil && bad {
		err = errors.New("events were lost")
	}
	return err
}

// kills kills the hub n times at random moments while a run goes on and commands are given, and compares at the end.
func (w *world) kills(n int) {
	w.up("a", "b")
	id := w.Submit(w.epochs(3000))
	told, stop := w.commands()
	began := time.Now()
	slowest := time.Duration(0)
	far := newProgress("durability")
	for i := range n {
		far.tell("%d of %d kills", i, n)
		w.after(200*time.Millisecond + w.random(700*time.Millisecond))
		w.Hub.Kill()
		up := time.Now()
		w.StartHub("--min-free", "1048576")
		slowest = max(slowest, time.Since(up))
	}
	tokens := stop()
	r := w.show(id)
	w.intact()
	list := w.Say("token", "list")
	for _, t := range tokens {
		if !strings.Contains(list, t) {
			w.Errorf("token %s was answered for and is gone", t)
		}
	}
	if s := w.Run("log", "verify"); s.Code != 0 {
		w.Errorf("log verify: %s", firstLine(s.Err))
	}
	if r.Totals.Expired > 0 {
		w.see("%d leases expired", r.Totals.Expired)
	}
	w.see("0 of %d acknowledged events and 0 of %d answered commands lost; slowest start %.1f s; %.0f s", w.witness.count(), *told, slowest.Seconds(), time.Since(began).Seconds())
}

// commands gives the hub commands until stop is called, which gives the names of those that were answered.
func (w *world) commands() (told *int, stop func() []string) {
	told = new(int)
	quit, done := make(chan struct{}), make(chan []string, 1)
	go func() {
		var answered []string
		for i := 0; ; i++ {
			select {
			case <-quit:
				done <- answered
				return
			case <-time.After(300 * time.Millisecond):
			}
			c := exec.Command(w.Bin, "token", "create", "--json", "--expires", "1h")
			c.Env = []string{"HOME=" + w.Dir, "TENSORTURN_CONTEXT=" + w.Context()}
			out, err := c.Output()
			if err != nil {
				continue // a hub that is away has promised nothing
			}
			if _, after, ok := strings.Cut(string(out), `"id": "`); ok {
				name, _, _ := strings.Cut(after, `"`)
				if answered = append(answered, name); len(answered) > 900 { // the pool lists a thousand live ones
					answered = answered[:900]
				}
				*told = len(answered)
			}
		}
	}()
	return told, func() []string { close(quit); return <-done }
}

// cutResult is what the power cuts left.
type cutResult struct {
	cuts, events, lost, broken, blobs int
	first                             string
	mended                            int    // logs that the hub's start had to end before a batch stored in part
	why                               string // what was wrong with one of them
}

func (r cutResult) String() string {
	s := fmt.Sprintf("%d of %d acknowledged events lost, %d logs broken, %d blobs checked", r.lost, r.events, r.broken, r.blobs)
	if r.mended > 0 {
		s += fmt.Sprintf("; %d with a half-stored batch, which the hub took out when it started (%s)", r.mended, r.why)
	}
	if r.first != "" {
		s += "; first: " + r.first
	}
	return s
}

// recorded is the hub's whole life as system calls, with what the witness heard and when.
type recorded struct {
	calls []call
	heard []heardAt
	root  string
}

type heardAt struct {
	seq uint64
	id  string
	at  float64
}

// record runs a hub under strace for the length of a run and gives what it wrote.
func (w *world) record() recorded {
	trace := filepath.Join(w.Dir, "trace")
	w.Must(os.MkdirAll(w.Dir, 0o700))
	w.under = []string{"strace", "-f", "-ttt", "-xx", "-s", "16777216", "-o", trace, "-e", "trace=" + traced, "-e", "signal=none"}
	w.StartHub("--min-free", "1048576")
	w.witness = watch(w)
	for _, n := range []string{"a", "b"} {
		w.agents[n] = w.StartAgent(n, "--throttle", slow)
	}
	id := w.submit(12)
	w.AwaitRun(id, "most of it", func(r runs.Run) bool { return r.Phase.Ended() || r.Ledger.Counted*10 >= r.Ledger.Expected*9 })
	for _, a := range w.agents {
		a.Kill()
	}
	for _, pid := range children(w.Hub.PID()) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	w.Hub.Exit(kit.Patience)
	calls, err := openTrace(trace)
	w.Must(err)
	w.under = nil
	return recorded{calls: calls, heard: w.witness.times(), root: w.HubDir()}
}

// children lists the processes that a process has started.
func children(pid int) []int {
	var out []int
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		b, _ := os.ReadFile(f)
		for _, s := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(s); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// powerCuts cuts the power at random calls of one recorded life and opens what is left.
func (w *world) powerCuts(n int, lost bool) cutResult {
	if w.life == nil {
		life := w.record()
		w.life = &life
	}
	out := cutResult{cuts: n}
	from := len(w.life.calls) / 8 // the start makes keys and streams; nothing was told before
	far := newProgress("durability")
	for i := range n {
		far.tell("%d of %d power cuts", i, n)
		k := from + w.rng.IntN(len(w.life.calls)-from)
		var luck *rand.Rand
		if i%2 == 1 {
			luck = rand.New(rand.NewPCG(uint64(i), 7))
		}
		w.oneCut(k, luck, lost, &out)
	}
	return out
}

func (w *world) oneCut(k int, luck *rand.Rand, lost bool, out *cutResult) {
	d := newDisk(w.life.root)
	for _, c := range w.life.calls[:k] {
		w.Must(d.apply(c, lost))
	}
	at := w.life.calls[k].ended
	dir, err := os.MkdirTemp("", "tensorturn-cut-")
	w.Must(err)
	defer os.RemoveAll(dir)
	w.Must(d.loss(luck, dir))
	told := map[uint64]string{}
	for _, h := range w.life.heard {
		if h.at < at {
			told[h.seq] = h.id
		}
	}
	out.events += len(told)
	fail := func(format string, args ...any) {
		if out.first == "" {
			out.first = fmt.Sprintf("at call %d of %d: ", k, len(w.life.calls)) + fmt.Sprintf(format, args...)
		}
	}
	copied := filepath.Join(dir, "copy")
	s, events, err := opened(dir, copied)
	if err != nil && s != nil && !lost && strings.Contains(err.Error(), "ends within a batch") {
		said := err
		s.Close()
		if s, events, err = w.mended(dir, filepath.Join(dir, "again")); err == nil {
			out.mended++
			out.why = said.Error()
		}
	}
	if s != nil {
		defer s.Close()
	}
	if err != nil {
		out.broken++
		fail("%v", err)
		if s == nil {
			out.lost += len(told)
			return
		}
	}
	stored := map[uint64]string{}
	for _, e := range events {
		stored[e.Seq] = e.ID
	}
	for seq, id := range told {
		if stored[seq] != id {
			out.lost++
			fail("event %d (%s) was told and is gone", seq, id)
		}
	}
	for _, e := range events {
		for _, d := range named(e) {
			out.blobs++
			if err := whole(s, d); err != nil {
				out.broken++
				fail("event %d names blob %s: %v", e.Seq, d.Short(), err)
			}
		}
	}
}

// opened copies the store of a hub's folder and reads its log up to the first thing that is wrong with it, the error. A store that
// cannot be opened is nil.
func opened(dir, copied string) (*offline.Store, []event.Envelope, error) {
	if err := offline.Copy(dir, copied); err != nil {
		return nil, nil, err
	}
	s, err := offline.Open(context.Background(), copied)
	if err != nil {
		return nil, nil, err
	}
	known := map[uint64]domain.Digest{}
	if seq, digest, ok := keptHead(filepath.Join(dir, "log.head")); ok {
		known[seq] = digest
	}
	var events []event.Envelope
	_, _, err = s.Verify(context.Background(), known, func(e event.Envelope) { events = append(events, e) })
	return s, events, err
}

// mended is opened after a start of the hub itself on the folder: what was stored of a batch that nobody had been told of is taken out then. A hub
// that had to be repaired by hand would be read-only, and the log as broken as before.
func (w *world) mended(dir, copied string) (*offline.Store, []event.Envelope, error) {
	// made by hard links before anything was told, which the model does not follow
	if err := offline.CopyTree(filepath.Join(w.HubDir(), "keys"), filepath.Join(dir, "keys")); err != nil {
		return nil, nil, err
	}
	h := w.Spawn(filepath.Base(dir), "hub", "start", "--dir", dir, "--listen", "127.0.0.1:0", "--log-level", "warn")
	w.Await("the hub that a power cut has left", func() bool { return strings.Contains(h.Output(), " is up, ") })
	if code := h.Stop(kit.Patience); code != 0 {
		return nil, nil, fmt.Errorf("the hub ended with exit code %d: %s", code, h.Output())
	}
	return opened(dir, copied)
}

// keptHead reads the position that the hub keeps beside its store; the signature is not checked here.
func keptHead(file string) (uint64, domain.Digest, bool) {
	b, err := os.ReadFile(file)
	if err != nil || len(b) < 40 {
		return 0, "", false
	}
	return binary.BigEndian.Uint64(b), domain.Digest(hex.EncodeToString(b[8:40])), true
}

// named are the blobs that an event says are stored.
func named(e event.Envelope) []domain.Digest {
	switch d := e.Data.(type) {
	case *run.Submitted:
		return []domain.Digest{d.Data.Blob}
	case *run.Initialised:
		return []domain.Digest{d.Base}
	case *run.ContributionAccepted:
		return []domain.Digest{d.Blob}
	case *run.RoundMerged:
		return []domain.Digest{d.NextBase, d.NextMomentum}
	}
	return nil
}

// whole reads every part of a blob.
func whole(s *offline.Store, d domain.Digest) error {
	text, err := s.Blobs.Get(context.Background(), d)
	if err != nil {
		return err
	}
	m, err := blob.Parse(text)
	if err != nil {
		return err
	}
	for _, p := range m.Parts {
		if _, err := s.Blobs.Get(context.Background(), p); err != nil {
			return err
		}
	}
	return nil
}
