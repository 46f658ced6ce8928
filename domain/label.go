package domain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Limits of labels.
const (
	MaxLabels = 32 // of a machine, and asked for by a run
	MaxLabel  = 63 // bytes of a label's key, and of its value
)

// CheckLabels checks labels of a machine, and those that a run asks for: words that a shell, a URL and a table take as they are.
func CheckLabels(op, field string, labels map[string]string) error {
	if len(labels) > MaxLabels {
		return Invalid(op, fmt.Sprintf("%s has %d labels", field, len(labels)), fmt.Sprintf("give at most %d", MaxLabels))
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if !labelWord(key) || !labelWord(labels[key]) {
			return Invalid(op, fmt.Sprintf("%s has %q=%q", field, Clip(key, MaxNameLength), Clip(labels[key], MaxNameLength)),
				fmt.Sprintf("use words of 1 to %d letters, digits and . _ - /", MaxLabel))
		}
	}
	return nil
}

func labelWord(s string) bool {
	odd := strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/", r))
	})
	return len(s) >= 1 && len(s) <= MaxLabel && !odd
}

// LabelText lists labels for people, by key.
func LabelText(labels map[string]string) string {
	words := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	return strings.Join(words, ", ")
}
