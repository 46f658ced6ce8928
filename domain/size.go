package domain

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// byteUnits are the units of sizes as people write them; the longest suffix that matches comes first.
var byteUnits = [...]struct {
	name string
	size float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40}, {"B", 1}, {"", 1}}

// ParseSize reads a number of bytes as people write it: 16GiB, 16G, 16GB, or a plain number.
func ParseSize(text string) (uint64, error) {
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(v >= 0) || v*u.size > 1<<62 {
			break
		}
		return uint64(v * u.size), nil
	}
	return 0, fmt.Errorf("%q is no size: write for example 16GiB", Clip(text, MaxNameLength))
}

// FormatSize says a number of bytes for people: in the largest unit that it fills, with one decimal where that is not 0.
func FormatSize[N int64 | uint64](n N) string {
	for _, u := range [...]struct {
		name string
		size N
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size {
			return strings.TrimSuffix(strconv.FormatFloat(float64(n)/float64(u.size), 'f', 1, 64), ".0") + " " + u.name
		}
	}
	if n == 1 {
		return "1 byte"
	}
	return strconv.FormatInt(int64(n), 10) + " bytes"
}

// Figure writes a number for people: three digits are what a measurement is worth.
func Figure(x float64) string {
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(x)))))
	return strconv.FormatFloat(math.Round(x*math.Pow10(digits))/math.Pow10(digits), 'f', -1, 64)
}
