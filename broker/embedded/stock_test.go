package embedded_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"tensorturn/broker/identity"
	"tensorturn/broker/wire"
	"tensorturn/test/hostile/pool"
)

// TestStockServerJoins builds nats-server as its makers ship it and starts it from exactly the files that an export
// wrote: no wrapper, no option of ours. A plain client behind it asks the hub and hears it.
func TestStockServerJoins(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "nats-server")
	out, err := exec.Command("go", "build", "-o", bin, "github.com/nats-io/nats-server/v2").CombinedOutput()
	if err != nil {
		t.Fatalf("build the stock server: %v\n%s", err, out)
	}
	p := pool.New(t)
	m := p.Enrol("stock", time.Hour)
	svc := p.Serve(nil)
	dir := filepath.Join(t.TempDir(), "export")
	pool.Must(t, identity.WriteStockLeaf(dir, identity.StockLeaf{
		Hub: p.URL, Machine: "stock", Credential: m.CurrentCredential(), User: m.Agent.Key(), CA: p.Keys.CA(), Listen: "127.0.0.1:-1",
	}))
	for _, f := range []string{identity.StockConfig, identity.StockCreds, identity.StockCA} {
		st, err := os.Stat(filepath.Join(dir, f))
		pool.Must(t, err)
		if st.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %04o", f, st.Mode().Perm())
		}
	}
	log := startStock(t, bin, dir)
	nc, err := nats.Connect("nats://" + clientAddr(t, log))
	pool.Must(t, err)
	defer nc.Close()
	wakes := subscribe(t, nc, wire.LocalWake)
	ctx := pool.Context(t, patience)
	got, err := pool.Sync(ctx, nc, "hello from a stock server")
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	if got != pool.Answer+m.Account {
		t.Errorf("answer %q", got)
	}
	waitWake(t, ctx, svc, m.Account, wakes, "hear me")
}

// startStock runs the binary until the test ends.
func startStock(t *testing.T, bin, dir string) *pool.Lines {
	t.Helper()
	log := &pool.Lines{}
	cmd := exec.Command(bin, "-c", identity.StockConfig)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	pool.Must(t, cmd.Start())
	var once sync.Once
	stop := func() {
		once.Do(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		})
	}
	t.Cleanup(stop)
	return log
}

// clientAddr reads the random port out of the server's own log.
func clientAddr(t *testing.T, log *pool.Lines) string {
	t.Helper()
	const mark = "Listening for client connections on "
	if err := log.Wait(pool.Context(t, patience), mark); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	_, rest, _ := strings.Cut(log.String(), mark)
	line, _, _ := bytes.Cut([]byte(rest), []byte("\n"))
	return string(line)
}

func TestStockLeafRefusesBadInput(t *testing.T) {
	p := pool.New(t)
	m := p.Enrol("stock", time.Hour)
	good := identity.StockLeaf{Hub: p.URL, Machine: "stock", Credential: m.CurrentCredential(), User: m.Agent.Key(), CA: p.Keys.CA()}
	for name, spoil := range map[string]func(*identity.StockLeaf){
		"http":            func(l *identity.StockLeaf) { l.Hub = "http://hub" },
		"quote in listen": func(l *identity.StockLeaf) { l.Listen = "127.0.0.1:1\"\nsystem_account: x" },
		"quote in name":   func(l *identity.StockLeaf) { l.Machine = "a\"b" },
		"no credential":   func(l *identity.StockLeaf) { l.Credential = "" },
	} {
		l := good
		spoil(&l)
		dir := t.TempDir()
		if err := identity.WriteStockLeaf(dir, l); err == nil {
			t.Errorf("%s was written", name)
		}
	}
}
