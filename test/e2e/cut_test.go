package e2e

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"tensorturn/broker/gateway"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

// A power cut that leaves a batch stored in part is no event: nobody was told of it, the hub takes it out when it starts, and goes on. The
// same bytes are damage, and the hub changes nothing and is read-only, when the kept position lies behind the cut or cannot be read, or
// when observers were told of more.
func TestPowerCutWithinABatch(t *testing.T) {
	t.Parallel()
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	a := p.StartAgent("a")
	id := p.Submit(spec(t, "model: {kind: mlp, hidden: [16]}\nbatch: 32\nepochs: 60\nchunk: 128\nround: {chunks: 12}\n"))
	head := filepath.Join(p.HubDir(), "log.head")
	var early []byte
	p.AwaitRun(id, "a kept position in the middle", func(r runs.Run) bool {
		b, err := os.ReadFile(head)
		if err == nil && r.Ledger.Counted > 0 {
			early = b
		}
		return early != nil
	})
	checkRun(t, p, p.AwaitEnd(id))
	a.Stop(kit.Patience)
	records := p.Records()
	p.Hub.Stop(kit.Patience)
	feed := cutInBatch(t, p)
	late, err := os.ReadFile(head)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(early)
	flipped[len(flipped)/2] ^= 1
	restore := p.CopyHub()
	for what, kept := range map[string][]byte{"the position behind the cut": late, "a damaged position": flipped, "a feed that tells more": early} {
		if what != "a feed that tells more" {
			remove(t, feed)
		}
		write(t, head, string(kept))
		said := len(p.Hub.Output())
		p.StartHub()
		if s := p.Run("token", "create"); s.Code != 9 || !strings.Contains(p.Hub.Output()[said:], "the hub is read-only") {
			t.Errorf("with %s the hub takes commands: exit code %d, %s", what, s.Code, p.Hub.Output()[said:])
		}
		p.Hub.Stop(kit.Patience)
		restore()
	}

	remove(t, feed)
	write(t, head, string(early))
	said := len(p.Hub.Output())
	p.StartHub()
	if out := p.Hub.Output()[said:]; !strings.Contains(out, "the log was repaired") || strings.Contains(out, "read-only") {
		t.Errorf("after a power cut the hub says:\n%s", out)
	}
	got := p.Records()
	same := slices.EqualFunc(got[:min(len(got), len(records))], records[:min(len(got), len(records))], func(a, b gateway.LogRecord) bool { return gocmp.Equal(a, b) })
	if len(got) == 0 || len(got) >= len(records) || !same {
		t.Errorf("of %d records %d are left, the first ones: %v", len(records), len(got), same)
	}
	if s := p.Run("log", "verify"); s.Code != 0 {
		t.Errorf("log verify: exit code %d, %s", s.Code, s.Err)
	}
	p.Must("token", "create")
	kept, _ := filepath.Glob(filepath.Join(p.HubDir(), "damaged-*", "EVENTS"))
	if len(kept) != 1 {
		t.Fatalf("the old log is kept in %v", kept)
	}
	p.Hub.Stop(kit.Patience)

	// What was put aside is a source of log repair. One that is killed when the old log is aside and the new one not yet in its place is
	// finished by the next start.
	if s := p.Run("log", "repair", "--dir", p.HubDir(), "--from", filepath.Dir(kept[0]), "--dry-run"); s.Code != 0 {
		t.Errorf("from what was put aside: exit code %d, %s", s.Code, s.Err)
	}
	events := filepath.Dir(filepath.Dir(p.Blocks("EVENTS")[0]))
	within, err := filepath.Rel(p.HubDir(), events)
	if err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(p.HubDir(), "repairing", "result", within)
	if err := cmp.Or(os.MkdirAll(filepath.Dir(made), 0o700), os.Rename(events, made)); err != nil {
		t.Fatal(err)
	}
	p.StartHub()
	p.Must("token", "create")
	if s := p.Run("log", "verify"); s.Code != 0 {
		t.Errorf("log verify after a repair that was killed: exit code %d, %s", s.Code, s.Err)
	}
}

// cutInBatch ends the stopped hub's log within its last batch of several records, as a power cut does, takes away snapshots of more,
// and gives the folder of the feed, which is not behind the log either after a power cut.
func cutInBatch(t *testing.T, p *kit.Pool) (feed string) {
	t.Helper()
	files := p.Blocks("EVENTS")
	last := files[len(files)-1]
	raw, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(raw, []byte("Nats-Batch-Commit"))
	if at < 0 {
		t.Fatal("the last block holds no batch")
	}
	streams := filepath.Dir(filepath.Dir(filepath.Dir(last)))
	for _, err := range []error{os.Truncate(last, int64(at)), os.Remove(filepath.Join(filepath.Dir(last), "index.db")),
		os.RemoveAll(filepath.Join(p.HubDir(), "snapshots"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(streams, "FEED")
}

func remove(t *testing.T, folder string) {
	t.Helper()
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
}
