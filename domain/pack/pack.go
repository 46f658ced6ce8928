// Package pack is msgpack within bounds: the one place where bytes become values and values become bytes.
//
// The library (vmihailenco/msgpack/v5, this project's choice for records and messages) trusts every length it reads, so
// that five foreign bytes can end the process, lets integers overflow without a word, and writes maps in random order.
// This package therefore walks the bytes before the library sees them. Check looks at the bytes alone; Decode walks
// them beside the type they are meant for, counts the memory they would take, and only then decodes. Encode is
// canonical: the same value always gives the same bytes.
//
// It knows no message and no event. domain/event uses it for records, broker/wire for what agents and hub say.
package pack

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/vmihailenco/msgpack/v5"

	"tensorturn/domain"
)

// Limits bounds one encoded value. A zero field allows nothing.
type Limits struct {
	Bytes    int // length of the whole encoding
	Depth    int // nesting of maps and arrays
	Elements int // values in total: each scalar, each key, each map and array
	Memory   int // bytes that the decoded slices, maps, strings and pointers may take, estimated from the types
}

// Limits of the two kinds of bytes there are.
const (
	maxDepth    = 16       // the deepest message nests 7
	maxElements = 1 << 18  // a round of run.MaxRoundChunks chunks has an eighth of this
	maxMemory   = 32 << 20 // what one small hostile message may make the hub allocate
	envelope    = 4 << 10  // an event's envelope around its data
)

// MessageLimits bounds a control message between agent and hub.
func MessageLimits() Limits {
	return Limits{Bytes: domain.MaxMessageBytes, Depth: maxDepth, Elements: maxElements, Memory: maxMemory}
}

// EventLimits bounds an event's record: its data and the envelope around it.
func EventLimits() Limits {
	return Limits{Bytes: domain.MaxEventBytes + envelope, Depth: maxDepth, Elements: maxElements, Memory: maxMemory}
}

// Check reads b as exactly one msgpack value and refuses, as domain.KindInvalid, everything a decoder could stumble
// over: a length beyond the remaining bytes, nesting, number of values or size beyond lim, extension types other than
// the timestamp, keys that are no strings or come twice, codes that do not exist, and trailing bytes. It allocates
// nothing that grows with b except the key set of maps with more than 16 keys.
func Check(b []byte, lim Limits) error {
	return walk(b, nil, lim)
}

// Decode checks b as Check does, and in addition against the type of v: integers must fit their field, strings, bytes,
// lists and maps must stand where the type has them, and the estimated memory stays within lim. Fields the type does
// not have are skipped, so that a newer peer may say more; missing fields stay as they are. v must point to a zero
// value. Errors are domain.KindInvalid and name the field.
func Decode(b []byte, lim Limits, v any) error {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer || reflect.ValueOf(v).IsNil() {
		panic(fmt.Sprintf("broken promise: pack.Decode into %T, not a pointer", v))
	}
	s, err := shapeOf(t.Elem())
	if err != nil {
		return err
	}
	if err := walk(b, s, lim); err != nil {
		return err
	}
	dec := msgpack.GetDecoder()
	defer msgpack.PutDecoder(dec)
	dec.Reset(bytes.NewReader(b)) // not msgpack.Unmarshal: it preallocates values in goroutines that never end
	if err := dec.Decode(v); err != nil {
		return invalid(err.Error())
	}
	if s.times {
		utc(reflect.ValueOf(v).Elem(), s)
	}
	return nil
}

// Encode gives the canonical encoding of v: fields in the order of the type, map keys sorted, integers as short as they
// can be. A type whose encoding would depend on chance, such as a map with a named key type, is refused.
func Encode(v any) ([]byte, error) {
	if t := reflect.TypeOf(v); t != nil {
		if _, err := shapeOf(t); err != nil {
			return nil, err
		}
	}
	var buf bytes.Buffer
	enc := msgpack.GetEncoder()
	defer msgpack.PutEncoder(enc)
	enc.Reset(&buf)
	enc.SetSortMapKeys(true)
	enc.UseCompactInts(true)
	if err := enc.Encode(v); err != nil {
		return nil, &domain.Error{Kind: domain.KindInternal, Op: "encode", Why: err.Error()}
	}
	return buf.Bytes(), nil
}

func invalid(why string) *domain.Error { return domain.Invalid("decode msgpack", why, "") }
