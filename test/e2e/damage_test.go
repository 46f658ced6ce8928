package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/run"
	"tensorturn/test/kit"
)

// finished is a pool whose run has ended and whose hub has stopped, with everything that is needed to say where a byte
// of the store belongs.
type finished struct {
	*kit.Pool
	id      domain.RunID
	records []gateway.LogRecord
	blobs   map[domain.Digest][]byte // stored objects of the run by digest: manifests and parts
	owner   map[domain.Digest]domain.Digest
	export  string // the run, taken out
	order   []domain.Digest
}

func finish(t *testing.T) *finished {
	t.Helper()
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	a := p.StartAgent("a")
	f := &finished{Pool: p, blobs: map[domain.Digest][]byte{}, owner: map[domain.Digest]domain.Digest{}}
	f.id = p.Submit(spec(t, "model: {kind: mlp, hidden: [16]}\nbatch: 32\nepochs: 3\nchunk: 128\nround: {chunks: 12}\n"))
	checkRun(t, p, p.AwaitEnd(f.id))
	if code := a.Stop(kit.Patience); code != 0 {
		t.Fatalf("the agent ended with exit code %d", code)
	}
	f.export = filepath.Join(t.TempDir(), "run.export")
	p.Must("log", "export", string(f.id), "--output", f.export)
	f.records = p.Records()
	for _, e := range p.Events() {
		switch d := e.Data.(type) {
		case *run.Submitted:
			f.add(t, d.Data.Blob)
		case *run.ContributionAccepted:
			f.add(t, d.Blob)
		case *run.RoundMerged:
			f.add(t, d.NextBase)
			f.add(t, d.NextMomentum)
		}
	}
	p.Hub.Stop(kit.Patience)
	return f
}

