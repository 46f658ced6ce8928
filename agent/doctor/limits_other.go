//go:build !linux && !darwin

package doctor

import "errors"

// FreeSpace is not known on this system.
func FreeSpace(string) (int64, error) { return 0, errors.New("not known on this system") }

// OpenFiles is not known on this system.
func OpenFiles() (uint64, error) { return 0, errors.New("not known on this system") }
