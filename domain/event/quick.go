package event

import "encoding/binary"

// quick reads a record in the form that Encode writes, entry by entry in its order, without looking anything up: a replay
// reads a million of them. ok is false for every other form, which pack then reads or refuses with a reason. Data is not
// looked into: it is what lies between its key and the seal, and whoever decodes it finds whether that is one value.
func quick(b []byte) (rec record, ok bool) {
	q := quickReader{b: b, ok: len(b) > sealBytes+3}
	if !q.ok {
		return record{}, false
	}
	entries := q.b[0]
	q.at = 1
	rec.ID = q.entry('i')
	rec.Kind = q.entry('k')
	rec.Agg = q.entry('a')
	q.key('t')
	rec.Micros = q.number()
	rec.Actor = q.entry('w')
	rec.Cause = q.entry('c')
	want := byte(0x80 + recordEntries - 1)
	if q.next('r') {
		rec.Corr = q.entry('r')
		want++
		q.ok = q.ok && rec.Corr != "" // Encode leaves an empty one out
	}
	q.key('p')
	rec.Prev = q.digest()
	rec.Name = q.entry('n')
	q.key('v')
	rec.Version = int(q.number())
	q.key('d')
	end := len(b) - sealBytes - 2
	if !q.ok || entries != want || q.at >= end || b[end] != 0xa1 || b[end+1] != 'z' {
		return record{}, false
	}
	rec.Data, rec.Sum = b[q.at:end], b[len(b)-sumBytes:]
	return rec, true
}

// recordEntries is how many entries a record has, the optional one included.
const recordEntries = 12

// quickReader is a place in the bytes; ok turns false once and for all.
type quickReader struct {
	b  []byte
	at int
	ok bool
}

// take gives the next n bytes.
func (q *quickReader) take(n int) []byte {
	if !q.ok || n > len(q.b)-q.at {
		q.ok = false
		return nil
	}
	p := q.b[q.at : q.at+n]
	q.at += n
	return p
}

// next reports whether the next key is k.
func (q *quickReader) next(k byte) bool {
	return q.ok && q.at+1 < len(q.b) && q.b[q.at] == 0xa1 && q.b[q.at+1] == k
}

func (q *quickReader) key(k byte) {
	q.ok = q.next(k)
	q.at += 2
}

// entry reads a key and its text of at most 255 bytes.
func (q *quickReader) entry(k byte) string {
	q.key(k)
	c := q.take(1)
	if !q.ok {
		return ""
	}
	switch n := c[0]; {
	case n >= 0xa0 && n <= 0xbf:
		return string(q.take(int(n & 0x1f)))
	case n == 0xd9:
		if l := q.take(1); q.ok && l[0] > 31 {
			return string(q.take(int(l[0])))
		}
	}
	q.ok = false
	return ""
}

// number reads a number that is not negative, in its shortest form.
func (q *quickReader) number() int64 {
	c := q.take(1)
	if !q.ok {
		return 0
	}
	var n uint64
	switch c[0] {
	case 0xcc, 0xcd, 0xce, 0xcf:
		size := 1 << (c[0] - 0xcc)
		p := q.take(size)
		if !q.ok {
			return 0
		}
		var whole [8]byte
		copy(whole[8-size:], p)
		n = binary.BigEndian.Uint64(whole[:])
	default:
		n = uint64(c[0])
		q.ok = c[0] <= 0x7f
	}
	q.ok = q.ok && n <= 1<<62
	return int64(n)
}

// digest reads 32 bytes, or nil.
func (q *quickReader) digest() []byte {
	c := q.take(1)
	switch {
	case q.ok && c[0] == 0xc0:
		return nil
	case q.ok && c[0] == 0xc4:
		if l := q.take(1); q.ok && l[0] == 32 {
			return q.take(32)
		}
	}
	q.ok = false
	return nil
}
