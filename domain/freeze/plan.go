package freeze

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"
	"unsafe"

	"tensorturn/domain"
)

// plan is how one type is written and read. least is the fewest bytes a value takes: what bounds an announced length.
type plan struct {
	least int
	write func(w *writer, v reflect.Value)
	read  func(r *reader, v reflect.Value) error
}

// plans holds the types met so far.
type plans map[reflect.Type]*plan

type writer struct {
	b      []byte
	shared map[string]uint64
	plans  plans
}

func (w *writer) uint(n uint64) { w.b = binary.AppendUvarint(w.b, n) }
func (w *writer) int(n int64)   { w.b = binary.AppendVarint(w.b, n) }

func (w *writer) text(s string) {
	if n, ok := w.shared[s]; ok {
		w.uint(2 * n)
		return
	}
	w.uint(1 + 2*uint64(len(s)))
	w.b = append(w.b, s...)
	if len(s) <= maxShared {
		w.shared[s] = uint64(len(w.shared))
	}
}

// of gives the plan of a type, made when it is first met. A type may contain itself behind a pointer, slice or map.
func (ps plans) of(t reflect.Type) (*plan, error) {
	if p, ok := ps[t]; ok {
		return p, nil
	}
	p := &plan{least: 1}
	ps[t] = p
	if err := ps.fill(p, t); err != nil {
		return nil, err
	}
	return p, nil
}

func (ps plans) fill(p *plan, t reflect.Type) error {
	switch t.Kind() {
	case reflect.Bool:
		p.write = func(w *writer, v reflect.Value) { w.b = append(w.b, bit(v.Bool())) }
		p.read = readBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.write = func(w *writer, v reflect.Value) { w.int(v.Int()) }
		p.read = readInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		p.write = func(w *writer, v reflect.Value) { w.uint(v.Uint()) }
		p.read = readUint
	case reflect.Float32, reflect.Float64:
		p.least = 8
		p.write = func(w *writer, v reflect.Value) {
			w.b = binary.LittleEndian.AppendUint64(w.b, math.Float64bits(v.Float()))
		}
		p.read = readFloat
	case reflect.String:
		p.write = func(w *writer, v reflect.Value) { w.text(v.String()) }
		p.read = readText
	case reflect.Struct:
		return ps.fillStruct(p, t)
	case reflect.Slice, reflect.Array, reflect.Map, reflect.Pointer:
		return ps.fillContainer(p, t)
	default:
		return refuse(t, "cannot be frozen")
	}
	return nil
}

func (ps plans) fillContainer(p *plan, t reflect.Type) error {
	elem, err := ps.of(t.Elem())
	if err != nil {
		return err
	}
	if t.Elem().Size() == 0 && t.Kind() != reflect.Map {
		return refuse(t, "has elements without size")
	}
	switch t.Kind() {
	case reflect.Slice:
		p.write = func(w *writer, v reflect.Value) { writeSlice(w, v, elem) }
		p.read = func(r *reader, v reflect.Value) error { return readSlice(r, v, elem) }
	case reflect.Array:
		p.least = t.Len() * elem.least
		p.write = func(w *writer, v reflect.Value) {
			for i := range v.Len() {
				elem.write(w, v.Index(i))
			}
		}
		p.read = func(r *reader, v reflect.Value) error { return readEach(r, v, elem) }
	case reflect.Pointer:
		p.write = func(w *writer, v reflect.Value) {
			w.b = append(w.b, bit(!v.IsNil()))
			if !v.IsNil() {
				elem.write(w, v.Elem())
			}
		}
		p.read = func(r *reader, v reflect.Value) error { return readPointer(r, v, elem) }
	case reflect.Map:
		return ps.fillMap(p, t, elem)
	}
	return nil
}

func (ps plans) fillMap(p *plan, t reflect.Type, elem *plan) error {
	compare := compareFor(t.Key())
	if compare == nil {
		return refuse(t, "has keys that are not ordered")
	}
	key, err := ps.of(t.Key())
	if err != nil {
		return err
	}
	p.write = func(w *writer, v reflect.Value) {
		if v.IsNil() {
			w.uint(0)
			return
		}
		keys := v.MapKeys()
		slices.SortFunc(keys, compare)
		w.uint(1 + uint64(len(keys)))
		for _, k := range keys {
			key.write(w, k)
			elem.write(w, v.MapIndex(k))
		}
	}
	p.read = func(r *reader, v reflect.Value) error { return readMap(r, v, key, elem, compare) }
	return nil
}

func (ps plans) fillStruct(p *plan, t reflect.Type) error {
	if t == reflect.TypeFor[time.Time]() {
		p.least, p.write, p.read = 2, writeTime, readTime
		return nil
	}
	var fields []*plan
	least, hidden := 0, false
	for i := range t.NumField() {
		f := t.Field(i)
		fp, err := ps.of(f.Type)
		if err != nil {
			return err
		}
		fields, least, hidden = append(fields, fp), least+fp.least, hidden || !f.IsExported()
	}
	p.least = least
	p.write = func(w *writer, v reflect.Value) {
		if hidden && !v.CanAddr() { // a map's value: what is hidden is reached by its address
			c := reflect.New(t).Elem()
			c.Set(v)
			v = c
		}
		for i, f := range fields {
			f.write(w, field(v, i))
		}
	}
	p.read = func(r *reader, v reflect.Value) error {
		for i, f := range fields {
			if err := f.read(r, field(v, i)); err != nil {
				return fmt.Errorf("%s.%s: %w", t.Name(), t.Field(i).Name, err)
			}
		}
		return nil
	}
	return nil
}

// field is a struct's field, an unexported one too: states keep their fields to themselves, and this package is the one
// that looks into all of them.
func field(v reflect.Value, i int) reflect.Value {
	f := v.Field(i)
	if f.CanInterface() {
		return f
	}
	return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func writeSlice(w *writer, v reflect.Value, elem *plan) {
	if v.IsNil() {
		w.uint(0)
		return
	}
	w.uint(1 + uint64(v.Len()))
	for i := range v.Len() {
		elem.write(w, v.Index(i))
	}
}

func writeTime(w *writer, v reflect.Value) {
	t := v.Interface().(time.Time)
	w.int(t.Unix())
	w.uint(uint64(t.Nanosecond()))
}

// compareFor orders the keys of a map, nil when they have no order.
func compareFor(t reflect.Type) func(a, b reflect.Value) int {
	switch t.Kind() {
	case reflect.String:
		return func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) }
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(a, b reflect.Value) int { return cmp.Compare(a.Int(), b.Int()) }
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return func(a, b reflect.Value) int { return cmp.Compare(a.Uint(), b.Uint()) }
	case reflect.Struct:
		return compareStructs(t)
	}
	return nil
}

// compareStructs orders keys of several fields by the first that differs.
func compareStructs(t reflect.Type) func(a, b reflect.Value) int {
	var fields []func(a, b reflect.Value) int
	for i := range t.NumField() {
		f := compareFor(t.Field(i).Type)
		if f == nil {
			return nil
		}
		fields = append(fields, f)
	}
	return func(a, b reflect.Value) int {
		for i, f := range fields {
			if c := f(a.Field(i), b.Field(i)); c != 0 {
				return c
			}
		}
		return 0
	}
}

func refuse(t reflect.Type, why string) error {
	return &domain.Error{Kind: domain.KindInternal, Op: "freeze", Why: fmt.Sprintf("type %s %s", t, why)}
}
