package domain_test

import (
	"math"
	"testing"

	"tensorturn/domain"
)

func TestFigure(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 1: "1", 12: "12", 1234.5: "1235", 12.345: "12.3", 0.012345: "0.0123", 99.96: "100", 1e9: "1000000000", -3.14159: "-3.14", math.Inf(1): "+Inf"} {
		if got := domain.Figure(x); got != want {
			t.Errorf("domain.Figure(%v) = %q, want %q", x, got, want)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 bytes", 1: "1 byte", 1023: "1023 bytes", 1 << 10: "1 KiB", 1536: "1.5 KiB", 123<<20 + 400<<10: "123.4 MiB",
		16 << 30: "16 GiB", 5 << 40: "5 TiB"} {
		if got := domain.FormatSize(n); got != want {
			t.Errorf("FormatSize(%d) = %q, want %q", n, got, want)
		}
		if got := domain.FormatSize(int64(n)); got != want {
			t.Errorf("FormatSize(int64(%d)) = %q, want %q", n, got, want)
		}
	}
}
