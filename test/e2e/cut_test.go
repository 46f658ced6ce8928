package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/broker/gateway"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

// A power cut that leaves a batch stored in part is no event: nobody was told of it, the hub takes it out when it starts, and goes on. With a
// kept position behind the cut the same bytes are damage: the hub changes nothing and is read-only.
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
	cutInBatch(t, p)

	p.StartHub()
	if s := p.Run("token", "create"); s.Code != 9 || !strings.Contains(p.Hub.Output(), "the hub is read-only") {
		t.Errorf("a batch that was acknowledged is cut, and the hub takes commands: exit code %d, %s", s.Code, p.Hub.Output())
	}
	p.Hub.Stop(kit.Patience)

	if err := os.WriteFile(head, early, 0o600); err != nil {
		t.Fatal(err)
	}
	said := len(p.Hub.Output())
	p.StartHub()
	if out := p.Hub.Output()[said:]; !strings.Contains(out, "the log was repaired") || strings.Contains(out, "read-only") {
		t.Errorf("after a power cut the hub says:\n%s", out)
	}
	got := p.Records()
	same := slices.EqualFunc(got[:min(len(got), len(records))], records[:min(len(got), len(records))], func(a, b gateway.LogRecord) bool { return cmp.Equal(a, b) })
	if len(got) == 0 || len(got) >= len(records) || !same {
		t.Errorf("of %d records %d are left, the first ones: %v", len(records), len(got), same)
	}
	if s := p.Run("log", "verify"); s.Code != 0 {
		t.Errorf("log verify: exit code %d, %s", s.Code, s.Err)
	}
	p.Must("token", "create")
	if kept, _ := filepath.Glob(filepath.Join(p.HubDir(), "damaged-*", "EVENTS")); len(kept) != 1 {
		t.Errorf("the old log is kept in %v", kept)
	}
}

// cutInBatch ends the stopped hub's log within its last batch of several records, as a power cut does, and takes away what is derived from the
// log: that was never behind it.
func cutInBatch(t *testing.T, p *kit.Pool) {
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
		os.RemoveAll(filepath.Join(streams, "FEED")), os.RemoveAll(filepath.Join(p.HubDir(), "snapshots"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
}
