package freeze

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"

	"tensorturn/domain"
)

// Shape describes a type down to its last field: names, order and kinds. Two types of one shape freeze alike.
func Shape(t reflect.Type) string {
	var b strings.Builder
	describe(&b, t, map[reflect.Type]bool{})
	return b.String()
}

func describe(b *strings.Builder, t reflect.Type, seen map[reflect.Type]bool) {
	b.WriteString(t.String())
	if seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Struct:
		if t.PkgPath() == "time" {
			return
		}
		b.WriteByte('{')
		for i := range t.NumField() {
			f := t.Field(i)
			fmt.Fprintf(b, "%s %q ", f.Name, string(f.Tag))
			describe(b, f.Type, seen)
			b.WriteByte(';')
		}
		b.WriteByte('}')
	case reflect.Map:
		b.WriteByte('[')
		describe(b, t.Key(), seen)
		b.WriteByte(']')
		describe(b, t.Elem(), seen)
	case reflect.Slice, reflect.Pointer, reflect.Array:
		b.WriteByte('>')
		describe(b, t.Elem(), seen)
	default:
		b.WriteByte(':')
		b.WriteString(t.Kind().String())
	}
}

// Fingerprint tells snapshots apart that must not be read by one another: it covers the names of the parts, the shapes of
// their values, and what else decides what a fold gives (the shapes of the events, the program's version).
func Fingerprint(parts []Part, more ...string) domain.Digest {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "part %q\n", p.Name)
		for _, v := range p.Values {
			fmt.Fprintln(h, Shape(reflect.TypeOf(v).Elem()))
		}
	}
	for _, m := range more {
		fmt.Fprintf(h, "%q\n", m)
	}
	return domain.Digest(hex.EncodeToString(h.Sum(nil)))
}
