package safetensors

import (
	"bytes"
	"cmp"
	"slices"
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

// parseHeader checks everything that can be known without the data.
func parseHeader(b []byte) (header, error) {
	if len(b) == 0 || b[0] != '{' {
		return header{}, refuse("the header does not begin with {")
	}
	if !utf8.Valid(b) {
		return header{}, refuse("the header is not valid UTF-8")
	}
	p := &scanner{b: b}
	entries, metadata, err := p.top()
	if err != nil {
		return header{}, err
	}
	if rest := b[p.at:]; len(bytes.TrimLeft(rest, " ")) > 0 {
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
func (p *scanner) top() ([]entry, map[string]string, error) {
	var entries []entry
	var metadata map[string]string
	seen := map[string]bool{}
	err := p.object("a tensor's name", MaxTensorName, func(name string) error {
		if seen[name] {
			return refuse("the name %s is there twice", quote(name))
		}
		seen[name] = true
		if name == metadataKey {
			var err error
			metadata, err = p.metadata()
			return err
		}
		if len(entries) == MaxTensors {
			return refuse("there are more than %d tensors", MaxTensors)
		}
		e, err := p.entry(name)
		entries = append(entries, e)
		return err
	})
	return entries, metadata, err
}

// entry reads {"dtype": ..., "shape": [...], "data_offsets": [begin, end]} in any order of keys.
func (p *scanner) entry(name string) (entry, error) {
	e := entry{tensor: Tensor{Name: name}}
	if name == "" {
		return e, refuse("a tensor has an empty name")
	}
	var seen [len(fields)]bool
	err := p.object("a key", MaxTensorName, func(key string) error {
		i := slices.Index(fields[:], key)
		if i < 0 {
			return refuse("tensor %s has the unknown key %s", quote(name), quote(key))
		}
		if seen[i] {
			return refuse("tensor %s has the key %s twice", quote(name), key)
		}
		seen[i] = true
		return p.field(&e, key)
	})
	if err != nil {
		return e, err
	}
	if i := slices.Index(seen[:], false); i >= 0 {
		return e, refuse("tensor %s lacks %s", quote(name), fields[i])
	}
	return e, nil
}

// field reads the value of one key of fields.
func (p *scanner) field(e *entry, key string) error {
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
func (p *scanner) metadata() (map[string]string, error) {
	m := map[string]string{}
	err := p.object("a metadata key", MaxHeaderBytes, func(key string) error {
		value, err := p.text("a metadata value", MaxHeaderBytes)
		if err != nil {
			return err
		}
		if _, ok := m[key]; ok {
			return refuse("the metadata key %s is there twice", quote(key))
		}
		if len(m) == MaxMetadata {
			return refuse("there are more than %d metadata keys", MaxMetadata)
		}
		m[key] = value
		return nil
	})
	return m, err
}