// add notes the manifest and the parts of a blob.
func (f *finished) add(t *testing.T, id domain.Digest) {
	t.Helper()
	text, err := f.Object(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	m, err := blob.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	f.blobs[id], f.owner[id] = text, id
	f.order = append(f.order, id)
	for _, part := range m.Parts {
		if f.blobs[part], err = f.Object(context.Background(), part); err != nil {
			t.Fatal(err)
		}
		f.owner[part] = id
		f.order = append(f.order, part)
	}
}

// find gives the file and the place at which the bytes begin in the stream's blocks.
func (f *finished) find(t *testing.T, stream string, data []byte) (string, int64) {
	t.Helper()
	for _, file := range f.Blocks(stream) {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(raw, data); at >= 0 {
			return file, int64(at)
		}
	}
	t.Fatalf("%d bytes are in no block of %s", len(data), stream)
	return "", 0
}

// One flipped byte in a stored event is named by its sequence, and the hub starts read-only: what it has can be read,
// nothing can be changed.
func TestFlippedByteInAnEvent(t *testing.T) {
	t.Parallel()
	f := finish(t)
	restore := f.CopyHub()
	rng := rand.New(rand.NewPCG(*chaosSeed, 5))
	n := len(f.records)
	for _, i := range []int{0, n - 1, rng.IntN(n), rng.IntN(n), rng.IntN(n), rng.IntN(n)} {
		r := f.records[i]
		file, at := f.find(t, "EVENTS", r.Data)
		at += rng.Int64N(int64(len(r.Data)))
		f.Flip(file, at, byte(1+rng.IntN(255)))
		f.StartHub()
		f.checkLogDamaged(t, r.Seq)
		f.Hub.Stop(kit.Patience)
		restore()
	}
	f.StartHub() // the copy that was put aside is sound
	if s := f.Run("log", "verify"); s.Code != 0 {
		t.Errorf("the restored log: exit code %d, %s", s.Code, s.Err)
	}
}

func (f *finished) checkLogDamaged(t *testing.T, seq uint64) {
	t.Helper()
	s := f.Run("log", "verify")
	if s.Code != 9 || !strings.Contains(s.Err, fmt.Sprintf("first bad sequence %d", seq)) || !strings.Contains(s.Err, "hint: ") {
		t.Errorf("log verify with record %d damaged: exit code %d, %q", seq, s.Code, s.Err)
	}
	if out := f.Hub.Output(); !strings.Contains(out, "the hub is read-only") {
		t.Errorf("the hub does not say that it is read-only with record %d damaged:\n%s", seq, out)
	}
	s = f.Run("token", "create")
	if s.Code != 9 || !strings.Contains(s.Err, "the hub is read-only") {
		t.Errorf("token create on a read-only hub: exit code %d, %q", s.Code, s.Err)
	}
	if s = f.Run("run", "list"); s.Code != 0 {
		t.Errorf("run list on a read-only hub: exit code %d, %q", s.Code, s.Err)
	}
	if s = f.Run("run", "replay", string(f.id), "--verify"); s.Code != 9 {
		t.Errorf("run replay over a damaged log: exit code %d, %q", s.Code, s.Err)
	}
}

// One flipped byte in a stored object is named by the digest of its blob.
func TestFlippedByteInABlob(t *testing.T) {
	t.Parallel()
	f := finish(t)
	restore := f.CopyHub()
	rng := rand.New(rand.NewPCG(*chaosSeed, 6))
	for range 6 {
		d := f.order[rng.IntN(len(f.order))]
		data := f.blobs[d]
		head := data[:min(len(data), 4<<10)] // long objects are cut into messages; their beginning is in one piece
		file, at := f.find(t, "OBJ_BLOBS", head)
		at += rng.Int64N(int64(len(head)))
		f.Flip(file, at, byte(1+rng.IntN(255)))
		f.StartHub()
		s := f.Run("run", "replay", string(f.id), "--verify")
		if s.Code != 9 || !strings.Contains(s.Err, string(f.owner[d])) && !strings.Contains(s.Err, string(d)) {
			t.Errorf("with a byte of object %s of blob %s flipped: exit code %d, %q", d, f.owner[d], s.Code, s.Err)
		}
		if s := f.Run("log", "verify"); s.Code != 0 {
			t.Errorf("the log is sound, yet: exit code %d, %q", s.Code, s.Err)
		}
		f.Hub.Stop(kit.Patience)
		restore()
	}
}

// A damaged log is put together again from what is left of it and an older copy, proven by the heads that were signed; without the
// copy the repair is refused, because what is missing was acknowledged.
func TestLogRepair(t *testing.T) {
	t.Parallel()
	f := finish(t)
	restore := f.CopyHub()
	exported := filepath.Join(t.TempDir(), "log.jsonl")
	var lines strings.Builder
	for _, r := range f.records[:len(f.records)-10] { // an older copy
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(b, '\n'))
	}
	write(t, exported, lines.String())
	damaged := f.records[len(f.records)/2]
	file, at := f.find(t, "EVENTS", damaged.Data)
	f.Flip(file, at+3, 1)

	head := filepath.Join(f.HubDir(), "log.head")
	s := f.Run("log", "repair", "--dir", f.HubDir())
	if s.Code != 9 || !strings.Contains(s.Err, fmt.Sprintf("ends at %d", damaged.Seq-1)) || !strings.Contains(s.Err, "were acknowledged") {
		t.Errorf("without a copy: exit code %d, %s", s.Code, s.Err)
	}
	if s := f.Run("log", "repair", "--dir", f.HubDir(), "--from", exported, "--head", exported); s.Code != 2 || !strings.Contains(s.Err, "is no head that this hub has signed") {
		t.Errorf("with a head that is none: exit code %d, %s", s.Code, s.Err)
	}
	if s := f.Run("log", "repair", "--dir", f.HubDir(), "--from", exported, "--dry-run"); s.Code != 0 || !strings.Contains(s.Out, "nothing was changed") {
		t.Errorf("dry run: exit code %d, %s%s", s.Code, s.Out, s.Err)
	}
	s = f.Run("log", "repair", "--dir", f.HubDir(), "--from", exported, "--head", head, "--json")
	if s.Code != 0 || !strings.Contains(s.Out, fmt.Sprintf(`"records": %d`, len(f.records))) || !strings.Contains(s.Out, `"written": true`) {
		t.Fatalf("with the copy: exit code %d, %s%s", s.Code, s.Out, s.Err)
	}
	f.StartHub()
	if s := f.Run("log", "verify"); s.Code != 0 {
		t.Errorf("the repaired log: exit code %d, %s", s.Code, s.Err)
	}
	if d := cmp.Diff(f.records, f.Records()); d != "" {
		t.Errorf("the repaired log differs:\n%s", d)
	}
	if r, ok := f.Show(f.id); !ok || r.Phase != run.PhaseCompleted {
		t.Errorf("the run is %s", r.Phase)
	}
	if s := f.Run("run", "replay", string(f.id), "--verify"); s.Code != 0 {
		t.Errorf("replay: exit code %d, %s", s.Code, s.Err)
	}
	if s := f.Run("log", "repair", "--dir", f.HubDir()); s.Code != 6 || !strings.Contains(s.Err, "another hub is running") {
		t.Errorf("of a hub that runs: exit code %d, %s", s.Code, s.Err)
	}
	f.Must("token", "create") // it takes commands again
	f.Hub.Stop(kit.Patience)
	restore()

	// A run that was taken out is a copy of its own records.
	mine := slices.IndexFunc(f.records, func(r gateway.LogRecord) bool { return r.Seq > damaged.Seq })
	file, at = f.find(t, "EVENTS", f.records[mine].Data)
	f.Flip(file, at+5, 1)
	if s := f.Run("log", "repair", "--dir", f.HubDir(), "--from", f.export); s.Code != 0 || !strings.Contains(s.Out, "1 record from "+f.export) {
		t.Errorf("from an export: exit code %d, %s%s", s.Code, s.Out, s.Err)
	}
	restore()

	// The end of the log is gone and no copy has it: only the owner may give it up, by its number.
	cut := f.records[len(f.records)-5]
	file, at = f.find(t, "EVENTS", cut.Data)
	f.Flip(file, at+3, 1)
	s = f.Run("log", "repair", "--dir", f.HubDir(), "--from", exported)
	if s.Code != 9 || !strings.Contains(s.Err, fmt.Sprintf("--accept-loss %d", cut.Seq-1)) {
		t.Errorf("an end that nobody has: exit code %d, %s", s.Code, s.Err)
	}
	s = f.Run("log", "repair", "--dir", f.HubDir(), "--from", exported, "--accept-loss", itoa(int(cut.Seq-1)))
	if s.Code != 0 || !strings.Contains(s.Out, "are lost, as you accepted") {
		t.Errorf("accepted: exit code %d, %s%s", s.Code, s.Out, s.Err)
	}
	f.StartHub()
	if s := f.Run("log", "verify"); s.Code != 0 || !strings.Contains(s.Out, fmt.Sprintf("%d records", cut.Seq-1)) {
		t.Errorf("the shorter log: exit code %d, %s%s", s.Code, s.Out, s.Err)
	}
}
