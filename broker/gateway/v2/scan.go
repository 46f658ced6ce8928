package v2

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// scanner reads JSON (RFC 8259) strictly and in place: a request's numbers go straight into the model's rows, and nothing
// of what a caller sends makes memory beyond the body itself. It stops at the first fault.
type scanner struct {
	b  []byte
	at int
}

// fault names what is wrong and where.
func (s *scanner) fault(what string) *fail {
	return invalid(fmt.Sprintf("byte %d of the JSON: %s", s.at, what))
}

func (s *scanner) space() {
	for s.at < len(s.b) {
		switch s.b[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// peek gives the next byte that is no space, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.at == len(s.b) {
		return 0
	}
	return s.b[s.at]
}

// take consumes c if it is next.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) expect(c byte) *fail {
	if !s.take(c) {
		return s.fault(fmt.Sprintf("%q is missing", c))
	}
	return nil
}

// end demands that nothing follows.
func (s *scanner) end() *fail {
	if s.peek() != 0 || s.at < len(s.b) {
		return s.fault("something follows the object")
	}
	return nil
}

// object calls member with each name; member reads the value. A name that comes twice among those of known is refused:
// two readers of the same bytes must not see two requests.
func (s *scanner) object(depth int, known []string, member func(i int) *fail) *fail {
	if f := s.expect('{'); f != nil {
		return f
	}
	if s.take('}') {
		return nil
	}
	var seen uint64
	for {
		name, f := s.text(MaxName)
		if f != nil {
			return f
		}
		if f := s.expect(':'); f != nil {
			return f
		}
		i := indexOf(known, name)
		if i < 0 {
			f = s.skip(depth + 1)
		} else {
			if seen&(1<<i) != 0 {
				return s.fault(fmt.Sprintf("%q comes twice", name))
			}
			seen |= 1 << i
			f = member(i)
		}
		if f != nil {
			return f
		}
		if s.take('}') {
			return nil
		}
		if f := s.expect(','); f != nil {
			return f
		}
	}
}

func indexOf(list []string, name string) int {
	for i, n := range list {
		if n == name {
			return i
		}
	}
	return -1
}

// list calls item for each element, at most limit of them.
func (s *scanner) list(what string, limit int, item func(i int) *fail) *fail {
	if f := s.expect('['); f != nil {
		return f
	}
	if s.take(']') {
		return nil
	}
	for i := 0; ; i++ {
		if i == limit {
			return s.fault(fmt.Sprintf("%s has more than %d elements", what, limit))
		}
		if f := item(i); f != nil {
			return f
		}
		if s.take(']') {
			return nil
		}
		if f := s.expect(','); f != nil {
			return f
		}
	}
}

// text reads a string of at most limit bytes.
func (s *scanner) text(limit int) (string, *fail) {
	raw, f := s.raw()
	if f != nil {
		return "", f
	}
	plain := raw[1 : len(raw)-1]
	for _, c := range plain {
		if c == '\\' {
			var out string
			if err := json.Unmarshal(raw, &out); err != nil {
				return "", s.fault("a text has a wrong escape")
			}
			if len(out) > limit {
				return "", s.fault(fmt.Sprintf("a text is longer than %d bytes", limit))
			}
			return out, nil
		}
	}
	if len(plain) > limit {
		return "", s.fault(fmt.Sprintf("a text is longer than %d bytes", limit))
	}
	return string(plain), nil
}

// raw reads a string with its quotes and checks it: no control characters, escapes that exist, UTF-8.
func (s *scanner) raw() ([]byte, *fail) {
	if s.peek() != '"' {
		return nil, s.fault("a text is missing")
	}
	from := s.at
	ascii := true
	for i := from + 1; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			s.at = i + 1
			if !ascii && !utf8.Valid(s.b[from:s.at]) {
				return nil, s.fault("a text is not UTF-8")
			}
			return s.b[from:s.at], nil
		case c == '\\':
			n := escape(s.b[i+1:])
			if n == 0 {
				s.at = i
				return nil, s.fault("a text has a wrong escape")
			}
			i += n
		case c < ' ':
			s.at = i
			return nil, s.fault("a text has a control character")
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	s.at = len(s.b)
	return nil, s.fault("a text does not end")
}

// escape gives the length of an escape behind its backslash, 0 for none.
func escape(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	switch b[0] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 1
	case 'u':
		if len(b) < 5 {
			return 0
		}
		for _, c := range b[1:5] {
			if !(c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f') {
				return 0
			}
		}
		return 5
	}
	return 0
}

// number reads a number and gives its text; whole is false when it has a fraction or an exponent.
func (s *scanner) number() (text []byte, whole bool, f *fail) {
	s.space()
	from, b := s.at, s.b
	i := from
	digits := func() int {
		n := i
		for i < len(b) && b[i]-'0' <= 9 {
			i++
		}
		return i - n
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	zero := i < len(b) && b[i] == '0'
	n := digits()
	if n == 0 || zero && n > 1 {
		return nil, false, s.fault("a number is missing or malformed")
	}
	whole = true
	if i < len(b) && b[i] == '.' {
		i++
		whole = false
		if digits() == 0 {
			return nil, false, s.fault("a number is malformed")
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		whole = false
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if digits() == 0 {
			return nil, false, s.fault("a number is malformed")
		}
	}
	s.at = i
	return b[from:i], whole, nil
}

// word consumes true, false or null.
func (s *scanner) word(w string) bool {
	s.space()
	if len(s.b)-s.at >= len(w) && string(s.b[s.at:s.at+len(w)]) == w {
		s.at += len(w)
		return true
	}
	return false
}

// skip reads a value of any kind and drops it.
func (s *scanner) skip(depth int) *fail {
	if depth > maxDepth {
		return s.fault(fmt.Sprintf("values are nested deeper than %d", maxDepth))
	}
	switch c := s.peek(); {
	case c == '{':
		return s.object(depth, nil, nil)
	case c == '[':
		return s.list("a list", len(s.b), func(int) *fail { return s.skip(depth + 1) })
	case c == '"':
		_, f := s.raw()
		return f
	case c == 't' && s.word("true"), c == 'f' && s.word("false"), c == 'n' && s.word("null"):
		return nil
	}
	_, _, f := s.number()
	return f
}
