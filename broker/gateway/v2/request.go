package v2

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// request is the JSON object of an inference request. Its inputs' data are still text, or bytes behind the object.
type request struct {
	id      string
	hasID   bool
	inputs  []input
	outputs []output
	chosen  bool // outputs were chosen
	binary  bool // binary_data_output: all outputs as bytes unless one says otherwise
}

// input is one tensor of a request.
type input struct {
	name     string
	datatype string
	shape    [MaxDims]int64
	dims     int
	data     []byte // JSON, nil when it comes as bytes
	size     int64  // binary_data_size, -1 when it comes as JSON
}

// output is one wish.
type output struct {
	name   string
	binary *bool
}

var (
	requestNames = []string{"id", "parameters", "inputs", "outputs"}
	inputNames   = []string{"name", "shape", "datatype", "parameters", "data"}
	outputNames  = []string{"name", "parameters"}
)

// parse reads the JSON object. b stays in use: inputs point into it. Fields that the protocol does not name are skipped, as
// other servers do.
func parse(b []byte) (*request, *fail) {
	s, q := &scanner{b: b}, &request{}
	if s.peek() != '{' {
		return nil, invalid("the body is not a JSON object")
	}
	hasInputs := false
	f := s.object(0, requestNames, func(i int) (f *fail) {
		switch i {
		case 0:
			q.hasID = true
			q.id, f = s.text(MaxID)
			if f == nil && strings.ContainsFunc(q.id, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
				f = s.fault("the id has a control character")
			}
		case 1:
			var all params
			all, f = s.parameters()
			q.binary = all.output
		case 2:
			hasInputs = true
			f = s.list("inputs", MaxInputs, func(int) *fail {
				in, f := s.input()
				q.inputs = append(q.inputs, in)
				return f
			})
		case 3:
			q.chosen = true
			f = s.list("outputs", MaxOutputs, func(int) *fail {
				out, f := s.output()
				q.outputs = append(q.outputs, out)
				return f
			})
		}
		return f
	})
	if f == nil {
		f = s.end()
	}
	if f == nil && !hasInputs {
		f = invalid("inputs are missing")
	}
	return q, f
}

// params are the parameters that mean something here. Others are allowed, and ignored.
type params struct {
	size   int64 // binary_data_size, -1 for none
	binary *bool // binary_data
	output bool  // binary_data_output
}

var paramNames = []string{"binary_data_size", "binary_data", "binary_data_output", "classification"}

func (s *scanner) parameters() (params, *fail) {
	p := params{size: -1}
	f := s.object(1, paramNames, func(i int) (f *fail) {
		switch i {
		case 0:
			p.size, f = s.whole(MaxBody)
		case 1:
			var b bool
			b, f = s.boolean()
			p.binary = &b
		case 2:
			p.output, f = s.boolean()
		case 3:
			f = s.fault(`"classification" is an extension that this server does not have`)
		}
		return f
	})
	return p, f
}

func (s *scanner) boolean() (bool, *fail) {
	switch {
	case s.word("true"):
		return true, nil
	case s.word("false"):
		return false, nil
	}
	return false, s.fault("neither true nor false")
}

// whole reads an integer from 0 to limit.
func (s *scanner) whole(limit int64) (int64, *fail) {
	text, whole, f := s.number()
	if f != nil {
		return 0, f
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if !whole || err != nil || n < 0 || n > limit {
		return 0, s.fault(fmt.Sprintf("a number is no integer from 0 to %d", limit))
	}
	return n, nil
}

func (s *scanner) input() (input, *fail) {
	in := input{size: -1}
	has := [5]bool{}
	f := s.object(1, inputNames, func(i int) (f *fail) {
		has[i] = true
		switch i {
		case 0:
			in.name, f = s.text(MaxName)
		case 1:
			f = s.list("shape", MaxDims, func(i int) (f *fail) {
				in.shape[i], f = s.whole(math.MaxInt64)
				in.dims = i + 1
				return f
			})
		case 2:
			in.datatype, f = s.text(MaxName)
		case 3:
			var p params
			p, f = s.parameters()
			in.size = p.size
		case 4:
			if s.peek() != '[' {
				return s.fault("data is no list")
			}
			from := s.at
			f = s.skip(1)
			in.data = s.b[from:s.at]
		}
		return f
	})
	switch {
	case f != nil:
	case !has[0] || in.name == "":
		f = s.fault("an input has no name")
	case !has[1]:
		f = s.fault(fmt.Sprintf("input %q has no shape", in.name))
	case !has[2]:
		f = s.fault(fmt.Sprintf("input %q has no datatype", in.name))
	case in.data != nil && in.size >= 0:
		f = s.fault(fmt.Sprintf("input %q has data and binary_data_size", in.name))
	case in.data == nil && in.size < 0:
		f = s.fault(fmt.Sprintf("input %q has no data", in.name))
	}
	return in, f
}

func (s *scanner) output() (output, *fail) {
	var out output
	f := s.object(1, outputNames, func(i int) (f *fail) {
		if i == 0 {
			out.name, f = s.text(MaxName)
			return f
		}
		p, f := s.parameters()
		out.binary = p.binary
		return f
	})
	if f == nil && out.name == "" {
		f = s.fault("an output has no name")
	}
	return out, f
}
