package archive

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

// signer is a hub's key.
type signer struct{ ed25519.PrivateKey }

func newSigner(seed byte) signer {
	return signer{ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))}
}

func (s signer) Export(b []byte) []byte                  { return ed25519.Sign(s.PrivateKey, b) }
func (s signer) Sign(seq uint64, d domain.Digest) []byte { return []byte(fmt.Sprint(seq, d)) }
func (s signer) public() ed25519.PublicKey               { return s.Public().(ed25519.PublicKey) }

func registry() *event.Registry {
	r := event.NewRegistry()
	run.Register(r)
	pool.Register(r)
	return r
}

// small is a log with two runs and other things between their records, and the blobs of one of them.
type small struct {
	t       testing.TB
	records [][]byte
	runs    map[string]*run.State
	blobs   map[domain.Digest][]byte
	order   []domain.Digest
}

const ours = "r-1"

func newSmall(t testing.TB) *small {
	s := &small{t: t, runs: map[string]*run.State{}, blobs: map[domain.Digest][]byte{}}
	s.write(event.KindPool, pool.ID, &pool.Founded{})
	data := run.Dataset{Blob: s.blob("rows"), Samples: 40, Features: 2, Classes: 2, Block: 40}
	for _, id := range []string{"r-0", ours} {
		spec, err := run.Resolve(run.Spec{Name: "secret name of " + id, Epochs: 1, Batch: 10, Chunk: 10, Codec: run.CodecFP32, Round: run.Round{Chunks: 4}}, data)
		s.must(err)
		s.do(id, run.Submit{Spec: spec, Data: data})
	}
	for i := range 3 {
		s.do("r-0", run.Pause{Reason: fmt.Sprint(i)}, run.Resume{})
		s.do(ours, run.Pause{Reason: fmt.Sprint(i)}, run.Resume{})
	}
	s.do(ours, run.GrantLease{Slot: "m-1/0", Unit: run.UnitInit, Reason: "first weights"})
	s.do("r-0", run.Cancel{Reason: "enough"})
	base := s.blob("weights")
	s.do(ours, run.Initialise{Slot: "m-1/0", Epoch: s.runs[ours].Leases["m-1/0"].Epoch, Base: base, Layout: event.Digest(nil), Params: 3}, run.Cancel{Reason: "done"})
	s.write(event.KindPool, pool.ID, &pool.Founded{}) // behind the run: not part of it
	return s
}

func (s *small) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *small) blob(text string) domain.Digest {
	w := blob.NewWriter(context.Background(), func(_ context.Context, d domain.Digest, b []byte) error {
		s.blobs[d], s.order = bytes.Clone(b), append(s.order, d)
		return nil
	})
	_, err := w.Write([]byte(text))
	s.must(err)
	d, err := w.Close()
	s.must(err)
	return d
}

func (s *small) do(id string, cs ...run.Command) {
	s.t.Helper()
	for _, c := range cs {
		facts, err := run.Decide(s.runs[id], c)
		s.must(err)
		for _, f := range facts {
			s.runs[id] = run.Evolve(s.runs[id], s.write(event.KindRun, id, f))
		}
	}
}

func (s *small) write(k event.Kind, id string, f event.Data) event.Envelope {
	s.t.Helper()
	seq := uint64(len(s.records) + 1)
	e := event.Envelope{Seq: seq, ID: fmt.Sprintf("c-%d.0", seq), Cause: domain.CommandID(fmt.Sprintf("c-%d", seq)), Kind: k, Agg: id, Time: time.Unix(1e9, 0).UTC(), Actor: "operator", Data: f, Version: 1}
	if seq > 1 {
		e.Prev = event.Digest(s.records[seq-2])
	}
	b, err := event.Encode(e)
	s.must(err)
	s.records = append(s.records, b)
	return e
}

