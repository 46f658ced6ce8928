package safetensors

import (
	"encoding/json"
	"math"
)

// scanner walks the JSON of a header. encoding/json would build what nobody wants, keep the last of two equal keys,
// replace what is not UTF-8 and cost forty times the memory; the header needs objects, lists of plain numbers and
// strings, and nothing deeper than three levels.
type scanner struct {
	b  []byte
	at int
}

// next skips white space and gives the byte that follows, 0 at the end.
func (p *scanner) next() byte {
	for p.at < len(p.b) {
		switch c := p.b[p.at]; c {
		case ' ', '\n', '\t', '\r':
			p.at++
		default:
			return c
		}
	}
	return 0
}

// take consumes c, which must follow.
func (p *scanner) take(c byte) error {
	if got := p.next(); got != c {
		return p.unexpected(string(c))
	}
	p.at++
	return nil
}

// unexpected says what stands where want must be.
func (p *scanner) unexpected(want string) error {
	if p.next() == 0 && p.at >= len(p.b) {
		return refuse("the header is cut off where %s must be", want)
	}
	return refuse("the header has %s where %s must be", quote(string(p.b[p.at:min(p.at+8, len(p.b))])), want)
}

// object reads {"key": value, ...} and calls value behind each colon.
func (p *scanner) object(what string, limit int, value func(key string) error) error {
	return p.list('{', '}', func() error {
		key, err := p.text(what, limit)
		if err != nil {
			return err
		}
		if err := p.take(':'); err != nil {
			return err
		}
		return value(key)
	})
}

// list reads items with commas between them.
func (p *scanner) list(open, end byte, item func() error) error {
	if err := p.take(open); err != nil {
		return err
	}
	if p.next() == end {
		p.at++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if p.next() != ',' {
			return p.take(end)
		}
		p.at++
	}
}

// numbers reads a list of at most limit non-negative integers without sign, fraction, exponent or leading zero.
func (p *scanner) numbers(limit int) ([]int64, error) {
	ns := make([]int64, 0, 2)
	err := p.list('[', ']', func() error {
		if len(ns) == limit {
			return refuse("a list of the header has more than %d numbers", limit)
		}
		n, err := p.number()
		ns = append(ns, n)
		return err
	})
	return ns, err
}

func (p *scanner) number() (int64, error) {
	if c := p.next(); c < '0' || c > '9' {
		return 0, p.unexpected("a plain number")
	}
	n, from := int64(0), p.at
	for ; p.at < len(p.b) && p.b[p.at] >= '0' && p.b[p.at] <= '9'; p.at++ {
		d := int64(p.b[p.at] - '0')
		if n > (math.MaxInt64-d)/10 {
			return 0, refuse("a number of the header is above 2^63-1")
		}
		n = n*10 + d
	}
	if p.b[from] == '0' && p.at-from > 1 {
		return 0, refuse("a number of the header begins with 0")
	}
	return n, nil
}

// text reads a string of at most limit bytes.
func (p *scanner) text(what string, limit int) (string, error) {
	if p.next() != '"' {
		return "", p.unexpected(what)
	}
	from, escaped := p.at, false
	for p.at++; ; p.at++ {
		if p.at >= len(p.b) {
			return "", refuse("the header is cut off in %s", what)
		}
		c := p.b[p.at]
		if c == '"' {
			break
		}
		if c < 0x20 {
			return "", refuse("%s has an unescaped control character", what)
		}
		if c == '\\' {
			escaped = true
			p.at++ // whatever follows does not end the string
		}
	}
	p.at++
	s := string(p.b[from+1 : p.at-1])
	if escaped {
		if err := json.Unmarshal(p.b[from:p.at], &s); err != nil {
			return "", refuse("%s has a wrong escape", what)
		}
	}
	if len(s) > limit {
		return "", refuse("%s has %d bytes, the limit is %d", what, len(s), limit)
	}
	return s, nil
}
