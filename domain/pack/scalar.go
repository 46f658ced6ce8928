package pack

import (
	"encoding/binary"
	"reflect"
)

// want refuses a shape of another kind.
func want(s *shape, what string, kinds ...reflect.Kind) error {
	if s == nil || s.kind == reflect.Interface {
		return nil
	}
	for _, k := range kinds {
		if s.kind == k && !s.time {
			return nil
		}
	}
	return faultf("%s is no %s", what, s.name)
}

// integer checks that a number fits the shape: sign and magnitude.
func integer(s *shape, negative bool, n uint64) error {
	if s == nil || s.kind == reflect.Interface {
		return nil
	}
	fits := false
	switch s.kind {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		limit := uint64(1) << (s.bits - 1)
		fits = n < limit || negative && n == limit
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		fits = (!negative || n == 0) && (s.bits == 64 || n < 1<<s.bits)
	case reflect.Float32:
		fits = n <= 1<<24 // beyond this a float32 has no room for every integer
	case reflect.Float64:
		fits = n <= 1<<53
	}
	if !fits {
		sign := ""
		if negative {
			sign = "-"
		}
		return faultf("%s%d is no %s", sign, n, s.name)
	}
	return nil
}

func (w *walker) signed(size int, s *shape) error {
	n, err := w.number(size)
	if err != nil {
		return err
	}
	shift := 64 - 8*size
	v := int64(n<<shift) >> shift
	if v < 0 {
		return integer(s, true, uint64(-(v+1))+1) // in two steps: -v overflows for the smallest
	}
	return integer(s, false, uint64(v))
}

func (w *walker) float(size int, s *shape) error {
	if _, err := w.take(uint64(size)); err != nil {
		return err
	}
	if size == 8 {
		return want(s, "a 64-bit float", reflect.Float64)
	}
	return want(s, "a float", reflect.Float32, reflect.Float64)
}

func (w *walker) text(n uint64, s *shape) error {
	if _, err := w.take(n); err != nil {
		return err
	}
	if err := want(s, "text", reflect.String); err != nil || s == nil {
		return err
	}
	return w.charge(int(n))
}

func (w *walker) bytes(n uint64, s *shape) error {
	if _, err := w.take(n); err != nil || s == nil {
		return err
	}
	if s.kind != reflect.Interface {
		if (s.kind != reflect.Slice && s.kind != reflect.Array) || s.elem.kind != reflect.Uint8 {
			return faultf("bytes are no %s", s.name)
		}
		if s.kind == reflect.Array && n != uint64(s.len) {
			return faultf("%d bytes are no %s", n, s.name)
		}
	}
	return w.charge(int(n))
}

// timestamp reads the one extension there is: type -1 with 4, 8 or 12 bytes.
func (w *walker) timestamp(n uint64, s *shape) error {
	p, err := w.take(n + 1)
	if err != nil {
		return err
	}
	if int8(p[0]) != -1 || n != 4 && n != 8 && n != 12 {
		return faultf("extension type %d of %d bytes", int8(p[0]), n)
	}
	if nanos := timestampNanos(p[1:]); nanos > 999_999_999 {
		return faultf("timestamp with %d nanoseconds", nanos)
	}
	if s != nil && s.kind != reflect.Interface && !s.time {
		return faultf("a timestamp is no %s", s.name)
	}
	return nil
}

// timestampNanos is the fraction of a second in a timestamp of 4, 8 or 12 bytes.
func timestampNanos(p []byte) uint32 {
	switch len(p) {
	case 8:
		return binary.BigEndian.Uint32(p) >> 2
	case 12:
		return binary.BigEndian.Uint32(p)
	}
	return 0
}
