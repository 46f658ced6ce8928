package freeze

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"
)

// reader is a place in the bytes, the short strings read so far and the memory that is left.
type reader struct {
	b      []byte
	off    int
	shared []string
	memory int
	depth  int
}

// maxDepth bounds pointers, slices and maps within one another: a type that contains itself must not overflow the stack.
const maxDepth = 64

// enter goes one level down; leave must follow.
func (r *reader) enter() error {
	if r.depth++; r.depth > maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	return nil
}

func (r *reader) leave() { r.depth-- }

var errShort = errors.New("the bytes end in the middle of a value")

func (r *reader) uint() (uint64, error) {
	n, size := binary.Uvarint(r.b[r.off:])
	if size <= 0 || size > 1 && r.b[r.off+size-1] == 0 { // a padded number would be a second way to write one state
		return 0, errShort
	}
	r.off += size
	return n, nil
}

func (r *reader) int() (int64, error) {
	u, err := r.uint()
	n := int64(u >> 1)
	if u&1 != 0 {
		n = ^n
	}
	return n, err
}

func (r *reader) take(n uint64) ([]byte, error) {
	if n > uint64(len(r.b)-r.off) {
		return nil, errShort
	}
	p := r.b[r.off : r.off+int(n)]
	r.off += int(n)
	return p, nil
}

// charge counts memory that is about to be allocated.
func (r *reader) charge(n uint64) error {
	if n > uint64(r.memory) {
		return errors.New("it would take more memory than a snapshot may")
	}
	r.memory -= int(n)
	return nil
}

// length reads 1+length of a list whose elements take least bytes here and size bytes in memory; ok is false for nil.
func (r *reader) length(least, size int) (n int, ok bool, err error) {
	u, err := r.uint()
	if err != nil || u == 0 {
		return 0, false, err
	}
	u--
	if u > uint64(len(r.b)-r.off)/uint64(max(least, 1)) {
		return 0, false, errShort
	}
	return int(u), true, r.charge(u * uint64(size))
}

func readBool(r *reader, v reflect.Value) error {
	b, err := r.take(1)
	if err != nil {
		return err
	}
	if b[0] > 1 {
		return fmt.Errorf("%d is no boolean", b[0])
	}
	v.SetBool(b[0] == 1)
	return nil
}

func readInt(r *reader, v reflect.Value) error {
	n, err := r.int()
	if err != nil {
		return err
	}
	if v.OverflowInt(n) {
		return fmt.Errorf("%d is no %s", n, v.Type())
	}
	v.SetInt(n)
	return nil
}

func readUint(r *reader, v reflect.Value) error {
	n, err := r.uint()
	if err != nil {
		return err
	}
	if v.OverflowUint(n) {
		return fmt.Errorf("%d is no %s", n, v.Type())
	}
	v.SetUint(n)
	return nil
}

func readFloat(r *reader, v reflect.Value) error {
	b, err := r.take(8)
	if err != nil {
		return err
	}
	f := math.Float64frombits(binary.LittleEndian.Uint64(b))
	if v.Kind() == reflect.Float32 && math.Float64bits(float64(float32(f))) != math.Float64bits(f) {
		return fmt.Errorf("%g is no float32", f)
	}
	v.SetFloat(f)
	return nil
}

func readText(r *reader, v reflect.Value) error {
	n, err := r.uint()
	if err != nil {
		return err
	}
	if n&1 == 0 {
		if n/2 >= uint64(len(r.shared)) {
			return fmt.Errorf("string %d was not seen before", n/2)
		}
		v.SetString(r.shared[n/2])
		return nil
	}
	b, err := r.take(n / 2)
	if err != nil {
		return err
	}
	if err := r.charge(uint64(len(b)) + 16); err != nil {
		return err
	}
	s := string(b)
	if len(s) <= maxShared {
		r.shared = append(r.shared, s)
	}
	v.SetString(s)
	return nil
}

func readTime(r *reader, v reflect.Value) error {
	sec, err := r.int()
	if err != nil {
		return err
	}
	nanos, err := r.uint()
	if err != nil {
		return err
	}
	if nanos >= 1e9 {
		return fmt.Errorf("a time with %d nanoseconds", nanos)
	}
	v.Set(reflect.ValueOf(time.Unix(sec, int64(nanos)).UTC()))
	return nil
}

func readSlice(r *reader, v reflect.Value, elem *plan) error {
	n, ok, err := r.length(elem.least, int(v.Type().Elem().Size()))
	if err != nil || !ok {
		return err
	}
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	return readEach(r, v, elem)
}

func readEach(r *reader, v reflect.Value, elem *plan) error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	for i := range v.Len() {
		if err := elem.read(r, v.Index(i)); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return nil
}

func readPointer(r *reader, v reflect.Value, elem *plan) error {
	b, err := r.take(1)
	if err != nil || b[0] == 0 {
		return err
	}
	if b[0] != 1 {
		return fmt.Errorf("%d is neither a value nor none", b[0])
	}
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	if err := r.charge(uint64(v.Type().Elem().Size())); err != nil {
		return err
	}
	v.Set(reflect.New(v.Type().Elem()))
	return elem.read(r, v.Elem())
}

// mapEntry is what a map's entry costs besides key and value.
const mapEntry = 48

func readMap(r *reader, v reflect.Value, key, elem *plan, compare func(a, b reflect.Value) int) error {
	t := v.Type()
	n, ok, err := r.length(key.least+elem.least, int(t.Key().Size()+t.Elem().Size())+mapEntry)
	if err != nil || !ok {
		return err
	}
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	v.Set(reflect.MakeMapWithSize(t, n))
	var before reflect.Value
	for i := range n {
		k, e := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		if err := key.read(r, k); err != nil {
			return err
		}
		if i > 0 && compare(before, k) >= 0 {
			return fmt.Errorf("key %v is out of order", k)
		}
		if err := elem.read(r, e); err != nil {
			return fmt.Errorf("[%v]: %w", k, err)
		}
		v.SetMapIndex(k, e)
		before = k
	}
	return nil
}
