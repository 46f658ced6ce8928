package docs

import (
	"strings"
	"testing"
)

const sample = "text\n```sh\na\nb\n```\n\n```yaml\n# run.yaml: all of it\nx: 1\n```\n  ```sh more\n# elsewhere: needs two machines\nc\n```\n```\nplain\n```\n"

// The blocks of a document are found with their place, and each is what it says.
func TestBlocks(t *testing.T) {
	bs, err := blocks("x.md", sample)
	if err != nil || len(bs) != 4 {
		t.Fatalf("%d blocks, %v", len(bs), err)
	}
	if b := bs[0]; b.line != 3 || b.text != "a\nb\n" || b.reason() != "" || b.named() != "" {
		t.Errorf("%+v", b)
	}
	if b := bs[1]; b.named() != "run.yaml" {
		t.Errorf("%+v is no file", b)
	}
	if b := bs[2]; b.reason() != "needs two machines" {
		t.Errorf("%+v is run", b)
	}
	for i, want := range []bool{true, false, true, false} {
		if got, err := bs[i].shell(); got != want || err != nil {
			t.Errorf("block %d: %v %v", i, got, err)
		}
	}
}

// What could hide a block from the test is refused.
func TestBlocksThatHide(t *testing.T) {
	if _, err := blocks("x.md", "```sh\na\n"); err == nil {
		t.Error("a block that is never closed")
	}
	for _, text := range []string{"```bash\na\n```\n", "```console\na\n```\n", "```\n$ a\n```\n", "```\ntensorturn run list\n```\n"} {
		bs, err := blocks("x.md", text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bs[0].shell(); err == nil || !strings.Contains(err.Error(), "x.md:2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A block that is wrong fails, wherever in it, and what it exports and where it goes is there in the next one.
func TestWrongBlocksFail(t *testing.T) {
	r := newReader(t)
	for text, want := range map[string]string{
		"tensorturn run shwo x\ntrue": "did you mean", "false | true": "", "tensorturn nonsense": "there is no command",
		"ls nowhere; true": "nowhere", "tensorturn hub start --dir /proc/x": "error", "echo $UNSET_BY_ANYBODY": "unbound",
	} {
		if said, err := r.run(text); err == nil || !strings.Contains(said, want) {
			t.Errorf("%q: %v, said %q", text, err, said)
		}
	}
	if said, err := r.run("export A='b c'\nmkdir d\ncd d"); err != nil {
		t.Error(err, said)
	}
	if said, err := r.run("echo $A\nbasename $PWD\ntensorturn version"); err != nil || !strings.HasPrefix(said, "b c\nd\n") {
		t.Error(err, said)
	}
}
