package dataset

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"tensorturn/domain"
)

const opRead = "read data set"

// rowReader cuts a stream into records. A record is one line: a quoted field may hold commas and doubled quotes but no
// line break, so that every error can name a line and an unclosed quote cannot swallow the file.
type rowReader struct {
	in     *bufio.Reader
	line   int   // number of the last line read, from 1
	total  int64 // bytes read
	buf    []byte
	fields []string
}

// newRowReader looks at the first bytes: gzip is unpacked, a UTF-8 byte order mark is dropped.
func newRowReader(r io.Reader) (*rowReader, error) {
	in, err := Unzipped(r, opRead)
	if err != nil {
		return nil, err
	}
	if mark, _ := in.Peek(3); bytes.Equal(mark, []byte{0xef, 0xbb, 0xbf}) {
		in.Discard(3)
	}
	return &rowReader{in: in}, nil
}

// next returns the fields of the next line that is not blank, valid until the following call. io.EOF ends the file.
func (r *rowReader) next() ([]string, error) {
	for {
		line, err := r.readLine()
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if bytes.IndexByte(line, 0) >= 0 || !utf8.Valid(line) {
			return nil, domain.Invalid(opRead, fmt.Sprintf("line %d is not UTF-8 text", r.line),
				"give a CSV file in UTF-8, plain or gzip")
		}
		return r.split(string(line))
	}
}

func (r *rowReader) readLine() ([]byte, error) {
	r.line++
	r.buf = r.buf[:0]
	for {
		part, err := r.in.ReadSlice('\n')
		r.buf = append(r.buf, part...)
		r.total += int64(len(part))
		if len(r.buf) > MaxLineBytes {
			return nil, domain.Invalid(opRead, fmt.Sprintf("line %d is longer than %d bytes", r.line, MaxLineBytes),
				"give one sample a line, columns separated by commas")
		}
		if r.total > MaxTextBytes {
			return nil, domain.Invalid(opRead, fmt.Sprintf("the text is longer than %d bytes", int64(MaxTextBytes)),
				"give a smaller file")
		}
		switch {
		case err == nil, errors.Is(err, io.EOF) && len(r.buf) > 0:
			return bytes.TrimRight(r.buf, "\r\n"), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		default:
			return nil, sourceError(opRead, err)
		}
	}
}

// split cuts one line into fields.
func (r *rowReader) split(line string) ([]string, error) {
	r.fields = r.fields[:0]
	for {
		field, rest, more, err := r.cut(line)
		if err != nil {
			return nil, err
		}
		r.fields = append(r.fields, field)
		if len(r.fields) > MaxColumns {
			return nil, domain.Invalid(opRead, fmt.Sprintf("line %d has more than %d columns", r.line, MaxColumns), "give a narrower table")
		}
		if !more {
			return r.fields, nil
		}
		line = rest
	}
}

// cut takes one field off the front of a line.
func (r *rowReader) cut(line string) (field, rest string, more bool, err error) {
	trimmed := strings.TrimLeft(line, " \t")
	if !strings.HasPrefix(trimmed, `"`) {
		field, rest, more = strings.Cut(line, ",")
		return strings.TrimSpace(field), rest, more, nil
	}
	body := trimmed[1:]
	for at := 0; ; {
		i := strings.IndexByte(body[at:], '"')
		if i < 0 {
			return "", "", false, domain.Invalid(opRead, fmt.Sprintf("line %d, column %d: the quote is not closed", r.line, len(r.fields)+1),
				"close the quote on the same line")
		}
		at += i + 1
		if strings.HasPrefix(body[at:], `"`) {
			at++
			continue
		}
		before, rest, more := strings.Cut(body[at:], ",")
		if strings.TrimSpace(before) != "" {
			return "", "", false, domain.Invalid(opRead, fmt.Sprintf("line %d, column %d: text after the closing quote", r.line, len(r.fields)+1),
				"put a comma after the quote, or double the quote inside the field")
		}
		return strings.ReplaceAll(body[:at-1], `""`, `"`), rest, more, nil
	}
}
