package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

func diskRows() []row {
	return []row{
		{part: "disk", fault: "store full by its own limit", expect: "says so on run, /healthz and in its log; goes on with more room; no lease lost",
			mutation: "it gets no more room", run: fullByLimit},
		{part: "disk", fault: "disk really full for longer than a lease", expect: "nothing lost, no lease lost; ready again within 10 s after room is back",
			mutation: "no room comes back", run: diskFull, missing: needMount},
		{part: "disk", fault: "fsync fails with EIO, 3 times", expect: "no event is acknowledged on a failed sync; the store is started anew by itself",
			mutation: "every fsync fails from then on", run: fsyncFails, missing: needStrace},
		{part: "disk", fault: "every fsync takes 200 ms", expect: "slower, no lease lost", mutation: "every fsync takes a minute, and it does not end", run: fsyncSlow, missing: needStrace},
		{part: "disk", fault: "a byte flipped in a stored event, another in a stored delta", expect: "the sequence and the digest are named; the hub starts read-only and can be read",
			mutation: "the byte is in no record", run: flipped},
		{part: "disk", fault: "the end of the log cut off, index gone", expect: "a shorter log is damage: the first missing sequence is named",
			mutation: "what was kept outside of the log is gone as well", run: cutLog},
	}
}

func fullByLimit(w *world) {
	w.StartHub("--min-free", "1048576", "--max-store", strconv.Itoa(1<<30))
	w.witness = watch(w)
	for _, n := range []string{"a", "b"} {
		w.agents[n] = w.StartAgent(n, "--throttle", slow)
	}
	id := w.submit(16, "model: {kind: mlp, hidden: [256]}", "codec: fp32")
	w.AwaitRun(id, "its first merge", func(r runs.Run) bool { return r.Rounds.Merged > 0 })
	ballast := make([]byte, 8<<20)
	for size, n := len(ballast), 0; size >= 1<<10 && n < 1024; n++ {
		copy(ballast, strconv.Itoa(n)+" ")
		if s := w.PutAs("a", ballast[:size]); s != http.StatusCreated {
			size /= 2
		}
	}
	w.Await("the hub to be full", func() bool { return w.health() == "full" })
	if s := w.Say("run", "show", string(id)); !strings.Contains(s, "the hub's store is full") {
		w.Errorf("run show does not say that the hub's store is full")
	}
	w.after(lease + half)
	full := w.show(id)
	w.Hub.Stop(kit.Patience)
	room := 2 << 30
	if w.mutant {
		room = 1 << 30
	}
	w.StartHub("--min-free", "1048576", "--max-store", strconv.Itoa(room))
	if w.mutant {
		w.never(id)
	}
	r := w.ended(id)
	w.unharmed(r)
	w.see("full at %d of %d samples for %s; went on with more room", full.Ledger.Counted, r.Ledger.Expected, lease+half)
}

// health is the word of /healthz.
func (w *world) health() string {
	body, err := w.Healthz()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(body)
}

func needMount() string {
	dir, err := os.MkdirTemp("", "tensorturn-mount-")
	if err != nil {
		return err.Error()
	}
	defer os.Remove(dir)
	if err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", dir).Run(); err != nil {
		return "needs the right to mount a small file system: " + err.Error()
	}
	_ = exec.Command("umount", dir).Run()
	return ""
}

