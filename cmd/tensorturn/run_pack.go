package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tensorturn/agent/trainer/builtin"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
)

// textEndings are the names' ends that say text where the spec does not say what a file is.
var textEndings = []string{".txt", ".text", ".md"}

// looksLikeText reports a folder, or a file whose name says so, gzip or not.
func looksLikeText(path string) bool {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return true
	}
	return slices.Contains(textEndings, strings.ToLower(filepath.Ext(strings.TrimSuffix(path, ".gz"))))
}

// packText reads a file or a folder of text, packs and stores it.
func (a *app) packText(ctx context.Context, cl *client, spec *run.Spec) (run.Dataset, error) {
	if _, err := os.Stat(spec.Data.Path); err != nil {
		return run.Dataset{}, noData(err)
	}
	corpus, err := dataset.ReadText(os.DirFS(filepath.Dir(spec.Data.Path)), filepath.Base(spec.Data.Path))
	if err != nil {
		return run.Dataset{}, err
	}
	var sent int64
	w := blobTo(ctx, cl, &sent)
	facts, err := dataset.PackText(corpus.Text, builtin.TextOptions(spec.Model), spec.Data.Holdout, spec.Seed, w)
	if err != nil {
		return run.Dataset{}, err
	}
	id, err := w.Close()
	if err != nil {
		return run.Dataset{}, err
	}
	data := facts.Run(id)
	a.say("packed %s: %s of text in %s, %s to train on, %d held out (%.0f %%, seed %d), a context of %s; sent %s", strings.TrimSpace(spec.Data.Path),
		count(len(corpus.Text), "byte"), count(corpus.Files, "file"), count(data.Samples, "sample"), data.Heldout, 100*spec.Data.Holdout, spec.Seed, count(data.Features, "byte"), count(sent, "byte"))
	if corpus.Other > 0 {
		a.say("warning: %s left out: a byte 0 is in them", isAre(corpus.Other, "file"))
	}
	return data, nil
}

// csvOptions says how the owner wants a table to be read.
func csvOptions(d run.Data) dataset.CSVOptions {
	return dataset.CSVOptions{Label: d.Label, Regression: d.Task == run.TaskRegression, FillMean: d.Missing == run.MissingMean,
		Categories: d.Categories, Ignore: d.Ignore}
}