// mine reports whether the record belongs to the run that is taken out.
func (s *small) mine(seq uint64) bool {
	e, err := event.Decode(registry(), seq, s.records[seq-1])
	s.must(err)
	return e.Kind == event.KindRun && e.Agg == ours
}

// file writes the run as a hub does.
func (s *small) file(key signer) []byte {
	s.t.Helper()
	var out bytes.Buffer
	first, last := uint64(0), uint64(0)
	for i := range s.records {
		if seq := uint64(i + 1); s.mine(seq) {
			if last = seq; first == 0 {
				first = seq
			}
		}
	}
	w, err := NewWriter(&out, key, Header{Run: ours, First: first, Last: last, Before: event.Digest(s.records[first-2]), Program: "test"})
	s.must(err)
	for seq := first; seq <= last; seq++ {
		if s.mine(seq) {
			s.must(w.Record(seq, s.records[seq-1]))
		} else {
			s.must(w.Hide(seq, s.records[seq-1]))
		}
	}
	for _, d := range append(s.order, s.order...) { // one that comes again is left out
		s.must(w.Object(d, s.blobs[d]))
	}
	s.must(w.Close())
	return out.Bytes()
}

func open(b []byte, key ed25519.PublicKey) (*File, error) {
	return Open(bytes.NewReader(b), key, registry())
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	s := newSmall(t)
	b := s.file(newSigner(1))
	f, err := open(b, newSigner(1).public())
	s.must(err)
	if f.Run != ours || f.Records == 0 || f.Hidden == 0 || f.Objects != uint64(len(s.blobs)) || f.Bytes != int64(len(b)) || f.Last >= uint64(len(s.records)) {
		t.Errorf("%+v", f.Summary)
	}
	if f.Head != event.Digest(s.records[f.Last-1]) || f.Log.State().Phase != run.PhaseCancelled {
		t.Errorf("head %s, phase %s", f.Head, f.Log.State().Phase)
	}
	for d, want := range s.blobs {
		if got, err := f.Get(t.Context(), d); err != nil || !bytes.Equal(got, want) {
			t.Errorf("blob %s: %q %v", d.Short(), got, err)
		}
	}
	if _, err := f.Get(t.Context(), event.Digest([]byte("?"))); domain.KindOf(err) != domain.KindNotFound {
		t.Errorf("a blob that is not there: %v", err)
	}
}

// TestNothingOfOthersIsInTheFile: neither their names nor their reasons.
func TestNothingOfOthersIsInTheFile(t *testing.T) {
	b := newSmall(t).file(newSigner(1))
	for _, s := range []string{"r-0", "enough", "pool"} {
		if bytes.Contains(b, []byte(s)) {
			t.Errorf("%q is in the file", s)
		}
	}
	if !bytes.Contains(b, []byte("secret name of r-1")) {
		t.Error("what belongs to the run is not found this way, so the check above cannot fail")
	}
}

// frameAt lists the frames: kind, where they begin, and the sequence or digest they begin with.
type frameAt struct {
	kind       byte
	start, end int
	seq        uint64
	digest     string
}

func frames(b []byte) []frameAt {
	var out []frameAt
	for at := len(magic); at < len(b); {
		n := int(binary.BigEndian.Uint32(b[at+1:]))
		f := frameAt{kind: b[at], start: at, end: at + frameBytes + n}
		switch p := b[at+5 : at+5+n]; f.kind {
		case kindRecord, kindHidden:
			f.seq = binary.BigEndian.Uint64(p)
		case kindObject:
			f.digest = fmt.Sprintf("%x", p[:32])
		}
		out, at = append(out, f), f.end
	}
	return out
}

