package jetstream_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"tensorturn/broker"
	"tensorturn/broker/brokertest"
	"tensorturn/broker/jetstream"
)

// testLimit ends a test that hangs.
const testLimit = 30 * time.Second

// granted is what the test's servers grant.
const granted = 8 << 30

// startServer starts nats-server in this process, with synced writes as the hub has them, on dir.
func startServer(t testing.TB, dir string, change ...func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{ServerName: "hub", DontListen: true, NoSigs: true, NoLog: true, JetStream: true, JetStreamDomain: "hub",
		StoreDir: dir, SyncAlways: true, JetStreamMaxStore: granted, JetStreamMaxMemory: 256 << 20}
	for _, c := range change {
		c(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("server is not ready")
	}
	t.Cleanup(func() { stopServer(s) })
	return s
}

func maxPayload(n int32) func(*server.Options) {
	return func(o *server.Options) { o.MaxPayload = n }
}

func stopServer(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

func connect(t testing.TB, s *server.Server) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func openStore(t testing.TB, s *server.Server) *jetstream.Store {
	t.Helper()
	st, err := jetstream.Open(t.Context(), connect(t, s), "hub", granted)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func newStore(t testing.TB) *jetstream.Store {
	t.Helper()
	return openStore(t, startServer(t, t.TempDir()))
}

func TestLogSuite(t *testing.T) {
	brokertest.Log(t, func(t *testing.T) broker.Log { return newStore(t).Log })
}

func TestBlobsSuite(t *testing.T) {
	brokertest.Blobs(t, func(t *testing.T) broker.Blobs { return newStore(t).Blobs })
}

// TestBlobsSuiteWithWholeParts runs with the message size that the hub allows: each part is one message.
func TestBlobsSuiteWithWholeParts(t *testing.T) {
	brokertest.Blobs(t, func(t *testing.T) broker.Blobs {
		return openStore(t, startServer(t, t.TempDir(), maxPayload(8<<20+64<<10))).Blobs
	})
}
