// Package docs runs what the documents tell people to type: every shell block of every *.md, in order, in a fresh home, with
// the built program and real processes on loopback. A document that lies fails `make test`. It asserts nothing else about
// the product.
//
// The text is run as it stands but for what a reader replaces too: hub.example.org:7443 is the hub's address, ttj_... the
// token that the block before has printed. A command that never ends (hub start, agent start, --follow) goes on in the
// background, as it would in a terminal of its own. A yaml block whose first line names a file (`# digits.yaml: ...`) becomes
// that file. A block that needs what a test has not begins with `# elsewhere: why`; there may be maxElsewhere of them.
package docs

import (
	"fmt"
	"strings"
)

// block is a fenced block of a document.
type block struct {
	file string
	line int // of its first line of text
	kind string
	text string
}

// elsewhere begins a block that the test cannot run.
const elsewhere = "# elsewhere: "

// maxElsewhere bounds how many blocks may say so: each is a promise that nobody checks.
const maxElsewhere = 3

// blocks reads the fenced blocks of a document. A fence that is never closed is an error.
func blocks(file, text string) ([]block, error) {
	var out []block
	var open *block
	for i, line := range strings.Split(text, "\n") {
		mark, isFence := strings.CutPrefix(strings.TrimLeft(line, " "), "```")
		switch {
		case isFence && open == nil:
			kind, _, _ := strings.Cut(strings.TrimSpace(mark), " ")
			open = &block{file: file, line: i + 2, kind: kind}
		case isFence:
			out = append(out, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s:%d: the block is never closed", file, open.line)
	}
	return out, nil
}

// shell reports whether the block is typed into a shell. Only one spelling is allowed, so that none is overlooked.
func (b block) shell() (bool, error) {
	switch b.kind {
	case "sh":
		return true, nil
	case "bash", "shell", "console", "zsh", "shell-session", "terminal":
		return false, fmt.Errorf("%s:%d: a shell block is marked sh, not %s", b.file, b.line, b.kind)
	case "":
		if first := strings.TrimSpace(b.text); strings.HasPrefix(first, "$ ") || strings.HasPrefix(first, "tensorturn ") {
			return false, fmt.Errorf("%s:%d: this is typed into a shell and not marked sh", b.file, b.line)
		}
	}
	return false, nil
}

// reason is why the block is not run here, "" when it is.
func (b block) reason() string {
	first, _, _ := strings.Cut(b.text, "\n")
	why, _ := strings.CutPrefix(first, elsewhere)
	if why == first {
		return ""
	}
	return why
}

// named is the file that a block of settings becomes, "" for none.
func (b block) named() string {
	first, _, _ := strings.Cut(b.text, "\n")
	rest, ok := strings.CutPrefix(first, "# ")
	name, _, found := strings.Cut(rest, ":")
	if b.kind != "yaml" || !ok || !found && rest == "" || strings.ContainsAny(name, " ") || !strings.HasSuffix(name, ".yaml") {
		return ""
	}
	return name
}
