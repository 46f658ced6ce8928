package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// A damaged place of a consumer: the server starts with little memory, the consumer works, and where its state is taken away it
// is sent again all that its configuration promises, and nothing before.
func TestMendStoreConsumer(t *testing.T) {
	dir := aStore(t)
	sound, err := os.ReadFile(state(dir))
	if err != nil {
		t.Fatal(err)
	}
	if why := badConsumer(sound, storedMessages); why != "" {
		t.Fatalf("a sound state is refused: %s", why)
	}
	many := binary.AppendUvarint(nil, 1<<40)
	for name, c := range map[string]struct {
		state []byte
		anew  bool
	}{
		"sound":                   {sound, false},
		"many wait":               {append(append([]byte{22, 2, 0, 0, 12, 12}, many...), 0), true},
		"many were sent again":    {append([]byte{22, 2, 0, 0, 12, 12, 0}, many...), true},
		"sent far behind the end": {append(append([]byte{22, 2, 0, 0, 12}, many...), 0, 0), true},
		"more answered than sent": {[]byte{22, 2, 13, 12, 12, 12, 0, 0}, true},
		"another version":         {append([]byte{22, 1}, sound[2:]...), true},
		"cut off":                 {sound[:len(sound)-1], true},
		"longer":                  {append(bytes.Clone(sound), 0), true},
		"of no length":            {nil, true},
		"of great length":         {make([]byte, maxConsumerFile+1), true},
	} {
		t.Run(name, func(t *testing.T) {
			hurt := damaged(t, dir, block, func([]byte) {}, true)
			if err := os.WriteFile(state(hurt), c.state, 0o600); err != nil {
				t.Fatal(err)
			}
			n := taken(func() {
				if said := mustMend(t, hurt); len(said) > 0 != c.anew {
					t.Errorf("said %q", said)
				}
				plainServer(t, hurt, func(ctx context.Context, js jetstream.JetStream) {
					consumer, err := js.Consumer(ctx, "S", "C")
					if err != nil {
						t.Fatal(err)
					}
					want := uint64(firstSent + fetched)
					if c.anew {
						want = firstSent
					}
					if m, err := consumer.Next(); err != nil {
						t.Fatal(err)
					} else if meta, err := m.Metadata(); err != nil || meta.Sequence.Stream != want {
						t.Errorf("it is sent %+v (%v), want message %d", meta, err, want)
					}
				})
			})
			if n > maxTaken {
				t.Errorf("%d bytes of memory", n)
			}
		})
	}
}

// A changed byte in a consumer's configuration: the consumer is gone, the stream is there. The control: the server takes the
// whole stream away.
func TestMendStoreConfiguration(t *testing.T) {
	dir := aStore(t)
	config := func(dir string) string { return filepath.Join(filepath.Dir(state(dir)), consumerConfig) }
	sum := func(dir string) string { return filepath.Join(filepath.Dir(state(dir)), consumerSum) }
	flip := func(b []byte) { b[bytes.Index(b, []byte("ack_policy"))] ^= 1 }
	for name, hurt := range map[string]string{
		"a name in it":  damaged(t, dir, config, flip, true),
		"a value in it": damaged(t, dir, config, func(b []byte) { b[len(b)-9] ^= 1 }, true),
		"its checksum":  damaged(t, dir, sum, func(b []byte) { b[3] ^= 1 }, true),
	} {
		if said := mustMend(t, hurt); len(said) != 1 {
			t.Errorf("%s: said %q", name, said)
		}
		plainServer(t, hurt, func(ctx context.Context, js jetstream.JetStream) {
			s, err := js.Stream(ctx, "S")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if _, err := s.Consumer(ctx, "C"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
				t.Errorf("%s: the consumer is there: %v", name, err)
			}
			if _, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
				t.Errorf("%s: it cannot be made anew: %v", name, err)
			}
		})
	}
	plainServer(t, damaged(t, dir, config, flip, true), func(ctx context.Context, js jetstream.JetStream) {
		if _, err := js.Stream(ctx, "S"); err == nil {
			t.Error("control: the server reads a damaged configuration")
		}
	})
}

// FuzzConsumerState: what is accepted counts no more than it has bytes for.
func FuzzConsumerState(f *testing.F) {
	f.Add([]byte{22, 2, 3, 3, 12, 12, 1, 8, 1, 1, 0, 1, 2, 2}, uint64(60))
	f.Add([]byte{22, 2, 0, 0, 12, 12, 0xff, 0xff, 0xff, 0xff, 0x7f}, uint64(12))
	f.Fuzz(func(t *testing.T, b []byte, last uint64) {
		if badConsumer(b, last) != "" {
			return
		}
		r := bytes.NewReader(b[2:])
		var n []uint64
		for v, err := binary.ReadUvarint(r); err == nil; v, err = binary.ReadUvarint(r) {
			n = append(n, v)
		}
		waiting := n[4]
		if waiting > uint64(len(b)) || n[5+int(waiting)*3+int(min(waiting, 1))] > uint64(len(b)) {
			t.Errorf("accepted %v", n)
		}
	})
}