// TestEveryChangedByteIsNamed flips one bit in each byte of the file: the error is about integrity and says where.
func TestEveryChangedByteIsNamed(t *testing.T) {
	key := newSigner(1)
	b := newSmall(t).file(key)
	fs := frames(b)
	for i := range b {
		c := bytes.Clone(b)
		c[i] ^= 1 << (i % 8)
		_, err := open(c, key.public())
		if domain.KindOf(err) != domain.KindIntegrity {
			t.Fatalf("byte %d: %v", i, err)
		}
		f := frameAt{kind: 'm'}
		for _, x := range fs {
			if i >= x.start && i < x.end {
				f = x
			}
		}
		says := map[byte]string{'m': "beginning", kindHeader: "header", kindRecord: fmt.Sprintf("first bad sequence %d:", f.seq),
			kindHidden: fmt.Sprintf("first bad sequence %d:", f.seq), kindObject: "blob", kindEnd: "blob or end"}[f.kind]
		if f.kind == kindObject && i >= f.start+5+32 {
			says = f.digest
		}
		if !strings.Contains(err.Error(), says) {
			t.Errorf("byte %d, in a piece %q: %v, want %q", i, f.kind, err, says)
		}
	}
}

func TestEveryCutIsFound(t *testing.T) {
	key := newSigner(1)
	b := newSmall(t).file(key)
	for i := range b {
		if _, err := open(b[:i], key.public()); domain.KindOf(err) != domain.KindIntegrity {
			t.Fatalf("%d of %d bytes: %v", i, len(b), err)
		}
	}
	if _, err := open(append(bytes.Clone(b), 0), key.public()); domain.KindOf(err) != domain.KindIntegrity {
		t.Errorf("a byte more: %v", err)
	}
}

// forge makes a file of frames, with right checksums: what somebody without the hub's key can do.
func forge(parts ...[]byte) []byte { return append([]byte(magic), bytes.Join(parts, nil)...) }

