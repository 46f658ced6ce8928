// Package freeze turns folded state into bytes and back, for snapshots: same state, same bytes; and bytes that only the
// same types can read. It knows no state and no file. projections and broker/hub name what they hold as Parts,
// broker/snapshot keeps the bytes.
//
// Not msgpack (domain/pack): that writes no maps with named keys, names every field of each of a million chunks, and
// reads what it can of a type that has changed. A snapshot of another shape must be refused and not half understood, so
// fields go by their place and the Fingerprint of the types stands beside the bytes. The bytes are foreign once they have
// been on a disk: Thaw checks every length before it allocates and counts memory against a limit.
//
// Encoding, by kind: bool 1 byte; integers varint (signed: zigzag); floats 8 bytes, their bits; strings 2·(place among
// the short strings seen before), or 1+2·length and the bytes; slices and maps 0 for nil or 1+length, maps by ascending
// key; pointers 0 or 1; times seconds (zigzag) and nanoseconds; structs and arrays their parts in order.
package freeze

import (
	"fmt"
	"reflect"

	"tensorturn/domain"
)

// Part is one piece of state under a name of its own: pointers to the variables that hold it, in a fixed order. The
// variables' types must be free of interfaces, functions and channels, and hold each value once: two pointers to one value
// would be thawed as two values.
type Part struct {
	Name   string
	Values []any
	// Restored, if set, makes again what follows from the values, after they have been thawed.
	Restored func()
}

// maxShared is the longest string that is remembered for a second occurrence: ids and digests, not prose.
const maxShared = 64

// Freeze gives the bytes of a part. Errors are domain.KindInternal: a type that cannot be frozen.
func Freeze(p Part) ([]byte, error) {
	w := writer{shared: map[string]uint64{}, plans: plans{}}
	for _, v := range p.Values {
		rv := pointed(p.Name, v)
		plan, err := w.plans.of(rv.Type())
		if err != nil {
			return nil, fmt.Errorf("freeze %s: %w", p.Name, err)
		}
		plan.write(&w, rv)
	}
	return w.b, nil
}

// Thaw reads what Freeze gave for a part with the same types, taking at most memory bytes. The part's variables are set
// by the returned function alone, so that several parts can be thawed all or none. Errors are domain.KindIntegrity.
func Thaw(p Part, b []byte, memory int) (set func(), err error) {
	r := reader{b: b, memory: memory}
	types := plans{}
	fresh := make([]reflect.Value, len(p.Values))
	for i, v := range p.Values {
		t := pointed(p.Name, v).Type()
		plan, err := types.of(t)
		if err != nil {
			return nil, fmt.Errorf("thaw %s: %w", p.Name, err)
		}
		fresh[i] = reflect.New(t).Elem()
		if err := plan.read(&r, fresh[i]); err != nil {
			return nil, damaged(p.Name, err)
		}
	}
	if r.off != len(b) {
		return nil, damaged(p.Name, fmt.Errorf("%d bytes behind the last value", len(b)-r.off))
	}
	return func() {
		for i, v := range p.Values {
			reflect.ValueOf(v).Elem().Set(fresh[i])
		}
		if p.Restored != nil {
			p.Restored()
		}
	}, nil
}

// pointed is the variable behind a part's value.
func pointed(name string, v any) reflect.Value {
	rv := reflect.ValueOf(v)
	domain.Assert(rv.Kind() == reflect.Pointer && !rv.IsNil(), fmt.Sprintf("part %s names its variables by pointers", name))
	return rv.Elem()
}

func damaged(name string, err error) error {
	return &domain.Error{Kind: domain.KindIntegrity, Op: "thaw " + name, Why: err.Error()}
}
