package sim

import (
	"context"
	"reflect"
	"time"

	"tensorturn/broker/hub"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/event"
)

// noOrphans collects once more, as if the grace had passed for everything, and demands that whatever is left is named by some
// record of the log, or is a part of what is named. The names are read out of the records themselves; the hub's own list of
// references is not asked.
func (w *world) noOrphans() {
	ctx := context.Background()
	if w.bias.what != wrongLitter {
		removed, err := hub.Collect(ctx, w.blobs, w.wall().Add(time.Second), w.hub.core)
		w.say("hub", "collects at the end %d objects: %v", removed, err)
		if err != nil {
			return // a manifest that the nemesis has damaged: nothing may be taken for garbage
		}
	}
	named := w.named()
	for o, err := range w.blobs.All(ctx) {
		must(err)
		if !named[o.Digest] {
			fail("object %s of %d bytes is still stored, and nobody names it", o.Digest.Short(), o.Size)
		}
	}
}

// named gives every digest that stands in a record, and the parts of those that are blobs.
func (w *world) named() map[domain.Digest]bool {
	named := map[domain.Digest]bool{}
	_, objs := dataBlob()
	for _, o := range objs { // the operator's own
		named[o.id] = true
	}
	v := event.NewVerifier(w.reg)
	for rec, err := range w.log.Read(context.Background(), 1) {
		must(err)
		e, err := v.Next(rec.Seq, rec.Data)
		must(err)
		digests(reflect.ValueOf(e.Data), func(d domain.Digest) {
			if named[d] {
				return
			}
			named[d] = true
			if r, err := blob.Open(context.Background(), d, w.blobs.Get); err == nil {
				for _, p := range r.Manifest().Parts {
					named[p] = true
				}
			}
		})
	}
	return named
}

// digests calls f with every digest within v.
func digests(v reflect.Value, f func(domain.Digest)) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			digests(v.Elem(), f)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			digests(v.Field(i), f)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			digests(v.Index(i), f)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			digests(it.Value(), f)
		}
	case reflect.String:
		if v.Type() == reflect.TypeFor[domain.Digest]() && v.String() != "" {
			f(domain.Digest(v.String()))
		}
	}
}
