package feed

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// plan says how values of one type are written. JSON names are those of the log's msgpack tags: one name for one field
// everywhere. Lists are never null; numbers that are not finite, which JSON does not have, are null.
type plan struct {
	kind   reflect.Kind
	time   bool
	digest bool
	elem   *plan
	fields []planned
}

// planned is one field of a struct.
type planned struct {
	name      string
	index     int
	omitEmpty bool
	plan      *plan
}

// dataType is the struct type of the newest version of an event.
func dataType(r *event.Registry, name string) reflect.Type {
	d, err := r.New(name, r.Latest(name))
	domain.Assert(err == nil, "a registered event can be made")
	return reflect.TypeOf(d).Elem()
}

// planOf describes a type. One that cannot be told in JSON is a programming error and shows at the first start.
func planOf(t reflect.Type) *plan {
	p := &plan{kind: t.Kind(), digest: t == reflect.TypeFor[domain.Digest]()}
	switch {
	case t == reflect.TypeFor[time.Time]():
		p.time = true
	case t.Kind() == reflect.Struct:
		p.fields = fieldsOf(t)
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Array || t.Kind() == reflect.Pointer:
		p.elem = planOf(t.Elem())
	case t.Kind() == reflect.Map:
		domain.Assert(t.Key().Kind() == reflect.String, "keys of a fact's map are text")
		p.elem = planOf(t.Elem())
	default:
		_, known := scalars[t.Kind()]
		domain.Assert(known, fmt.Sprintf("a %s can be told in JSON", t))
	}
	return p
}

func fieldsOf(t reflect.Type) []planned {
	var out []planned
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("msgpack"), ",")
		if !f.IsExported() || name == "-" || withheldField(name) {
			continue
		}
		if name == "" {
			name = f.Name
		}
		out = append(out, planned{name, i, strings.Contains(options, "omitempty"), planOf(f.Type)})
	}
	return out
}

// write appends the data of an event, a pointer to a struct.
func (p *plan) write(b *bytes.Buffer, d event.Data) { p.value(b, reflect.ValueOf(d).Elem()) }

func (p *plan) value(b *bytes.Buffer, v reflect.Value) {
	switch {
	case p.time:
		quote(b, v.Interface().(time.Time).UTC().Format(timeLayout))
		return
	case p.kind == reflect.Struct:
		p.object(b, v)
		return
	}
	switch p.kind {
	case reflect.Bool:
		b.WriteString(strconv.FormatBool(v.Bool()))
	case reflect.String:
		quote(b, v.String())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		b.WriteString(strconv.FormatInt(v.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		b.WriteString(strconv.FormatUint(v.Uint(), 10))
	case reflect.Float32, reflect.Float64:
		number(b, v)
	case reflect.Pointer:
		if v.IsNil() {
			b.WriteString("null")
			return
		}
		p.elem.value(b, v.Elem())
	case reflect.Slice, reflect.Array:
		p.list(b, v)
	case reflect.Map:
		p.table(b, v)
	}
}

func (p *plan) object(b *bytes.Buffer, v reflect.Value) {
	b.WriteByte('{')
	first := true
	for _, f := range p.fields {
		field := v.Field(f.index)
		if f.omitEmpty && empty(field) {
			continue
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		quote(b, f.name)
		b.WriteByte(':')
		f.plan.value(b, field)
	}
	b.WriteByte('}')
}

// empty is what omitempty means in the log.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String:
		return v.Len() == 0
	}
	return v.IsZero()
}

func (p *plan) list(b *bytes.Buffer, v reflect.Value) {
	if p.elem.kind == reflect.Uint8 && p.kind == reflect.Slice {
		quote(b, base64.StdEncoding.EncodeToString(v.Bytes()))
		return
	}
	b.WriteByte('[')
	for i := range v.Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		p.elem.value(b, v.Index(i))
	}
	b.WriteByte(']')
}

func (p *plan) table(b *bytes.Buffer, v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
	b.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		quote(b, k.String())
		b.WriteByte(':')
		p.elem.value(b, v.MapIndex(k))
	}
	b.WriteByte('}')
}

func number(b *bytes.Buffer, v reflect.Value) {
	f := v.Float()
	if math.IsNaN(f) || math.IsInf(f, 0) {
		b.WriteString("null")
		return
	}
	bits := 64
	if v.Kind() == reflect.Float32 {
		bits = 32
	}
	b.Write(strconv.AppendFloat(b.AvailableBuffer(), f, 'g', -1, bits))
}
