package pack

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"strconv"

	"tensorturn/domain"
)

// walk reads b as one value of shape s; a nil shape takes anything.
func walk(b []byte, s *shape, lim Limits) error {
	if len(b) > lim.Bytes {
		return invalid(fmt.Sprintf("%d bytes, more than %d", len(b), lim.Bytes))
	}
	w := walker{b: b, lim: lim}
	if err := w.value(s, 0); err != nil {
		return invalid(err.Error())
	}
	if w.off != len(b) {
		return invalid(fmt.Sprintf("%d bytes behind the value", len(b)-w.off))
	}
	return nil
}

// walker is a position in the bytes and what has been counted so far.
type walker struct {
	b        []byte
	off      int
	elements int
	memory   int
	lim      Limits
}

// fault is an error with the path to it, built from the inside out.
type fault struct{ path, why string }

func (f *fault) Error() string {
	if f.path == "" {
		return f.why
	}
	return "field " + f.path + ": " + f.why
}

func faultf(format string, args ...any) error { return &fault{why: fmt.Sprintf(format, args...)} }

// under adds one step to the path of a fault.
func under(step string, err error) error {
	if f, ok := err.(*fault); ok {
		sep := "."
		if f.path == "" || f.path[0] == '[' {
			sep = ""
		}
		f.path = step + sep + f.path
	}
	return err
}

// take gives the next n bytes.
func (w *walker) take(n uint64) ([]byte, error) {
	if n > uint64(len(w.b)-w.off) {
		return nil, faultf("%d bytes announced, %d left", n, len(w.b)-w.off)
	}
	p := w.b[w.off : w.off+int(n)]
	w.off += int(n)
	return p, nil
}

// number reads n big-endian bytes, n being 1, 2, 4 or 8.
func (w *walker) number(n int) (uint64, error) {
	p, err := w.take(uint64(n))
	if err != nil {
		return 0, err
	}
	switch n {
	case 1:
		return uint64(p[0]), nil
	case 2:
		return uint64(binary.BigEndian.Uint16(p)), nil
	case 4:
		return uint64(binary.BigEndian.Uint32(p)), nil
	}
	return binary.BigEndian.Uint64(p), nil
}

// charge counts memory that decoding would allocate.
func (w *walker) charge(n int) error {
	if n > w.lim.Memory-w.memory {
		return faultf("would take more than %d bytes of memory", w.lim.Memory)
	}
	w.memory += n
	return nil
}

// count counts n values more.
func (w *walker) count(n int) error {
	if n > w.lim.Elements-w.elements {
		return faultf("more than %d values", w.lim.Elements)
	}
	w.elements += n
	return nil
}

// anyBytes is what one value costs where the type does not say: an interface, its box, its share of a map's bucket.
const anyBytes = 96

// value reads one value of shape s at nesting depth.
func (w *walker) value(s *shape, depth int) error {
	if err := w.count(1); err != nil {
		return err
	}
	if s != nil && s.kind == reflect.Interface {
		if err := w.charge(anyBytes); err != nil {
			return err
		}
	}
	c, err := w.number(1)
	if err != nil {
		return err
	}
	if c == 0xc0 {
		if s != nil && (s.time || s.kind == reflect.Array) {
			return faultf("nil is no %s", s.name)
		}
		return nil
	}
	for s != nil && s.kind == reflect.Pointer {
		s = s.elem
		if err := w.charge(s.size); err != nil {
			return err
		}
	}
	if s != nil && s.raw {
		start := w.off
		if err := w.body(byte(c), nil, depth); err != nil {
			return err
		}
		return w.charge(w.off - start + 1)
	}
	return w.body(byte(c), s, depth)
}

// body reads what follows the code c. The cases are the table of the msgpack specification.
func (w *walker) body(c byte, s *shape, depth int) error {
	switch {
	case c <= 0x7f:
		return integer(s, false, uint64(c))
	case c <= 0x8f:
		return w.mapping(uint64(c&0x0f), s, depth)
	case c <= 0x9f:
		return w.list(uint64(c&0x0f), s, depth)
	case c <= 0xbf:
		return w.text(uint64(c&0x1f), s)
	case c >= 0xe0:
		return integer(s, true, uint64(-int64(int8(c))))
	}
	switch c {
	case 0xc2, 0xc3:
		return want(s, "a boolean", reflect.Bool)
	case 0xc4, 0xc5, 0xc6:
		return w.sized(1<<(c-0xc4), s, w.bytes)
	case 0xc7:
		n, err := w.number(1)
		if err != nil {
			return err
		}
		return w.timestamp(n, s)
	case 0xca, 0xcb:
		return w.float(int(c-0xc9)*4, s)
	case 0xcc, 0xcd, 0xce, 0xcf:
		n, err := w.number(1 << (c - 0xcc))
		if err != nil {
			return err
		}
		return integer(s, false, n)
	case 0xd0, 0xd1, 0xd2, 0xd3:
		return w.signed(1<<(c-0xd0), s)
	case 0xd6, 0xd7:
		return w.timestamp(uint64(4)<<(c-0xd6), s)
	case 0xd9, 0xda, 0xdb:
		return w.sized(1<<(c-0xd9), s, w.text)
	case 0xdc, 0xdd:
		return w.nested(2<<(c-0xdc), s, depth, w.list)
	case 0xde, 0xdf:
		return w.nested(2<<(c-0xde), s, depth, w.mapping)
	}
	return faultf("code %#x", c)
}

