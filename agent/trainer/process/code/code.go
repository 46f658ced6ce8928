// Package code packs an owner's folder for the machines of a pool and unpacks it there. The archive is a plain tar in a
// fixed form, so that equal folders give equal bytes: entries in order of their names, regular files alone, no owner,
// no times. It is not compressed: what comes out is as long as what went in, and there is nothing to bomb with.
//
// Pack runs where a run is submitted and trusts the folder, but not its links. Unpack runs on every machine and trusts
// nothing: it writes through an os.Root, so that no name leaves the folder, creates files anew, and makes no links.
// It never runs anything. run submit and agent/trainer/process call it.
package code

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"tensorturn/domain"
)

// Limits of a folder of code; data do not belong into it.
const (
	MaxBytes   = 64 << 20 // of all files
	MaxFiles   = 4096
	MaxDepth   = 16
	MaxName    = 255                   // bytes of a path within the folder
	MaxHeaders = MaxFiles*3*512 + 1024 // what the archive adds: a header and padding for each file, two blocks at the end
)

const opUnpack = "unpack code"

// checkName refuses what is no plain relative path: the same rule on both sides.
func checkName(name string) error {
	switch {
	case name == "" || len(name) > MaxName:
		return fmt.Errorf("a name has %d bytes, allowed are 1 to %d", len(name), MaxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\\' || r == ':' }):
		return fmt.Errorf("the name %q has characters that not every machine allows", domain.Clip(name, 80))
	case path.IsAbs(name) || path.Clean(name) != name || name == ".." || name == "." || strings.HasPrefix(name, "../"):
		return fmt.Errorf("the name %q is no plain path within the folder", domain.Clip(name, 80))
	case strings.Count(name, "/") >= MaxDepth:
		return fmt.Errorf("the name %q is deeper than %d folders", domain.Clip(name, 80), MaxDepth)
	}
	return nil
}

// header is the one form an entry has.
func header(name string, size int64, executable bool) *tar.Header {
	mode := int64(0o644)
	if executable {
		mode = 0o755
	}
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: mode, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
}

// Unpack writes the archive below root, which should be empty. Errors are domain.KindInvalid; what was written before
// one stays.
func Unpack(r io.Reader, root *os.Root) error {
	in, last, total := tar.NewReader(r), "", int64(0)
	for files := 0; ; files++ {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return unreadable(err)
		}
		switch {
		case files >= MaxFiles:
			return refuse("it has more than %d files", MaxFiles)
		case h.Typeflag != tar.TypeReg || h.Linkname != "" || len(h.PAXRecords) > 0 || h.Name <= last:
			return refuse("the entry %q is no plain file in its place", domain.Clip(h.Name, 80))
		case h.Size < 0 || h.Size > MaxBytes-total:
			return refuse("its files have more than %d bytes", MaxBytes)
		}
		if err := checkName(h.Name); err != nil {
			return refuse("%v", err)
		}
		last, total = h.Name, total+h.Size
		if err := write(root, h, in); err != nil {
			return err
		}
	}
}

// write makes one file and the folders above it.
func write(root *os.Root, h *tar.Header, body io.Reader) error {
	if dir := path.Dir(h.Name); dir != "." {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return refuse("%q: %v", domain.Clip(h.Name, 80), err)
		}
	}
	f, err := root.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600|os.FileMode(h.Mode)&0o100)
	if err != nil {
		return refuse("%q: %v", domain.Clip(h.Name, 80), err)
	}
	n, err := io.Copy(f, io.LimitReader(body, h.Size))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return unreadable(err)
	}
	if n != h.Size {
		return refuse("%q is cut off", domain.Clip(h.Name, 80))
	}
	return nil
}

// unreadable keeps the kind of a source or disk that fails, and calls everything else bad bytes.
func unreadable(err error) error {
	if k := domain.KindOf(err); k != domain.KindInternal {
		return fmt.Errorf("%s: %w", opUnpack, err)
	}
	return refuse("the archive cannot be read: %v", domain.Clip(err.Error(), 120))
}

func refuse(format string, args ...any) error {
	return domain.Invalid(opUnpack, fmt.Sprintf(format, args...), "submit the run again with: tensorturn run submit")
}

// Facts is what was packed.
type Facts struct {
	Files int
	Bytes int64
}

// sorted puts names in the order of the archive.
func sorted(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
