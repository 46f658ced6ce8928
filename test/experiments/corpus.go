package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"tensorturn/agent/trainer/builtin"
	"tensorturn/domain"
	"tensorturn/domain/dataset"
	"tensorturn/domain/permute"
	"tensorturn/domain/run"
)

// The text of the language experiments: sources of the Go standard library, as algorithms.md 4.0 has it. Blocks of 4 KiB,
// shuffled with a fixed seed: some to report on, some to choose learning rates by, the rest to train on.
const (
	blockBytes  = 4 << 10
	judgeBlocks = 8
	trainBlocks = 700 // some 2.9 million places, of which an arm trains on an even choice
	corpusSeed  = 4
)

var corpusPackages = []string{"crypto/tls", "encoding", "fmt", "go/types", "html", "net/http", "os", "strconv", "text", "time"}

// corpus is the text, cut up.
type corpus struct {
	train            []int    // blocks in their shuffled order
	blocks           [][]byte // by path
	test, validation []byte
}

// goSources reads the packages' sources without their tests, by path.
func goSources() ([]byte, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("find the standard library's sources: %w", err)
	}
	var text []byte
	for _, p := range corpusPackages {
		err := filepath.WalkDir(filepath.Join(strings.TrimSpace(string(root)), "src", p), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && d.Name() == "testdata" {
				return filepath.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			b, err := os.ReadFile(path)
			text = append(text, b...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return text, nil
}

func newCorpus() (*corpus, error) {
	text, err := goSources()
	if err != nil {
		return nil, err
	}
	c := &corpus{}
	for ; len(text) >= blockBytes; text = text[blockBytes:] {
		c.blocks = append(c.blocks, text[:blockBytes])
	}
	if len(c.blocks) < 100 {
		return nil, fmt.Errorf("the standard library's sources have %d blocks of 4 KiB", len(c.blocks))
	}
	order := make([]int, len(c.blocks))
	for i := range order {
		order[i] = i
	}
	permute.NewSource(corpusSeed).Shuffle(order)
	for i := range judgeBlocks {
		c.test = append(c.test, c.blocks[order[i]]...)
		c.validation = append(c.validation, c.blocks[order[judgeBlocks+i]]...)
	}
	c.train = order[2*judgeBlocks:]
	return c, nil
}

// text is the training text: its blocks shuffled, or in the order of their paths.
func (c *corpus) text(shuffled bool) ([]byte, error) {
	if len(c.train) < trainBlocks {
		return nil, fmt.Errorf("the text has %d blocks, %d are needed", len(c.train), trainBlocks)
	}
	chosen := slices.Clone(c.train[:trainBlocks])
	if !shuffled {
		slices.Sort(chosen)
	}
	var out []byte
	for _, b := range chosen {
		out = append(out, c.blocks[b]...)
	}
	return out, nil
}

// packed is a text as `run submit` packs it.
type packed struct {
	raw  []byte
	data run.Dataset
}

func pack(text []byte, holdout float64, seed uint64) (packed, error) {
	var raw bytes.Buffer
	facts, err := dataset.PackText(text, builtin.TextOptions(languageModel), holdout, seed, &raw)
	return packed{raw.Bytes(), facts.Run(domain.Digest(strings.Repeat("0", 64)))}, err
}
