package domain_test

import (
	"io"
	"strings"
	"testing"

	"tensorturn/domain"
)

// The end is kept, whatever the pieces, and no more memory than twice the bound.
func TestTailKeepsTheEnd(t *testing.T) {
	const most = 100
	text := strings.Repeat("0123456789 ", 50) + "\nthe end\n"
	for _, piece := range []int{1, 7, most - 1, most, most + 1, 2 * most, len(text)} {
		tail := &domain.Tail{Most: most}
		for at := 0; at < len(text); at += piece {
			p := text[at:min(at+piece, len(text))]
			if n, err := io.WriteString(tail, p); n != len(p) || err != nil {
				t.Fatalf("wrote %d of %d: %v", n, len(p), err)
			}
		}
		if got := tail.String(); got != text[len(text)-most:] {
			t.Errorf("in pieces of %d: %q", piece, got)
		}
		if got := tail.LastLine("nothing"); got != "the end" {
			t.Errorf("in pieces of %d the last line is %q", piece, got)
		}
	}
}

func TestTailOfLittle(t *testing.T) {
	for said, want := range map[string]string{"": "nothing", " \n\n": "nothing", "why": "why", "trace\n  why \n\n": "why"} {
		tail := &domain.Tail{Most: 100}
		io.WriteString(tail, said)
		if got := tail.LastLine("nothing"); got != want {
			t.Errorf("%q: the last line is %q", said, got)
		}
	}
}

// io.Copy, which os/exec fills a writer with, finds no way past the bound.
func TestTailIsBoundedUnderCopy(t *testing.T) {
	tail := &domain.Tail{Most: 100}
	if n, err := io.Copy(tail, io.LimitReader(endless{}, 1<<20)); n != 1<<20 || err != nil {
		t.Fatal(n, err)
	}
	if got := len(tail.String()); got != 100 {
		t.Errorf("%d bytes are kept", got)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
