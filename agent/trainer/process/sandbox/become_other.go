//go:build !linux

package sandbox

import "errors"

func become(errand, []string) error { return errors.New("limits and sandboxes need Linux") }

func available() ([]Backend, string, []string) {
	return nil, "", []string{"sandboxes need Linux"}
}

// Helper is how this very binary is started again, also when its file was replaced since. Empty: it cannot be.
func Helper() string { return "" }