// diskFull puts the hub on a small file system of its own and fills it from outside, as somebody else's files do.
func diskFull(w *world) {
	w.Must(os.MkdirAll(w.HubDir(), 0o700))
	w.Must(exec.Command("mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", w.HubDir()).Run())
	w.Bed.Cleanup(func() { _ = exec.Command("umount", "-l", w.HubDir()).Run() })
	w.up("a", "b")
	id := w.submit(24)
	w.halfway(id, 0.2)
	w.fill(0)
	w.Await("the hub to be full", func() bool { return w.health() == "full" })
	if s := w.Run("run", "submit", filepath.Join(w.Dir, "spec.yaml")); s.Code != 5 || !strings.Contains(s.Err, "the store is full") {
		w.Errorf("a submission to a full store: exit code %d, %s", s.Code, firstLine(s.Err))
	}
	w.after(lease + half)
	counted := w.show(id).Ledger.Counted
	began := time.Now()
	if !w.mutant {
		w.Must(os.Remove(filepath.Join(w.HubDir(), "ballast")))
	}
	w.Await("the hub to be ready", func() bool { return w.health() == "ready" || time.Since(began) > 15*time.Second })
	took := time.Since(began)
	if took > 10*time.Second {
		w.Fatalf("not ready %.1f s after there was room again", took.Seconds())
	}
	r := w.ended(id)
	w.unharmed(r)
	if code := w.Run("log", "verify").Code; code != 0 {
		w.Errorf("log verify: exit code %d", code)
	}
	w.see("full for %s at %d samples; ready %.1f s after room was back; started anew %d times", lease+half, counted, took.Seconds(), w.recycled())
}

// recycled is how often the hub has started its embedded server anew.
func (w *world) recycled() int {
	var s struct {
		Healed int `json:"store_recycled"`
	}
	w.JSON(&s, "hub", "status")
	return s.Healed
}

// fill writes ballast beside the store until the file system has no more than leave bytes.
func (w *world) fill(leave int64) {
	f, err := os.Create(filepath.Join(w.HubDir(), "ballast"))
	w.Must(err)
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	info, err := f.Stat()
	w.Must(err)
	w.Must(f.Truncate(max(0, info.Size()-leave)))
}

func needStrace() string {
	if err := exec.Command("strace", "-qq", "-e", "inject=fsync:error=EIO:when=9", "true").Run(); err != nil {
		return "needs strace with injection: " + err.Error()
	}
	return ""
}

// inject puts faults into the hub's system calls until the function it gives is called.
func (w *world) inject(expr ...string) (end func()) {
	args := []string{"-f", "-qq", "-o", filepath.Join(w.Dir, "strace.out"), "-p", strconv.Itoa(w.Hub.PID()), "-e", "trace=fsync,fdatasync"}
	for _, e := range expr {
		args = append(args, "-e", "inject="+e)
	}
	c := exec.Command("strace", args...)
	w.Must(c.Start())
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	once := func() {
		select {
		case <-ended:
		default:
			_ = c.Process.Signal(syscall.SIGINT) // it lets go of the hub and ends
			<-ended
		}
	}
	w.Bed.Cleanup(once)
	return once
}

func fsyncFails(w *world) {
	w.up("a", "b")
	id := w.submit(30)
	w.halfway(id, 0.1)
	for k := range 3 {
		w.halfway(id, 0.1+0.2*float64(k))
		healed := w.recycled()
		when := "when=1..2"
		if w.mutant {
			when = "when=1+"
		}
		end := w.inject("fsync:error=EIO:"+when, "fdatasync:error=EIO:"+when)
		w.Await("the store to be started anew and ready", func() bool {
			s := w.Run("hub", "status", "--json")
			return s.Code == 0 && strings.Contains(s.Out, `"state": "ready"`) && w.recycled() > healed
		})
		end()
	}
	r := w.ended(id)
	w.unharmed(r)
	w.see("started anew %d times, %d events kept", w.recycled(), w.witness.count())
}

func fsyncSlow(w *world) {
	w.up("a", "b")
	id := w.submit(24)
	w.halfway(id, 0.1)
	delay := "200000"
	if w.mutant {
		delay = "60000000"
	}
	end := w.inject("fsync:delay_exit="+delay, "fdatasync:delay_exit="+delay)
	began, at := w.show(id).Ledger.Counted, time.Now()
	w.after(2 * lease)
	if w.mutant {
		w.never(id)
	}
	during := int64(0)
	w.AwaitRun(id, "to count while syncs are slow", func(r runs.Run) bool {
		during = r.Ledger.Counted - began
		return during > 0 || r.Phase.Ended()
	})
	took := time.Since(at)
	end()
	r := w.ended(id)
	w.unharmed(r)
	w.see("%d samples counted in %.0f s of slow syncs", during, took.Seconds())
}

// finish runs a short run to its end and stops the hub in good order.
func (w *world) finish() domain.RunID {
	w.up("a")
	id := w.submit(6)
	w.ended(id)
	w.agents["a"].Stop(kit.Patience)
	return id
}

