//go:build !cgo || !linux

package device

func hardware(name string) source { return plain(name) }
