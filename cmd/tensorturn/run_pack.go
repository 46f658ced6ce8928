package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tensorturn/agent/trainer/builtin"
	"tensorturn/domain"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
)

// textEndings are the names' ends that say text where the spec does not say what a file is.
var textEndings = []string{".txt", ".text", ".md"}

// formatOf looks at a file whose format the spec does not say: a folder is text, and so is a file whose name says so, gzip or
// not; an IDX file is told by its first bytes; everything else is a table, "".
func formatOf(path string) string {
	if info, err := os.Stat(path); err == nil && info.IsDir() || slices.Contains(textEndings, strings.ToLower(filepath.Ext(strings.TrimSuffix(path, ".gz")))) {
		return run.FormatText
	}
	f, err := os.Open(path)
	if err != nil {
		return "" // whoever reads it says why
	}
	defer f.Close()
	in, err := dataset.Unzipped(f, "read data")
	if err != nil {
		return ""
	}
	if head, _ := in.Peek(4); dataset.IsIDX(head) {
		return run.FormatIDX
	}
	return ""
}

// labelsOf is the file of labels that belongs to a file of pictures, by the names that such data sets have.
func labelsOf(pictures string) (string, error) {
	base := filepath.Base(pictures)
	for _, form := range [][2]string{{"images-idx3", "labels-idx1"}, {"images.idx3", "labels.idx1"}, {"images", "labels"}} {
		if name := strings.Replace(base, form[0], form[1], 1); name != base {
			return filepath.Join(filepath.Dir(pictures), name), nil
		}
	}
	return "", domain.Invalid("read data", "the spec does not name the labels of "+base, "set data.labels to the IDX file of labels")
}

// packed is data in its packed form, described for people.
type packed struct {
	facts    dataset.Facts
	text     string
	warnings []string
}

// packSource reads what data.path names, as the format that the spec says, and writes the packed form. say tells what is known
// before the packed form goes anywhere.
func packSource(spec *run.Spec, w io.Writer, say func(format string, args ...any)) (packed, error) {
	switch spec.Data.Format {
	case run.FormatText:
		return packText(spec, w, say)
	case run.FormatIDX:
		return packIDX(spec, w)
	}
	f, err := os.Open(spec.Data.Path)
	if err != nil {
		return packed{}, noData(err)
	}
	defer f.Close()
	return packTable(spec, f, w)
}

func noData(err error) error {
	return domain.NotFound("read data", plainPathError(err), "data.path is relative to the folder of the spec")
}

// packTable packs a table in CSV.
func packTable(spec *run.Spec, r io.Reader, w io.Writer) (packed, error) {
	d := spec.Data
	table, err := dataset.ParseCSV(r, dataset.CSVOptions{Label: d.Label, Regression: d.Task == run.TaskRegression, FillMean: d.Missing == run.MissingMean,
		Categories: d.Categories, Ignore: d.Ignore})
	if err != nil {
		return packed{}, err
	}
	if d.Shape != nil {
		p := run.PictureOf(d.Shape, 0)
		table.Shape = []int{p.Channels, p.Height, p.Width}
	}
	gaps := len(table.Missing)
	f, err := dataset.Pack(table, d.Holdout, spec.Seed, w)
	if err != nil {
		return packed{}, err
	}
	p := packed{facts: f}
	if f.Regression() {
		p.text = fmt.Sprintf("%s to train on, %d held out (%.0f %%, seed %d), %s, numbers to predict", count(f.Samples, "row"), f.Heldout, 100*d.Holdout, spec.Seed, count(f.Features(), "feature"))
	} else {
		p.text = fmt.Sprintf("%s to train on, %d held out (%.0f %%, stratified, seed %d), %s, %d classes", count(f.Samples, "row"), f.Heldout, 100*d.Holdout, spec.Seed, count(f.Features(), "feature"), len(f.Classes))
	}
	if gaps > 0 {
		p.text += fmt.Sprintf(", %s filled with their column's mean", count(gaps, "missing value"))
	}
	if names := lonely(table); len(names) > 0 {
		p.warnings = append(p.warnings, fmt.Sprintf("one row alone has the label %s: it is trained on and never measured", strings.Join(names, ", ")))
	}
	p.warnings = append(p.warnings, wideColumns(dataset.FormOf(f, d), table)...)
	return p, nil
}

// packText packs a file or a folder of text.
func packText(spec *run.Spec, w io.Writer, say func(format string, args ...any)) (packed, error) {
	if _, err := os.Stat(spec.Data.Path); err != nil {
		return packed{}, noData(err)
	}
	path, err := filepath.Abs(spec.Data.Path) // so that its last part is a name: not "..", which no fs.FS opens
	if err != nil {
		return packed{}, noData(err)
	}
	root, name := filepath.Dir(path), filepath.Base(path)
	if root == path { // of a whole disk
		name = "."
	}
	corpus, err := dataset.ReadText(os.DirFS(root), name)
	if err != nil {
		return packed{}, err
	}
	if corpus.Files > 1 {
		say("%s: %s of text in %s, the largest %s", spec.Data.Path, domain.FormatSize(int64(len(corpus.Text))), count(corpus.Files, "file"), largest(corpus))
	}
	f, err := dataset.PackText(corpus.Text, builtin.TextOptions(spec.Model), spec.Data.Holdout, spec.Seed, w)
	if err != nil {
		return packed{}, err
	}
	p := packed{facts: f, text: fmt.Sprintf("%s of text in %s, %s to train on, %d held out (%.0f %%, seed %d), a context of %s",
		count(len(corpus.Text), "byte"), count(corpus.Files, "file"), count(f.Samples, "sample"), f.Heldout, 100*spec.Data.Holdout, spec.Seed, count(f.Features(), "byte"))}
	if corpus.Other > 0 {
		p.warnings = append(p.warnings, isAre(corpus.Other, "file")+" left out: a byte 0 is in them")
	}
	return p, nil
}

// largest names the largest files of a text, so that a folder that was not meant shows before it is sent.
func largest(c dataset.Corpus) string {
	var out []string
	for _, f := range c.Largest {
		out = append(out, fmt.Sprintf("%s (%s)", domain.Clip(f.Path, 80), domain.FormatSize(int64(f.Bytes))))
	}
	return strings.Join(out, ", ")
}

// packIDX packs pictures and their labels.
func packIDX(spec *run.Spec, w io.Writer) (packed, error) {
	labels := spec.Data.Labels
	if labels == "" {
		var err error
		if labels, err = labelsOf(spec.Data.Path); err != nil {
			return packed{}, err
		}
	}
	f, err := os.Open(spec.Data.Path)
	if err != nil {
		return packed{}, noData(err)
	}
	defer f.Close()
	l, err := os.Open(labels)
	if err != nil {
		return packed{}, domain.NotFound("read labels", plainPathError(err), "name the IDX file of labels in data.labels")
	}
	defer l.Close()
	pictures, err := dataset.ReadIDX(f, l)
	if err != nil {
		return packed{}, err
	}
	facts, err := dataset.PackIDX(pictures, spec.Data.Holdout, spec.Seed, w)
	if err != nil {
		return packed{}, err
	}
	return packed{facts: facts, text: fmt.Sprintf("%s of %d × %d to train on, %d held out (%.0f %%, stratified, seed %d), %d classes", count(facts.Samples, "picture"),
		facts.Shape[1], facts.Shape[2], facts.Heldout, 100*spec.Data.Holdout, spec.Seed, len(facts.Classes))}, nil
}
