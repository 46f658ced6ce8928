package safetensors

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"
)

// fields are the keys every tensor has, in any order.
var fields = [...]string{"dtype", "shape", "data_offsets"}

// metadataKey is the one name in a header that is not a tensor's.
const metadataKey = "__metadata__"

// header is a parsed header: tensors in file order, their data back to back.
type header struct {
	tensors  []Tensor
	sizes    []int64 // bytes of each tensor's data
	metadata map[string]string
}

// entry is one tensor of the header with the place it claims.
type entry struct {
	tensor     Tensor
	begin, end int64
}

// parser walks the header token by token: only that shows a duplicate key, and it builds nothing that is not wanted.
type parser struct {
	dec *json.Decoder
}

// parseHeader checks everything that can be known without the data.
func parseHeader(b []byte) (header, error) {
	if len(b) == 0 || b[0] != '{' {
		return header{}, refuse("the header does not begin with {")
	}
	if !utf8.Valid(b) {
		return header{}, refuse("the header is not valid UTF-8")
	}
	p := parser{json.NewDecoder(bytes.NewReader(b))}
	p.dec.UseNumber()
	entries, metadata, err := p.top()
	if err != nil {
		return header{}, err
	}
	if rest := b[p.dec.InputOffset():]; len(bytes.TrimLeft(rest, " ")) > 0 {
		return header{}, refuse("the header goes on behind its object")
	}
	return place(entries, metadata)
}

// place orders the entries by position and checks that they cover the data without hole or overlap.
func place(entries []entry, metadata map[string]string) (header, error) {
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.tensor.Name, b.tensor.Name))
	})
	h := header{metadata: metadata, tensors: make([]Tensor, len(entries)), sizes: make([]int64, len(entries))}
	at := int64(0)
	for i, e := range entries {
		want, err := e.tensor.Bytes()
		if err != nil {
			return header{}, err
		}
		switch {
		case e.end < e.begin:
			return header{}, refuse("tensor %s ends before it begins", quote(e.tensor.Name))
		case e.end-e.begin != want:
			return header{}, refuse("tensor %s has %d bytes, its shape and dtype need %d", quote(e.tensor.Name), e.end-e.begin, want)
		case e.begin < at:
			return header{}, refuse("tensor %s overlaps the one before it", quote(e.tensor.Name))
		case e.begin > at:
			return header{}, refuse("there is a hole of %d bytes before tensor %s", e.begin-at, quote(e.tensor.Name))
		}
		at = e.end
		h.tensors[i], h.sizes[i] = e.tensor, want
	}
	return h, nil
}

