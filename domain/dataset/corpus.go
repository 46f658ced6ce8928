package dataset

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"tensorturn/domain"
)

const (
	opText     = "read text"
	binaryHead = 8 << 10 // bytes in which a file that is no text nearly always has a byte 0
)

// Corpus is what ReadText found.
type Corpus struct {
	Text  []byte
	Files int // files that Text holds, one byte 0 between two
	Other int // files that hold a byte 0, and are no text

	Largest []TextFile // the few that Text has most of, largest first
}

// TextFile is a file of a text.
type TextFile struct {
	Path  string
	Bytes int // unpacked
}

// largestFiles bounds Corpus.Largest.
const largestFiles = 3

// note keeps the largest files; of equal ones the earlier goes first.
func (c *Corpus) note(path string, size int) {
	at := len(c.Largest)
	for at > 0 && c.Largest[at-1].Bytes < size {
		at--
	}
	c.Largest = slices.Insert(c.Largest, at, TextFile{path, size})
	c.Largest = c.Largest[:min(len(c.Largest), largestFiles)]
}

// ReadText reads a file or, in the order of their paths, all files below a folder, but for those that are no text and
// those whose own or whose folder's name begins with a dot. A file that is gzip is unpacked.
func ReadText(root fs.FS, name string) (Corpus, error) {
	var c Corpus
	err := fs.WalkDir(root, name, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return domain.NotFound(opText, err.Error(), "data.path is relative to the folder of the spec")
		case path != name && strings.HasPrefix(e.Name(), "."):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !e.Type().IsRegular() && path != name || e.IsDir():
			return nil // folders are walked into; links and devices are not followed
		case c.Files+c.Other >= maxTextFiles:
			return domain.Invalid(opText, fmt.Sprintf("%s holds more than %d files", name, maxTextFiles), "name a smaller folder")
		}
		return c.add(root, path)
	})
	if err == nil && len(c.Text) == 0 {
		err = domain.Invalid(opText, fmt.Sprintf("%s holds no text", name), "name a file or a folder with text in it")
	}
	return c, err
}

func (c *Corpus) add(root fs.FS, path string) error {
	f, err := root.Open(path)
	if err != nil {
		return domain.NotFound(opText, err.Error(), "")
	}
	defer f.Close()
	in, err := Unzipped(f, opText)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if head, _ := in.Peek(binaryHead); bytes.IndexByte(head, 0) >= 0 { // before its size is judged: no text counts against the limit
		c.Other++
		return nil
	}
	raw, err := readBounded(in, MaxCorpusBytes-len(c.Text))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if bytes.IndexByte(raw, 0) >= 0 {
		c.Other++
		return nil
	}
	if len(raw) == 0 {
		return nil
	}
	if c.Files > 0 {
		c.Text = append(c.Text, 0)
	}
	c.Text = append(c.Text, raw...)
	c.note(path, len(raw))
	c.Files++
	return nil
}

// readBounded reads all, at most limit bytes.
func readBounded(r io.Reader, limit int) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, sourceError(opText, err)
	}
	if len(raw) > limit {
		return nil, domain.Invalid(opText, fmt.Sprintf("the text is longer than %d bytes", MaxCorpusBytes), "give a part of it")
	}
	return raw, nil
}
