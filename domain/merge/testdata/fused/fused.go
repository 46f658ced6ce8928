// Package fused is what domain/merge must not be: its product and sum may become one instruction with one rounding.
package fused

// Bare leaves the compiler free to fuse.
func Bare(x, y, z float64) float64 { return x*y + z }

// Wrapped does not.
func Wrapped(x, y, z float64) float64 { return float64(x*y) + z }
