package embedded

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	storedMessages = 60
	firstSent      = 3 // to the consumer, by its configuration
	fetched        = 12
	// maxTaken is far above what a start on so small a store allocates (2 MiB measured), and far below one bad number.
	maxTaken = 64 << 20
)

// plainServer runs a server on dir and hands its JetStream to use.
func plainServer(t testing.TB, dir string, use func(context.Context, jetstream.JetStream)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := server.NewServer(&server.Options{ServerName: "plain", DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server is not ready")
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	use(ctx, js)
}

// aStore makes a store with messages of unlike length, two of them deleted, and a consumer that has answered some of what it was
// sent, was sent one thing twice, and owes the rest.
func aStore(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	plainServer(t, dir, func(ctx context.Context, js jetstream.JetStream) {
		s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.*"}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range storedMessages {
			m := nats.NewMsg(fmt.Sprintf("s.%d", i%7))
			m.Data = bytes.Repeat([]byte{byte(i)}, 1+i*i)
			m.Header.Set("Number", fmt.Sprint(i))
			if _, err := js.PublishMsg(ctx, m); err != nil {
				t.Fatal(err)
			}
		}
		for _, seq := range []uint64{20, 21} {
			if err := s.DeleteMsg(ctx, seq); err != nil {
				t.Fatal(err)
			}
		}
		c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy,
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: firstSent})
		if err != nil {
			t.Fatal(err)
		}
		batch, err := c.Fetch(fetched)
		if err != nil {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			switch meta, err := m.Metadata(); {
			case err != nil:
				t.Fatal(err)
			case meta.Sequence.Stream < firstSent+3 || meta.Sequence.Stream == firstSent+6:
				err = m.DoubleAck(ctx)
			case meta.Sequence.Stream == firstSent+4:
				err = m.Nak()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		again, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if meta, err := again.Metadata(); err != nil || meta.NumDelivered != 2 {
			t.Fatalf("nothing was sent twice: %+v %v", meta, err)
		}
	})
	return dir
}

// block and state are the files of aStore's stream and consumer.
func block(dir string) string {
	return filepath.Join(dir, "jetstream", "$G", "streams", "S", "msgs", "1.blk")
}

func state(dir string) string {
	return filepath.Join(dir, "jetstream", "$G", "streams", "S", "obs", "C", "o.dat")
}

// headers gives the offset of each record's header by its number.
func headers(t testing.TB, blk []byte) map[uint64]int {
	t.Helper()
	out := map[uint64]int{}
	for at := 0; at < len(blk); at += int(binary.LittleEndian.Uint32(blk[at:]) &^ recordHeaders) {
		if seq := binary.LittleEndian.Uint64(blk[at+4:]); seq&recordTomb == 0 {
			out[seq&^recordErased] = at
		}
	}
	if len(out) < storedMessages-2 {
		t.Fatalf("%d records in the block", len(out))
	}
	return out
}

// damaged copies the store, changes one of its files, and leaves the index out if wanted, as a crash does.
func damaged(t testing.TB, from string, file func(string) string, change func([]byte), indexed bool) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file(dir))
	if err != nil {
		t.Fatal(err)
	}
	change(b)
	if err := os.WriteFile(file(dir), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if !indexed {
		if err := os.Remove(filepath.Join(filepath.Dir(block(dir)), "index.db")); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// stored is what aStore stored at a place, as read tells it.
func stored(seq uint64) string {
	i := seq - 1
	return fmt.Sprintf("s.%d %d %d", i%7, i, 1+i*i)
}

// read gives every message that a server on dir still has.
func read(t testing.TB, dir string) map[uint64]string {
	t.Helper()
	out := map[uint64]string{}
	plainServer(t, dir, func(ctx context.Context, js jetstream.JetStream) {
		s, err := js.Stream(ctx, "S")
		if err != nil {
			t.Fatal(err)
		}
		for seq := range uint64(storedMessages) {
			if m, err := s.GetMsg(ctx, seq+1); err == nil {
				out[seq+1] = fmt.Sprintf("%s %s %d", m.Subject, m.Header.Get("Number"), len(m.Data))
			}
		}
	})
	return out
}

// taken is how many bytes were allocated meanwhile.
func taken(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func mustMend(t testing.TB, dir string) []string {
	t.Helper()
	said, err := MendStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// A sound store is left as it is, to the byte.
func TestMendStoreLeavesSoundOnesAlone(t *testing.T) {
	dir := aStore(t)
	for _, file := range []string{block(dir), state(dir)} {
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if said := mustMend(t, dir); len(said) > 0 {
			t.Errorf("said %q of a sound store", said)
		}
		if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s was changed (%v)", file, err)
		}
	}
	if said := mustMend(t, t.TempDir()); len(said) > 0 {
		t.Errorf("said %q of no store", said)
	}
}

// One flipped bit in a record's number: with MendStore every message is there. Without it, the server fills the numbers in
// between, sees that they are too many, and cuts the block off there: the control, with a bit that takes little memory.
func TestMendStoreNumber(t *testing.T) {
	dir := aStore(t)
	whole := read(t, dir)
	blk, err := os.ReadFile(block(dir))
	if err != nil {
		t.Fatal(err)
	}
	at := headers(t, blk)
	for _, seq := range []uint64{2, 19, 31, storedMessages} {
		for bit := 21; bit < 62; bit += 4 {
			flip := func(b []byte) { b[at[seq]+4+bit/8] ^= 1 << (bit % 8) }
			hurt := damaged(t, dir, block, flip, true)
			if said := mustMend(t, hurt); len(said) != 1 {
				t.Fatalf("bit %d of record %d: said %q", bit, seq, said)
			}
			if got := read(t, hurt); !maps.Equal(got, whole) {
				t.Errorf("bit %d of record %d: %d messages of %d", bit, seq, len(got), len(whole))
			}
			if bit == 21 {
				if got := read(t, damaged(t, dir, block, flip, true)); len(got) >= len(whole) {
					t.Errorf("control: without mending %d messages of %d are left", len(got), len(whole))
				}
			}
		}
	}
}

// Whatever byte of a header changes: the server takes little memory, and what it answers is what was stored.
func TestMendStoreHeaders(t *testing.T) {
	dir := aStore(t)
	blk, err := os.ReadFile(block(dir))
	if err != nil {
		t.Fatal(err)
	}
	at := headers(t, blk)
	for i, seq := range []uint64{1, 22, storedMessages} {
		for b := range recordHeader {
			hurt := damaged(t, dir, block, func(blk []byte) { blk[at[seq]+b] ^= byte(0x15 + 0x60*i) }, b%2 == 0)
			n := taken(func() {
				mustMend(t, hurt)
				for place, got := range read(t, hurt) { // what was deleted may be back: the note of it stood at the end
					if got != stored(place) {
						t.Errorf("byte %d of record %d: message %d is %q, was %q", b, seq, place, got, stored(place))
					}
				}
			})
			if n > maxTaken {
				t.Errorf("byte %d of record %d: %d bytes of memory", b, seq, n)
			}
		}
	}
}

// A sound record is left alone however far its number is from the one before, and every record that a server wrote is sound.
func TestSoundRecords(t *testing.T) {
	dir := aStore(t)
	blk, err := os.ReadFile(block(dir))
	if err != nil {
		t.Fatal(err)
	}
	key := sha256.Sum256([]byte("S-1"))
	sum, err := highwayhash.New64(key[:])
	if err != nil {
		t.Fatal(err)
	}
	records := slices.Sorted(maps.Values(headers(t, blk)))
	for _, at := range records {
		length := int(binary.LittleEndian.Uint32(blk[at:]) &^ recordHeaders)
		record := bytes.Clone(blk[at : at+length])
		if !soundRecord(record, sum) {
			t.Errorf("the record at %d is not sound", at)
		}
		record[9] ^= 4
		if soundRecord(record, sum) {
			t.Errorf("the record at %d is sound with another number", at)
		}
	}
	far := memory(bytes.Clone(blk))
	last := records[len(records)-1]
	far[last+8] ^= 1 // its number, and the checksum that belongs to it
	sum.Reset()
	slen := int(binary.LittleEndian.Uint16(far[last+20:]))
	end := last + int(binary.LittleEndian.Uint32(far[last:])&^recordHeaders)
	for _, part := range [][]byte{far[last+4 : last+20], far[last+recordHeader:][:slen], far[last+recordHeader+slen+4 : end-recordSum]} {
		sum.Write(part)
	}
	copy(far[end-recordSum:], sum.Sum(nil))
	if _, mended, err := mendNumbers(far, int64(end), sum); err != nil || len(mended) > 0 {
		t.Errorf("mended %v of sound records (%v)", mended, err)
	}
}

// FuzzMendNumbers: whatever a block holds, its length stays, no number is far above the one before any more, and nothing is
// left to mend.
func FuzzMendNumbers(f *testing.F) {
	record := func(seq uint64, length int) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(length))
		return append(binary.LittleEndian.AppendUint64(b, seq), make([]byte, length-12)...)
	}
	f.Add(slices.Concat(record(1, 30), record(2, 5000), record(3|1<<45, 31), record(2|recordTomb, 30), record(4, 30)))
	f.Add(slices.Concat(record(7, 30), record(1<<61, 40), record(1<<60|recordErased, 30)))
	sum, err := highwayhash.New64(make([]byte, 32))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		was := len(b)
		if _, _, err := mendNumbers(memory(b), int64(len(b)), sum); err != nil || len(b) != was {
			t.Fatal(len(b), err)
		}
		if _, mended, err := mendNumbers(memory(b), int64(len(b)), sum); err != nil || len(mended) > 0 {
			t.Errorf("mended again: %v %v", mended, err)
		}
	})
}

// memory is a block without a file.
type memory []byte

func (m memory) ReadAt(b []byte, at int64) (int, error)  { return bytes.NewReader(m).ReadAt(b, at) }
func (m memory) WriteAt(b []byte, at int64) (int, error) { return copy(m[at:], b), nil }

// BenchmarkMendBlock: a full block of events of 300 bytes, and one of parts of blobs.
func BenchmarkMendBlock(b *testing.B) {
	for _, length := range []int{300, 1 << 20} {
		b.Run(fmt.Sprint(length), func(b *testing.B) {
			var blk []byte
			for seq := uint64(1); len(blk) < 8<<20; seq++ {
				blk = binary.LittleEndian.AppendUint32(blk, uint32(length))
				blk = append(binary.LittleEndian.AppendUint64(blk, seq), make([]byte, length-12)...)
			}
			name := filepath.Join(b.TempDir(), "1.blk")
			if err := os.WriteFile(name, blk, 0o600); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(blk)))
			for b.Loop() {
				if _, _, err := mendBlock(name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
