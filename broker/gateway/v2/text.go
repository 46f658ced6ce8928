package v2

import (
	"fmt"
	"math"
)

// fromText reads data that stands in the JSON: flat, or nested as the shape says.
// gaps: a null is a missing value, and becomes NaN.
func (in *input) fromText(t datatype, out []float32, gaps bool) *fail {
	r := textReader{scanner: scanner{b: in.data}, in: in, want: len(out)}
	r.value = func(at int) *fail {
		if gaps && r.word("null") {
			out[at] = float32(math.NaN())
			return nil
		}
		return r.numeral(t, &out[at])
	}
	return r.all()
}

// all reads every value.
func (r *textReader) all() *fail {
	in := r.in
	probe := scanner{b: in.data, at: 1}
	level := in.dims - 1
	if in.dims > 1 && probe.peek() == '[' {
		level, r.nested = 0, true
	}
	if f := r.read(level); f != nil {
		return f
	}
	if r.n != r.want {
		return invalid(fmt.Sprintf("input %q has %d values, its shape %v says %d", in.name, r.n, in.shape[:in.dims], r.want))
	}
	return nil
}

// textReader reads values from nested lists.
type textReader struct {
	scanner
	in    *input
	want  int                // values that the shape says
	n     int                // values read
	value func(at int) *fail // reads one

	nested bool
}

// read reads one list whose elements are lists until the innermost level.
func (r *textReader) read(level int) *fail {
	inner := level == r.in.dims-1
	r.at++ // the list's beginning was seen when it was skipped over
	n := r.n
	for i := 0; ; i++ {
		if i == 0 && r.take(']') {
			break
		}
		var f *fail
		switch {
		case inner:
			f = r.next()
		case r.peek() != '[':
			f = r.misshapen()
		default:
			f = r.read(level + 1)
		}
		if f != nil {
			return f
		}
		if r.take(']') {
			break
		}
		if f := r.expect(','); f != nil {
			return f
		}
	}
	if r.nested && inner && int64(r.n-n) != r.in.shape[level] {
		return r.misshapen()
	}
	return nil
}

func (r *textReader) misshapen() *fail {
	return invalid(fmt.Sprintf("input %q: its data are nested otherwise than its shape %v says", r.in.name, r.in.shape[:r.in.dims]))
}

func (r *textReader) next() *fail {
	if r.n == r.want {
		return invalid(fmt.Sprintf("input %q has more than the %d values of its shape %v", r.in.name, r.want, r.in.shape[:r.in.dims]))
	}
	f := r.value(r.n)
	r.n++
	return f
}

// numeral reads one number, or one BOOL.
func (r *textReader) numeral(t datatype, to *float32) *fail {
	if t.text == nil { // BOOL
		b, f := r.boolean()
		if f != nil {
			return invalid(fmt.Sprintf("input %q: value %d is no BOOL", r.in.name, r.n))
		}
		if b {
			*to = 1
		}
		return nil
	}
	text, whole, f := r.number()
	if f != nil {
		return invalid(fmt.Sprintf("input %q: value %d is no number", r.in.name, r.n))
	}
	v, ok := t.text(text, whole)
	if !ok {
		return r.in.inexact(r.n)
	}
	*to = v
	return nil
}