func flipped(w *world) {
	id := w.finish()
	records := w.Records()
	delta := w.Offlined().delta(id)
	object, err := w.objectOf(delta)
	w.Must(err)
	w.Hub.Stop(kit.Patience)
	restore := w.CopyHub()
	r := records[w.rng.IntN(len(records))]
	file, at := w.find("EVENTS", r.Data)
	at += w.rng.Int64N(int64(len(r.Data)))
	if w.mutant {
		file, at = filepath.Join(w.HubDir(), "ballast"), 0
		w.Must(os.WriteFile(file, []byte("beside the log"), 0o600))
	}
	w.Flip(file, at, byte(1+w.rng.IntN(255)))
	w.StartHub()
	s := w.Run("log", "verify")
	if s.Code != 9 || !strings.Contains(s.Err, fmt.Sprintf("first bad sequence %d", r.Seq)) {
		w.Fatalf("log verify with record %d damaged: exit code %d, %s", r.Seq, s.Code, firstLine(s.Err))
	}
	if got := w.health(); got != "read-only" {
		w.Errorf("healthz says %s", got)
	}
	if s := w.Run("token", "create"); s.Code != 9 {
		w.Errorf("a read-only hub took a command: exit code %d", s.Code)
	}
	if s := w.Run("run", "list"); s.Code != 0 {
		w.Errorf("a read-only hub cannot be read: exit code %d", s.Code)
	}
	w.Hub.Stop(kit.Patience)
	restore()
	file, at = w.find("OBJ_BLOBS", object[:min(len(object), 4<<10)])
	w.Flip(file, at+w.rng.Int64N(int64(min(len(object), 4<<10))), 1)
	w.StartHub()
	s = w.Run("run", "replay", string(id), "--verify")
	if s.Code != 9 || !strings.Contains(s.Err, string(delta)) && !strings.Contains(s.Err, string(blob.Sum(object))) {
		w.Errorf("a flipped byte in delta %s: exit code %d, %s", delta.Short(), s.Code, firstLine(s.Err))
	}
	w.see("record %d and delta %s named", r.Seq, delta.Short())
}

// find gives the file and the place at which the bytes begin in the stream's blocks.
func (w *world) find(stream string, data []byte) (string, int64) {
	for _, file := range w.Blocks(stream) {
		raw, err := os.ReadFile(file)
		w.Must(err)
		if at := bytes.Index(raw, data); at >= 0 {
			return file, int64(at)
		}
	}
	w.Fatalf("%d bytes are in no block of %s", len(data), stream)
	return "", 0
}

func cutLog(w *world) {
	w.finish()
	n := len(w.Records())
	w.Hub.Kill() // without an index, as after a crash
	blocks := w.Blocks("EVENTS")
	last := blocks[len(blocks)-1]
	info, err := os.Stat(last)
	w.Must(err)
	w.Must(os.Truncate(last, info.Size()-1-w.rng.Int64N(info.Size()/3)))
	_ = os.Remove(filepath.Join(filepath.Dir(last), "index.db"))
	if w.mutant { // at the end of a batch, and with nothing left that knows of more
		raw, err := os.ReadFile(last)
		w.Must(err)
		w.Must(os.Truncate(last, int64(max(0, bytes.LastIndex(raw, []byte("Nats-Batch-Sequence: 1\r\n"))))))
		streams := filepath.Dir(filepath.Dir(filepath.Dir(last)))
		for _, known := range []string{filepath.Join(w.HubDir(), "log.head"), filepath.Join(w.HubDir(), "snapshots"), filepath.Join(streams, "FEED")} {
			w.Must(os.RemoveAll(known))
		}
	}
	w.StartHub()
	s := w.Run("log", "verify")
	if s.Code != 9 || w.health() != "read-only" || !strings.Contains(s.Err, "first bad sequence") {
		w.Fatalf("a log cut behind %d records: exit code %d, %s, %s", n, s.Code, w.health(), firstLine(s.Err))
	}
	w.see("%s", clip(firstLine(s.Err), 120))
}
