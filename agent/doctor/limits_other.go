//go:build !linux && !darwin

package doctor

import "errors"

// OpenFiles is not known on this system.
func OpenFiles() (uint64, error) { return 0, errors.New("not known on this system") }
