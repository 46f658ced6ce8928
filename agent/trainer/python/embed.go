// Package python holds tensorturn.py, the one-file helper that a PyTorch script imports. It runs nothing: the process
// trainer puts the file on the child's path.
package python

import _ "embed"

// File is the module's file name.
const File = "tensorturn.py"

//go:embed tensorturn.py
var helper string

// Helper is the module's text.
func Helper() string { return helper }
