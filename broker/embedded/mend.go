package embedded

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/minio/highwayhash"
)

// What nats-server (2.15.2) writes into a block: records of a header, the subject, headers, the message and a checksum. The
// checksum covers the sequence number, but a block that its index vouches for is read without looking at it.
const (
	recordHeader  = 22 // length 4, sequence 8, time 8, length of the subject 2; little endian
	recordSum     = 8
	recordHeaders = 1 << 31 // bit of the length: the message has headers
	recordErased  = 1 << 63 // bits of the sequence
	recordTomb    = 1 << 62
	// maxJump is more numbers than one block can hold: blocks end at 8 MiB, and no record is shorter than 30 bytes.
	maxJump   = 1 << 20
	maxRecord = 32 << 20 // the server refuses longer ones
)

// MendStore looks at what the server would believe unread and be ended by, before it starts on dir, and says what it changed.
//
// A sequence number far above the one before it makes the server list every number in between: one flipped bit takes all
// memory there is. Where the record's checksum is wrong as well, the number that follows the one before is put in its place.
// Where only the number was damaged, the record is whole again, which its checksum tells whoever reads it; where not, that
// record alone cannot be read.
//
// A count in the place of a durable consumer makes the server reserve so much, and a configuration that it cannot read takes the
// whole stream away. Such a place is taken away, such a consumer removed. The hub makes its observers' anew, and they are sent again
// what they had: they are promised every event at least once.
func MendStore(dir string) (said []string, err error) {
	streams, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*"))
	if err != nil {
		return nil, err
	}
	for _, s := range streams {
		blocks, err := blocksOf(filepath.Join(s, "msgs"))
		if err != nil {
			return said, err
		}
		var last uint64
		for _, b := range blocks {
			top, mended, err := mendBlock(b)
			said = append(said, mended...)
			if err != nil {
				return said, fmt.Errorf("look at the store's block %s: %w", b, err)
			}
			last = max(last, top)
		}
		mended, err := mendConsumers(s, last)
		said = append(said, mended...)
		if err != nil {
			return said, fmt.Errorf("look at the consumers of %s: %w", s, err)
		}
	}
	return said, nil
}

// mendBlock mends one block's file, and gives its highest number.
func mendBlock(path string) (last uint64, said []string, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, nil, err
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%s", filepath.Base(filepath.Dir(filepath.Dir(path))), strings.TrimSuffix(filepath.Base(path), ".blk")))
	sum, err := highwayhash.New64(key[:])
	if err != nil {
		return 0, nil, err
	}
	last, mended, err := mendNumbers(f, info.Size(), sum)
	for _, m := range mended {
		said = append(said, fmt.Sprintf("the number of record %d in block %s was damaged (%d)", m.now, path, m.was))
	}
	if err == nil && len(mended) > 0 {
		err = f.Sync()
	}
	return last, said, err
}

// mendedNumber is a number that was put in the place of another.
type mendedNumber struct{ was, now uint64 }

// mendNumbers goes from header to header of a block of so many bytes, as far as they make sense, and gives the highest
// number. It ends at the first header that does not: the server checks lengths itself. A record whose checksum is right is
// left alone, whatever its number.
func mendNumbers(block interface {
	io.ReaderAt
	io.WriterAt
}, size int64, sum hash.Hash) (last uint64, mended []mendedNumber, err error) {
	r := window{file: block}
	for at := int64(0); at+recordHeader <= size; {
		h, err := r.read(at)
		if err != nil {
			return last, mended, err
		}
		length, seq := int64(binary.LittleEndian.Uint32(h)&^recordHeaders), binary.LittleEndian.Uint64(h[4:])
		if length < recordHeader+recordSum || at+length > size {
			break
		}
		switch plain := seq &^ recordErased; {
		case seq&recordTomb != 0: // says that another record is gone, and has no place of its own
		case last > 0 && plain > last && plain-last > maxJump:
			record := make([]byte, min(length, maxRecord))
			if _, err := block.ReadAt(record, at); err != nil {
				return last, mended, err
			}
			if soundRecord(record, sum) {
				last = plain
				break
			}
			last++
			if _, err := block.WriteAt(binary.LittleEndian.AppendUint64(nil, last), at+4); err != nil {
				return last, mended, err
			}
			mended = append(mended, mendedNumber{was: plain, now: last})
		default:
			last = max(last, plain)
		}
		at += length
	}
	return last, mended, nil
}

// soundRecord tells whether a record's checksum, its last bytes, is that of its number, time, subject, headers and message.
func soundRecord(record []byte, sum hash.Hash) bool {
	end := len(record) - recordSum
	subject := recordHeader + int(binary.LittleEndian.Uint16(record[20:]))
	rest := subject
	if binary.LittleEndian.Uint32(record)&recordHeaders != 0 {
		rest += 4 // the length of the headers
	}
	if rest > end {
		return false
	}
	sum.Reset()
	sum.Write(record[4:20])
	sum.Write(record[recordHeader:subject])
	sum.Write(record[rest:end])
	return bytes.Equal(sum.Sum(nil), record[end:])
}

// window reads headers of a file through a buffer: short records share a read, and what lies between long ones is not read.
type window struct {
	file io.ReaderAt
	buf  [4 << 10]byte
	from int64
	n    int
}

// read gives the header at an offset, valid until the next read.
func (w *window) read(at int64) ([]byte, error) {
	if at < w.from || at+recordHeader > w.from+int64(w.n) {
		n, err := w.file.ReadAt(w.buf[:], at)
		if err != nil && (!errors.Is(err, io.EOF) || n < recordHeader) {
			return nil, err
		}
		w.from, w.n = at, n
	}
	return w.buf[at-w.from:][:recordHeader], nil
}
