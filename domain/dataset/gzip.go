package dataset

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"tensorturn/domain"
)

const readBuffer = 64 << 10

// Unzipped reads a stream that begins like gzip unpacked, and any other as it is. op is what an error says was tried.
func Unzipped(r io.Reader, op string) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(r, readBuffer)
	if magic, _ := in.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return in, nil
	}
	unzipped, err := gzip.NewReader(in)
	if err != nil {
		return nil, sourceError(op, err)
	}
	return bufio.NewReaderSize(unzipped, readBuffer), nil
}

// sourceError gives a damaged or cut gzip stream its sentence; any other failure of the source is passed on.
func sourceError(op string, err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return domain.Invalid(op, "the gzip stream ends early", "the file is cut off: copy or download it again")
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), isCorrupt(err):
		return domain.Invalid(op, "the gzip stream is damaged: "+domain.Clip(err.Error(), 80), "copy or download the file again")
	}
	return fmt.Errorf("%s: %w", op, err)
}

// isCorrupt reports a deflate stream that cannot be read.
func isCorrupt(err error) bool {
	var corrupt flate.CorruptInputError
	return errors.As(err, &corrupt)
}
