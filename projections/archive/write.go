package archive

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"

	"tensorturn/domain"
	"tensorturn/domain/pack"
)

// Signer signs with the hub's key.
type Signer interface {
	// Export signs what Signed gives for a statement.
	Export(body []byte) []byte
	// Sign makes a signed head of a position of the log.
	Sign(seq uint64, digest domain.Digest) []byte
}

// Writer writes one file. Calls come in the order of the frames: records from Header.First to Header.Last without a gap,
// shown or hidden, the first and the last one shown; then objects; then Close. It keeps one frame of hidden digests in memory.
type Writer struct {
	out     io.Writer
	sign    Signer
	header  Header
	state   statement
	next    uint64
	last    domain.Digest
	links   rolling
	names   rolling
	hidden  []byte // digests not written yet
	objects map[domain.Digest]bool
	buf     []byte
}

// NewWriter begins a file.
func NewWriter(out io.Writer, sign Signer, h Header) (*Writer, error) {
	body, err := pack.Encode(h)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	w := &Writer{out: out, sign: sign, header: h, state: statement{Header: sum[:]}, next: h.First, links: newRolling(), names: newRolling(), objects: map[domain.Digest]bool{}}
	if _, err := io.WriteString(out, magic); err != nil {
		return nil, err
	}
	return w, w.frame(kindHeader, body)
}

func (w *Writer) frame(kind byte, payload []byte) error {
	w.buf = appendFrame(w.buf[:0], kind, payload)
	_, err := w.out.Write(w.buf)
	return err
}

// Record shows a record of the run.
func (w *Writer) Record(seq uint64, data []byte) error {
	domain.Assert(seq == w.next, "records come without a gap")
	if err := w.flush(); err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	w.links.add(sum[:])
	w.state.Records++
	w.next, w.last = seq+1, domain.Digest(hex.EncodeToString(sum[:]))
	return w.frame(kindRecord, append(binary.BigEndian.AppendUint64(nil, seq), data...))
}

// Hide stands for a record of somebody else.
func (w *Writer) Hide(seq uint64, data []byte) error {
	domain.Assert(seq == w.next, "records come without a gap")
	sum := sha256.Sum256(data)
	w.links.add(sum[:])
	if len(w.hidden) == 0 {
		w.hidden = binary.BigEndian.AppendUint64(w.hidden, seq)
	}
	w.hidden, w.next = append(w.hidden, sum[:]...), seq+1
	if len(w.hidden) == 8+32*maxDigests {
		return w.flush()
	}
	return nil
}

func (w *Writer) flush() error {
	if len(w.hidden) == 0 {
		return nil
	}
	err := w.frame(kindHidden, w.hidden)
	w.hidden = w.hidden[:0]
	return err
}

// Object adds a part or a manifest under its digest; one that is there already is left out.
func (w *Writer) Object(d domain.Digest, data []byte) error {
	if w.objects[d] {
		return nil
	}
	w.complete()
	if len(w.objects) == MaxObjects {
		return domain.Invalid("export run "+string(w.header.Run), "it has more blobs than a file may hold", "export it with --events-only")
	}
	w.objects[d] = true
	w.state.Objects++
	w.names.add(raw(d))
	return w.frame(kindObject, append(raw(d), data...))
}

// Close signs. The file is whole when it returns.
func (w *Writer) Close() error {
	w.complete()
	w.state.Head, w.state.Links, w.state.Names = w.last, w.links.sum(), w.names.sum()
	body, err := pack.Encode(w.state)
	if err != nil {
		return err
	}
	e, err := pack.Encode(end{Statement: body, Signature: w.sign.Export(Signed(body)), Head: w.sign.Sign(w.header.Last, w.last)})
	if err != nil {
		return err
	}
	return w.frame(kindEnd, e)
}

// complete holds that every record has come.
func (w *Writer) complete() {
	domain.Assert(len(w.hidden) == 0 && w.next == w.header.Last+1, "objects and the end come behind the run's last record")
}

// raw is the 32 bytes of a digest.
func raw(d domain.Digest) []byte {
	b, err := hex.DecodeString(string(d))
	domain.Assert(err == nil && len(b) == 32, "a digest is 32 bytes in hex")
	return b
}
