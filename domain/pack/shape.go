package pack

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"tensorturn/domain"
)

// shape is what the walk needs to know of a Go type.
type shape struct {
	kind   reflect.Kind // Interface: anything goes
	size   int          // bytes of one value
	bits   int          // of a number
	len    int          // of an array
	elem   *shape       // of a slice, array, map or pointer
	fields map[string]*shape
	list   []field // the same in their order
	name   string  // for errors
	time   bool    // a time.Time, which travels as the timestamp extension
	times  bool    // of the outermost shape: there is a time somewhere inside
	raw    bool    // a msgpack.RawMessage: any value, kept as bytes
}

// field is a field of a struct.
type field struct {
	index int
	shape *shape
}

// shapes remembers what shapeOf found. It holds nothing but the results of a pure function, so nobody can tell that it
// is there except by the clock: reading tags anew for each of a million records would double a replay.
var shapes sync.Map // reflect.Type → *shape

// shapeOf describes t, or says why its encoding would not be safe or canonical.
func shapeOf(t reflect.Type) (*shape, error) {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape), nil
	}
	b := builder{seen: map[reflect.Type]*shape{}}
	s, err := b.build(t)
	if err != nil {
		return nil, err
	}
	for _, part := range b.seen {
		s.times = s.times || part.time
	}
	shapes.Store(t, s)
	return s, nil
}

// builder describes types that may contain themselves.
type builder struct{ seen map[reflect.Type]*shape }

func (b builder) build(t reflect.Type) (*shape, error) {
	if s, ok := b.seen[t]; ok {
		return s, nil
	}
	s := &shape{kind: t.Kind(), size: int(t.Size()), name: t.String()}
	b.seen[t] = s
	switch {
	case t == reflect.TypeFor[time.Time]():
		s.time = true
		return s, nil
	case t == reflect.TypeFor[msgpack.RawMessage]():
		s.raw = true
		return s, nil
	case t.Kind() != reflect.Pointer && ownDecoding(t):
		return nil, refuse(t, "has an encoding of its own, which the walk cannot see into")
	}
	return s, b.fill(s, t)
}

// fill adds what a kind needs.
func (b builder) fill(s *shape, t reflect.Type) (err error) {
	switch t.Kind() {
	case reflect.Bool, reflect.String:
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64:
		s.bits = t.Bits()
	case reflect.Slice, reflect.Pointer:
		s.elem, err = b.build(t.Elem())
	case reflect.Array:
		s.len = t.Len()
		s.elem, err = b.build(t.Elem())
	case reflect.Map:
		if !sortable(t) {
			return refuse(t, "is written in random order; use a sorted slice")
		}
		s.elem, err = b.build(t.Elem())
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return refuse(t, "cannot be decoded")
		}
	case reflect.Struct:
		return b.fillStruct(s, t)
	default:
		return refuse(t, "cannot be encoded")
	}
	return err
}

// fillStruct lists the fields by the names the library uses.
func (b builder) fillStruct(s *shape, t reflect.Type) error {
	s.fields = make(map[string]*shape, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("msgpack"), ",")
		switch {
		case tag == "-" || f.PkgPath != "" && !f.Anonymous:
			continue
		case f.Anonymous:
			return refuse(t, "embeds "+f.Name+": name the field")
		case options != "" && options != "omitempty":
			return refuse(t, "has the tag option "+options)
		}
		if tag == "" {
			tag = f.Name
		}
		if s.fields[tag] != nil {
			return refuse(t, "has two fields "+tag)
		}
		fs, err := b.build(f.Type)
		if err != nil {
			return err
		}
		s.fields[tag] = fs
		s.list = append(s.list, field{index: i, shape: fs})
	}
	return nil
}

// utc turns the times inside v to UTC: the library gives them in the zone of the machine, and a fold of the log must not
// depend on where it is made.
func utc(v reflect.Value, s *shape) {
	switch {
	case s.time:
		v.Set(reflect.ValueOf(v.Interface().(time.Time).UTC()))
	case s.kind == reflect.Pointer && !v.IsNil():
		utc(v.Elem(), s.elem)
	case (s.kind == reflect.Slice || s.kind == reflect.Array) && !s.raw && s.elem.kind != reflect.Uint8:
		for i := range v.Len() {
			utc(v.Index(i), s.elem)
		}
	case s.kind == reflect.Struct:
		for _, f := range s.list {
			utc(v.Field(f.index), f.shape)
		}
	}
}

// sortable reports whether the library sorts the keys of maps of type t.
func sortable(t reflect.Type) bool {
	if t.Key() != reflect.TypeFor[string]() {
		return false
	}
	switch t.Elem() {
	case reflect.TypeFor[string](), reflect.TypeFor[any](), reflect.TypeFor[bool]():
		return true
	}
	return false
}

// ownDecoding reports whether the library would let t decode itself.
func ownDecoding(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	for _, i := range []reflect.Type{
		reflect.TypeFor[msgpack.CustomDecoder](), reflect.TypeFor[msgpack.CustomEncoder](),
		reflect.TypeFor[msgpack.Unmarshaler](), reflect.TypeFor[msgpack.Marshaler](),
		reflect.TypeFor[encoding.BinaryUnmarshaler](), reflect.TypeFor[encoding.BinaryMarshaler](),
		reflect.TypeFor[encoding.TextUnmarshaler](), reflect.TypeFor[encoding.TextMarshaler](),
	} {
		if t.Implements(i) || p.Implements(i) {
			return true
		}
	}
	return false
}

func refuse(t reflect.Type, why string) error {
	return &domain.Error{Kind: domain.KindInternal, Op: "pack", Why: fmt.Sprintf("type %s %s", t, why)}
}
