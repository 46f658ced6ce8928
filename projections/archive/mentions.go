package archive

import (
	"reflect"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Mentions lists every digest in a fact, in the order of its fields: blobs among them, and digests of other things (a
// layout), which no store has. Whoever exports a run asks the store for each, so that a fact of a new kind needs no line here.
func Mentions(d event.Data) []domain.Digest {
	var out []domain.Digest
	mentions(reflect.ValueOf(d), &out)
	return out
}

var digestType = reflect.TypeFor[domain.Digest]()

func mentions(v reflect.Value, out *[]domain.Digest) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			mentions(v.Elem(), out)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			mentions(v.Field(i), out)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			mentions(v.Index(i), out)
		}
	case reflect.String:
		if v.Type() != digestType {
			return
		}
		if d, err := domain.ParseDigest(v.String()); err == nil {
			*out = append(*out, d)
		}
	}
}