// sized reads a length of size bytes and goes on with it.
func (w *walker) sized(size int, s *shape, then func(uint64, *shape) error) error {
	n, err := w.number(size)
	if err != nil {
		return err
	}
	return then(n, s)
}

// nested is sized for what holds other values.
func (w *walker) nested(size int, s *shape, depth int, then func(uint64, *shape, int) error) error {
	n, err := w.number(size)
	if err != nil {
		return err
	}
	return then(n, s, depth)
}

// enter checks the announced length of a map or list against what can still come.
func (w *walker) enter(n, least uint64, depth int) error {
	if depth >= w.lim.Depth {
		return faultf("nested deeper than %d", w.lim.Depth)
	}
	if n > uint64(len(w.b)-w.off)/least { // each value takes a byte at least
		return faultf("%d values announced, %d bytes left", n, len(w.b)-w.off)
	}
	if n > uint64(w.lim.Elements-w.elements) {
		return faultf("more than %d values", w.lim.Elements)
	}
	return nil
}

func (w *walker) list(n uint64, s *shape, depth int) error {
	if err := w.enter(n, 1, depth); err != nil {
		return err
	}
	if err := want(s, "a list", reflect.Slice, reflect.Array); err != nil {
		return err
	}
	elem, err := w.listElem(n, s)
	if err != nil {
		return err
	}
	for i := range int(n) {
		if err := w.value(elem, depth+1); err != nil {
			return under("["+strconv.Itoa(i)+"]", err)
		}
	}
	return nil
}

// listElem is the shape of a list's elements, after the list itself is paid for.
func (w *walker) listElem(n uint64, s *shape) (*shape, error) {
	switch {
	case s == nil || s.kind == reflect.Interface:
		return s, nil
	case s.elem.kind == reflect.Uint8:
		return nil, faultf("a list is no %s", s.name)
	case s.kind == reflect.Array && n != uint64(s.len):
		return nil, faultf("%d values are no %s", n, s.name)
	case s.kind == reflect.Array:
		return s.elem, nil
	}
	if s.elem.size > 0 && n > uint64(math.MaxInt32/s.elem.size) {
		return nil, faultf("would take more than %d bytes of memory", w.lim.Memory)
	}
	return s.elem, w.charge(int(n) * s.elem.size)
}

// fewKeys is the number of keys up to which comparing each with each is faster than a set.
const fewKeys = 16

func (w *walker) mapping(n uint64, s *shape, depth int) error {
	if err := w.enter(n, 2, depth); err != nil {
		return err
	}
	if err := want(s, "a map", reflect.Struct, reflect.Map); err != nil {
		return err
	}
	var few [fewKeys][]byte
	var many map[string]bool
	if n > fewKeys {
		many = make(map[string]bool, min(n, 1024))
	}
	for i := range int(n) {
		key, err := w.key()
		if err != nil {
			return err
		}
		if many != nil {
			if many[string(key)] {
				return faultf("key %q twice", domain.Clip(string(key), 80))
			}
			many[string(key)] = true
		} else {
			for _, k := range few[:i] {
				if string(k) == string(key) {
					return faultf("key %q twice", domain.Clip(string(key), 80))
				}
			}
			few[i] = key
		}
		if err := w.entry(key, s, depth); err != nil {
			return under(domain.Clip(string(key), 80), err)
		}
	}
	return nil
}

// entry reads the value behind a key.
func (w *walker) entry(key []byte, s *shape, depth int) error {
	elem := s
	switch {
	case s == nil || s.kind == reflect.Interface:
	case s.kind == reflect.Struct:
		elem = s.fields[string(key)]
	default:
		elem = s.elem
	}
	if s != nil && s.kind != reflect.Struct { // a map's entry: key and value in their bucket
		if err := w.charge(len(key) + anyBytes); err != nil {
			return err
		}
	}
	return w.value(elem, depth+1)
}

// key reads a map's key: text.
func (w *walker) key() ([]byte, error) {
	if err := w.count(1); err != nil {
		return nil, err
	}
	c, err := w.number(1)
	if err != nil {
		return nil, err
	}
	n := c & 0x1f
	switch {
	case c >= 0xa0 && c <= 0xbf:
	case c >= 0xd9 && c <= 0xdb:
		if n, err = w.number(1 << (c - 0xd9)); err != nil {
			return nil, err
		}
	default:
		return nil, faultf("a key begins with code %#x, not text", c)
	}
	return w.take(n)
}
