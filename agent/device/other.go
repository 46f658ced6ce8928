//go:build !cgo || !linux

package device

func newSource() source { return newProgram("nvidia-smi") }
