// Package offline opens a copy of a stopped hub's store in this process, with a plain nats-server and without keys: what a
// power cut or a damaged disk has left is looked at by the code that the hub starts with. Tests and the programs in test
// call it; it never touches the folder it copies.
package offline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"tensorturn/broker"
	"tensorturn/broker/embedded"
	"tensorturn/broker/jetstream"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

// Limits of one look.
const (
	readyLimit = 20 * time.Second
	maxStore   = 64 << 30 // what hubs grant by default: a smaller one would refuse the streams as they are
	jsDomain   = "hub"
)

// Store is an open copy.
type Store struct {
	*jetstream.Store
	Dir    string // of the copy, as JetStream knows it
	server *server.Server
	nc     *nats.Conn
}

// Registry holds the facts of every aggregate.
func Registry() *event.Registry {
	r := event.NewRegistry()
	run.Register(r)
	machine.Register(r)
	pool.Register(r)
	return r
}

// Copy copies the store of the hub's folder to dir, which must not exist, in the form that Open takes.
func Copy(hubDir, dir string) error {
	accounts, err := filepath.Glob(filepath.Join(hubDir, "store", "jetstream", "A*"))
	if err != nil || len(accounts) != 1 {
		return fmt.Errorf("%d accounts with a store in %s: %v", len(accounts), hubDir, err)
	}
	return CopyTree(accounts[0], filepath.Join(dir, "jetstream", "$G"))
}

// CopyTree copies folders and files.
func CopyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o600)
	})
}

// Open starts a server on a copy made by Copy. The copy changes as a hub's store changes at a start.
func Open(ctx context.Context, dir string) (*Store, error) {
	if _, err := embedded.MendStore(dir); err != nil {
		return nil, err
	}
	s, err := server.NewServer(&server.Options{ServerName: "offline", DontListen: true, NoSigs: true, NoLog: true, JetStream: true,
		JetStreamDomain: jsDomain, StoreDir: dir, SyncAlways: true, JetStreamMaxStore: maxStore, JetStreamMaxMemory: 64 << 20})
	if err != nil {
		return nil, err
	}
	s.Start()
	o := &Store{Dir: dir, server: s}
	if !s.ReadyForConnections(readyLimit) {
		o.Close()
		return nil, errors.New("the server on the copy is not ready")
	}
	if o.nc, err = nats.Connect("", nats.InProcessServer(s)); err == nil {
		o.Store, err = jetstream.Open(ctx, o.nc, jsDomain, maxStore)
	}
	if err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// observed is how many events Observe fetches.
const observed = 16

// Observe leaves an observer of everything behind in the copy at dir, who has answered every other event of the first
// few: what the server keeps of a durable consumer lies in the store then.
func Observe(ctx context.Context, dir string) error {
	o, err := Open(ctx, dir)
	if err != nil {
		return err
	}
	defer o.Close()
	const name = "observer"
	if err := o.Feed.AdmitObserver(ctx, jetstream.Observer{Consumer: name, Filter: "tt.v1.events.>"}); err != nil {
		return err
	}
	js, err := natsjs.NewWithAPIPrefix(o.nc, "$JS."+jsDomain+".API")
	if err != nil {
		return err
	}
	c, err := js.Consumer(ctx, jetstream.FeedStream, name)
	if err != nil {
		return err
	}
	batch, err := c.Fetch(observed)
	if err != nil {
		return err
	}
	n := 0
	for m := range batch.Messages() {
		if n++; n%2 == 0 {
			if err := m.DoubleAck(ctx); err != nil {
				return err
			}
		}
	}
	if n != observed {
		return fmt.Errorf("the observer was sent %d events, of %d: %v", n, observed, batch.Error())
	}
	return nil
}

// Close stops the server and waits for its store.
func (o *Store) Close() {
	if o.nc != nil {
		o.nc.Close()
	}
	o.server.Shutdown()
	o.server.WaitForShutdown()
}

// Beats yields the stored heartbeats with their machines, oldest first.
func (o *Store) Beats(ctx context.Context) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		js, err := natsjs.NewWithAPIPrefix(o.nc, "$JS."+jsDomain+".API")
		if err != nil {
			return
		}
		s, err := js.Stream(ctx, jetstream.HeartbeatStream)
		if err != nil {
			return
		}
		info, err := s.Info(ctx)
		if err != nil {
			return
		}
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
			m, err := s.GetMsg(ctx, seq)
			if err != nil {
				continue
			}
			if !yield(m.Subject[strings.LastIndex(m.Subject, ".")+1:], m.Data) {
				return
			}
		}
	}
}

// Verify reads the log as a hub's start does, with the positions known from outside of it, and gives every good event to
// each; the error names the first bad sequence.
func (o *Store) Verify(ctx context.Context, known map[uint64]domain.Digest, each func(event.Envelope)) (uint64, domain.Digest, error) {
	v := event.NewVerifier(Registry())
	for seq, d := range known {
		v.Expect(seq, d)
	}
	return broker.Verify(ctx, o.Log, v, func(e event.Envelope) error { each(e); return nil })
}
