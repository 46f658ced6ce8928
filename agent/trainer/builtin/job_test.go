package builtin

import (
	"bytes"
	"os"
	"testing"

	"tensorturn/agent/trainer"
	"tensorturn/domain"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
)

const digitsFile = "../../../cmd/tensorturn/demo/digits.csv.gz"

// digits packs the demo's data.
func digits(t testing.TB) (dataset.Facts, []byte) {
	t.Helper()
	f, err := os.Open(digitsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := dataset.ParseCSV(f, dataset.CSVOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return packed(t, table, 0.2)
}

func packed(t testing.TB, table *dataset.Table, holdout float64) (dataset.Facts, []byte) {
	t.Helper()
	var out bytes.Buffer
	facts, err := dataset.Pack(table, holdout, 1, &out)
	if err != nil {
		t.Fatal(err)
	}
	return facts, out.Bytes()
}

// jobOf resolves a spec against packed data.
func jobOf(t testing.TB, facts dataset.Facts, raw []byte, edit func(*run.Spec)) trainer.Job {
	t.Helper()
	data := facts.Run(domain.Digest(bytes.Repeat([]byte("a"), 64)))
	var spec run.Spec
	if edit != nil {
		edit(&spec)
	}
	spec, err := run.Resolve(spec, data)
	if err != nil {
		t.Fatal(err)
	}
	return trainer.Job{Run: "r-1", Spec: spec, Dataset: data, Data: bytes.NewReader(raw)}
}

func digitsJob(t testing.TB, edit func(*run.Spec)) trainer.Job {
	t.Helper()
	facts, raw := digits(t)
	return jobOf(t, facts, raw, edit)
}

// started opens a trainer with initial weights.
func started(t testing.TB, job trainer.Job) *Trainer {
	t.Helper()
	tr, err := Open(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tr.(*Trainer)
}