// top reads the whole header object.
func (p parser) top() ([]entry, map[string]string, error) {
	if err := p.delim('{'); err != nil {
		return nil, nil, err
	}
	var entries []entry
	var metadata map[string]string
	seen := map[string]bool{}
	for p.dec.More() {
		name, err := p.text("a tensor's name", MaxTensorName)
		if err != nil {
			return nil, nil, err
		}
		if seen[name] {
			return nil, nil, refuse("the name %s is there twice", quote(name))
		}
		seen[name] = true
		if name == metadataKey {
			metadata, err = p.metadata()
		} else {
			if len(entries) == MaxTensors {
				return nil, nil, refuse("there are more than %d tensors", MaxTensors)
			}
			var e entry
			e, err = p.entry(name)
			entries = append(entries, e)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return entries, metadata, p.delim('}')
}

// entry reads {"dtype": ..., "shape": [...], "data_offsets": [begin, end]} in any order of keys.
func (p parser) entry(name string) (entry, error) {
	e := entry{tensor: Tensor{Name: name}}
	if name == "" {
		return e, refuse("a tensor has an empty name")
	}
	if err := p.delim('{'); err != nil {
		return e, err
	}
	var seen [len(fields)]bool
	for p.dec.More() {
		key, err := p.text("a key", MaxTensorName)
		if err != nil {
			return e, err
		}
		i := slices.Index(fields[:], key)
		if i < 0 {
			return e, refuse("tensor %s has the unknown key %s", quote(name), quote(key))
		}
		if seen[i] {
			return e, refuse("tensor %s has the key %s twice", quote(name), key)
		}
		seen[i] = true
		if err := p.field(&e, key); err != nil {
			return e, err
		}
	}
	if i := slices.Index(seen[:], false); i >= 0 {
		return e, refuse("tensor %s lacks %s", quote(name), fields[i])
	}
	return e, p.delim('}')
}

// field reads the value of one key of fields.
func (p parser) field(e *entry, key string) error {
	if key == "dtype" {
		s, err := p.text("a dtype", MaxTensorName)
		if err != nil {
			return err
		}
		e.tensor.DType = DType(s)
		if e.tensor.DType.ElementSize() == 0 {
			return refuse("tensor %s has the unknown dtype %s", quote(e.tensor.Name), quote(s))
		}
		return nil
	}
	if key == "shape" {
		shape, err := p.numbers(MaxDims)
		e.tensor.Shape = shape
		return err
	}
	at, err := p.numbers(2)
	if err != nil {
		return err
	}
	if len(at) != 2 {
		return refuse("tensor %s has %d data offsets, wanted 2", quote(e.tensor.Name), len(at))
	}
	e.begin, e.end = at[0], at[1]
	return nil
}

// metadata reads an object of strings.
func (p parser) metadata() (map[string]string, error) {
	if err := p.delim('{'); err != nil {
		return nil, err
	}
	m := map[string]string{}
	for p.dec.More() {
		key, err := p.text("a metadata key", MaxHeaderBytes)
		if err != nil {
			return nil, err
		}
		value, err := p.text("a metadata value", MaxHeaderBytes)
		if err != nil {
			return nil, err
		}
		if _, ok := m[key]; ok {
			return nil, refuse("the metadata key %s is there twice", quote(key))
		}
		if len(m) == MaxMetadata {
			return nil, refuse("there are more than %d metadata keys", MaxMetadata)
		}
		m[key] = value
	}
	return m, p.delim('}')
}

// numbers reads an array of at most limit plain non-negative integers.
func (p parser) numbers(limit int) ([]int64, error) {
	if err := p.delim('['); err != nil {
		return nil, err
	}
	ns := make([]int64, 0, 4)
	for p.dec.More() {
		tok, err := p.dec.Token()
		if err != nil {
			return nil, syntax(err)
		}
		num, ok := tok.(json.Number)
		if !ok {
			return nil, refuse("the header has something else where a number must be")
		}
		n, err := strconv.ParseInt(string(num), 10, 64)
		if err != nil || n < 0 || num[0] == '-' {
			return nil, refuse("%s is not a plain number of 63 bits", quote(string(num)))
		}
		if len(ns) == limit {
			return nil, refuse("a list of the header has more than %d numbers", limit)
		}
		ns = append(ns, n)
	}
	return ns, p.delim(']')
}

// text reads a string of at most limit bytes.
func (p parser) text(what string, limit int) (string, error) {
	tok, err := p.dec.Token()
	if err != nil {
		return "", syntax(err)
	}
	s, ok := tok.(string)
	if !ok {
		return "", refuse("the header has something else where %s must be", what)
	}
	if len(s) > limit {
		return "", refuse("%s has %d bytes, the limit is %d", what, len(s), limit)
	}
	return s, nil
}

// delim reads one of { } [ ].
func (p parser) delim(want json.Delim) error {
	tok, err := p.dec.Token()
	if err != nil {
		return syntax(err)
	}
	if tok != want {
		return refuse("the header has something else where %s must be", want)
	}
	return nil
}

// syntax shortens an error of the JSON decoder.
func syntax(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return refuse("the header's JSON is cut off")
	}
	return refuse("the header is not JSON: %s", quote(err.Error()))
}
