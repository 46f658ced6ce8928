package dataset

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"tensorturn/domain"
)

// cell is what a field of a table turns out to be.
type cell uint8

const (
	isValue     cell = iota // a finite number
	isMissing               // empty, or one of the marks people write for "no value"
	isNotFinite             // NaN or Inf
	isTooLarge              // beyond float32
	isText
)

// number reads a decimal number.
func number(s string) (float64, cell) {
	switch strings.ToLower(s) {
	case "", "?", "-", "na", "n/a", "null", "none":
		return 0, isMissing
	}
	if strings.ContainsAny(s, "xX_") { // Go's own spellings of numbers are not a table's
		return 0, isText
	}
	v, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return 0, isText
	case err == nil && (math.IsNaN(v) || math.IsInf(v, 0)):
		return 0, isNotFinite
	case math.Abs(v) > math.MaxFloat32:
		return 0, isTooLarge
	}
	return v, isValue
}

// why says what is wrong with the field s, for people.
func (c cell) why(s string) string {
	switch c {
	case isMissing:
		if s == "" {
			return "the value is missing"
		}
		return fmt.Sprintf("the value is missing (%q)", domain.Clip(s, 40))
	case isNotFinite:
		return fmt.Sprintf("%q is not finite", domain.Clip(s, 40))
	case isTooLarge:
		return fmt.Sprintf("%q is too large for a 32-bit float", domain.Clip(s, 40))
	}
	return fmt.Sprintf("%q is not a number", domain.Clip(s, 40))
}

// isNaN reports the ways people write a value that is none: a data frame writes NaN for what is missing.
func isNaN(s string) bool { return strings.EqualFold(strings.TrimLeft(s, "+-"), "nan") }
