package main

import (
	"fmt"
	"io"
	"os"

	"github.com/google/renameio/v2"
)

// Limits of small files that a process has written and reads again: one that the disk has made longer is not read to its end.
const (
	maxHeadFile    = 1 << 10   // a signed position takes 104 bytes
	maxContextFile = 256 << 10 // a URL, a key and a chain of certificates
	maxRestFile    = 64 << 10  // quiet hours
	maxKeyFile     = 200       // a public key as 64 hexadecimal digits
)

// readSmall reads a file of most bytes at most.
func readSmall(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		return nil, fmt.Errorf("%s has more than %d bytes: it is damaged, or another file", path, most)
	}
	return b, err
}

// writeSmall replaces a file in one step, in its own folder. A folder that has come in its place, which no program of ours makes, is
// taken away: the file would else never be written again.
func writeSmall(path string, b []byte) error {
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return renameio.WriteFile(path, b, 0o600)
}
