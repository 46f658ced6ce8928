package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tensorturn/domain/run"
)

// A folder of text may be named from within: the last part of ".." is no name.
func TestTextAboveIsPacked(t *testing.T) {
	top := t.TempDir()
	below := filepath.Join(top, "specs")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(top, "words.txt"), []byte(strings.Repeat("some words to learn. ", 200)), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(below)
	for _, path := range []string{"..", ".", "../words.txt", top} {
		spec := run.Spec{Data: run.Data{Path: path, Format: run.FormatText, Holdout: 0.2}, Model: run.Model{Kind: run.ModelMLP, Context: 8}}
		p, err := packText(&spec, io.Discard, func(string, ...any) {})
		if path == "." { // no text in it, and that is what it says
			if err == nil || !strings.Contains(err.Error(), "holds no text") {
				t.Errorf("%q: %v", path, err)
			}
		} else if err != nil || p.facts.Samples == 0 {
			t.Errorf("%q: %v, %+v", path, err, p.facts)
		}
	}
}