// TestForgeriesAreFound by the signature, the chain or the order; checksums are all right.
func TestForgeriesAreFound(t *testing.T) {
	key := newSigner(1)
	s := newSmall(t)
	b := s.file(key)
	var parts [][]byte
	var kinds []byte
	for _, f := range frames(b) {
		parts, kinds = append(parts, b[f.start:f.end]), append(kinds, f.kind)
	}
	at := func(kind byte, n int) int {
		for i, k := range kinds {
			if k == kind {
				if n == 0 {
					return i
				}
				n--
			}
		}
		t.Fatalf("no piece %q", kind)
		return 0
	}
	payload := func(i int) []byte { return parts[i][5 : len(parts[i])-4] }
	with := func(i int, p ...[]byte) []byte {
		out := append([][]byte{}, parts[:i]...)
		out = append(out, p...)
		return forge(append(out, parts[i+1:]...)...)
	}
	object := func(text string) []byte {
		d := blob.Sum([]byte(text))
		return appendFrame(nil, kindObject, append(raw(d), text...))
	}
	hidden, lastObject := at(kindHidden, 0), at(kindEnd, 0)-1
	otherDigest := bytes.Clone(payload(hidden))
	otherDigest[len(otherDigest)-1] ^= 1
	otherHeader := bytes.Replace(payload(0), []byte("test"), []byte("tost"), 1)
	stranger := frames(s.file(newSigner(2)))
	strangers := s.file(newSigner(2))
	for name, f := range map[string][]byte{
		"a hidden digest changed":     with(hidden, appendFrame(nil, kindHidden, otherDigest)),
		"a header changed":            with(0, appendFrame(nil, kindHeader, otherHeader)),
		"a record left out":           with(at(kindRecord, 2)),
		"a record twice":              with(at(kindRecord, 2), parts[at(kindRecord, 2)], parts[at(kindRecord, 2)]),
		"the last record left out":    with(at(kindRecord, bytes.Count(kinds, []byte{kindRecord})-1)),
		"a blob left out":             with(lastObject),
		"a blob twice":                with(lastObject, parts[lastObject], parts[lastObject]),
		"a blob more":                 with(lastObject, parts[lastObject], object("a stranger")),
		"another blob in its place":   with(lastObject, object("a stranger")),
		"blobs in another order":      with(lastObject-1, parts[lastObject], parts[lastObject-1])[:0:0],
		"two headers":                 with(0, parts[0], parts[0]),
		"no header":                   with(0),
		"a record behind the blobs":   with(lastObject, parts[lastObject], parts[at(kindRecord, 0)]),
		"an end in the middle":        with(lastObject, parts[len(parts)-1], parts[lastObject]),
		"signed by another":           strangers,
		"another's signature":         with(len(parts)-1, strangers[stranger[len(stranger)-1].start:]),
		"no digests where some stand": with(hidden, appendFrame(nil, kindHidden, payload(hidden)[:8])),
		"half a digest":               with(hidden, appendFrame(nil, kindHidden, payload(hidden)[:8+31])),
		"an end that is none":         with(len(parts)-1, appendFrame(nil, kindEnd, []byte{0xc0})),
	} {
		if len(f) == 0 { // two pieces change places
			swapped := append([][]byte{}, parts...)
			swapped[lastObject], swapped[lastObject-1] = swapped[lastObject-1], swapped[lastObject]
			f = forge(swapped...)
		}
		if _, err := open(f, key.public()); domain.KindOf(err) != domain.KindIntegrity {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := open(forge(parts...), key.public()); err != nil {
		t.Fatalf("nothing changed, and yet: %v", err)
	}
}

// TestBombsAreRefusedBeforeTheyGrow: lengths are announced and never come.
func TestBombsAreRefusedBeforeTheyGrow(t *testing.T) {
	key := newSigner(1).public()
	for name, front := range map[string][]byte{
		"a header of 4 GiB":    {kindHeader, 0xff, 0xff, 0xff, 0xff},
		"a header of 16 KiB+1": binary.BigEndian.AppendUint32([]byte{kindHeader}, maxHeader+1),
		"a blob of 8 MiB":      binary.BigEndian.AppendUint32([]byte{kindObject}, 32+domain.MaxPartBytes),
		"a kind of its own":    {'x', 0, 0, 0, 0},
	} {
		got := allocated(t, func() {
			if _, err := open(append([]byte(magic), front...), key); domain.KindOf(err) != domain.KindIntegrity {
				t.Errorf("%s: %v", name, err)
			}
		})
		if got > 4<<20 {
			t.Errorf("%s: %d bytes were allocated", name, got)
		}
	}
}

// allocated is how many bytes f allocates, with what others do in the meantime.
func allocated(t *testing.T, f func()) uint64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestKeys(t *testing.T) {
	k := newSigner(1).public()
	if got, err := ParseKey(FormatKey(k)); err != nil || !bytes.Equal(got, k) {
		t.Errorf("%x %v", got, err)
	}
	for _, bad := range []string{"", "xyz", FormatKey(k)[2:], FormatKey(k) + "00"} {
		if _, err := ParseKey(bad); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := open(nil, k[:5]); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("a short key: %v", err)
	}
}

func TestMentions(t *testing.T) {
	d := func(s string) domain.Digest { return event.Digest([]byte(s)) }
	got := Mentions(&run.RoundMerged{Base: d("base"), Momentum: "", NextBase: d("next"), Inputs: []run.MergeInput{{Blob: d("delta")}}})
	if len(got) != 3 {
		t.Errorf("%v", got)
	}
}

// FuzzRead: no file ends the process, and none passes that this key did not sign.
func FuzzRead(f *testing.F) {
	s := newSmall(f)
	b := s.file(newSigner(1))
	f.Add(b)
	for _, x := range frames(b) {
		f.Add(b[:x.end])
	}
	key := newSigner(1).public()
	f.Fuzz(func(t *testing.T, c []byte) {
		if _, err := open(c, key); err == nil && !bytes.Equal(c, b) {
			t.Fatal("a file passed that nobody signed")
		}
	})
}
