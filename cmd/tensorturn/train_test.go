package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/builtin"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// trainSpec does what `run submit` and a machine do with a spec file, without a pool between them: reads, packs, resolves,
// trains to the end and measures.
func trainSpec(t *testing.T, path string, edit func(*run.Spec)) (run.Dataset, trainer.Metrics, error) {
	t.Helper()
	spec, err := loadSpec(path)
	if err != nil {
		return run.Dataset{}, trainer.Metrics{}, err
	}
	if spec.Data.Format == "" {
		spec.Data.Format = formatOf(spec.Data.Path)
	}
	if edit != nil {
		edit(&spec)
	}
	if spec, err = run.Defaults(spec); err != nil {
		return run.Dataset{}, trainer.Metrics{}, err
	}
	var raw bytes.Buffer
	p, err := packSource(&spec, &raw, func(string, ...any) {})
	if err != nil {
		return run.Dataset{}, trainer.Metrics{}, err
	}
	data := p.facts.Run(domain.Digest(strings.Repeat("0", 64)))
	if spec, err = run.Resolve(spec, data); err != nil {
		return data, trainer.Metrics{}, err
	}
	tr, err := builtin.Open(t.Context(), trainer.Job{Run: "r-1", Spec: spec, Dataset: data, Data: bytes.NewReader(raw.Bytes())})
	if err != nil {
		return data, trainer.Metrics{}, err
	}
	defer tr.Close()
	if err := tr.Init(t.Context()); err != nil {
		return data, trainer.Metrics{}, err
	}
	for c := range run.TotalChunks(spec, data) {
		if _, err := tr.Train(t.Context(), domain.ChunkID(c), nil); err != nil {
			return data, trainer.Metrics{}, err
		}
	}
	m, err := tr.Evaluate(t.Context(), nil)
	return data, m, err
}

// wild writes a table as people have them: a header, quoted text with commas and quotes, categories, gaps and an id.
func wild(t *testing.T, dir string, rows int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	var out bytes.Buffer
	out.WriteString("id,\"name, first\",age,city,\"income, monthly\",plan,churned\n")
	cities := []string{"Köln", "\"St. Gallen, CH\"", "Oslo", "\"the \"\"big\"\" one\"", ""}
	for i := range rows {
		age, income, city, plan := fmt.Sprint(18+r.IntN(60)), fmt.Sprintf("%.2f", 1000+4000*r.Float64()), r.IntN(len(cities)), r.IntN(3)
		score := r.NormFloat64()*0.5 + float64(plan) - 1
		if city == 2 {
			score++
		}
		var n float64
		fmt.Sscan(income, &n)
		score += (n - 3000) / 2000
		label := "no"
		if score > 0 {
			label = "yes"
		}
		if r.IntN(20) == 0 {
			age = []string{"", "NA", "?", "NaN"}[r.IntN(4)]
		}
		fmt.Fprintf(&out, "%d,\"Doe, %d \"\"J\"\"\",%s,%s,%s,%s,%s\n", i, r.IntN(1000), age, cities[city], income, []string{"basic", "plus", "pro"}[plan], label)
	}
	if err := os.WriteFile(filepath.Join(dir, "wild.csv"), out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

const wildSpec = `name: wild
data:
  path: wild.csv
  missing: mean
  categories: [city, plan]
  ignore: [id, "name, first"]
model: {hidden: [32]}
batch: 256
epochs: 2
chunk: 4096
`

// TestWildTableTrains: 100,000 rows with missing values, quoted text, categories and a header train with nothing but a spec
// of ten lines, and what the spec does not allow is refused with line and column.
func TestWildTableTrains(t *testing.T) {
	dir := t.TempDir()
	wild(t, dir, 100_000)
	if n := strings.Count(wildSpec, "\n"); n > 10 {
		t.Fatalf("the spec has %d lines", n)
	}
	path := filepath.Join(dir, "run.yaml")
	if err := os.WriteFile(path, []byte(wildSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	data, m, err := trainSpec(t, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if data.Samples != 80_000 || data.Features != 2+5+3 || m.Accuracy < 0.8 {
		t.Errorf("%d samples of %d features, accuracy %v", data.Samples, data.Features, m.Accuracy)
	}
	for name, c := range map[string]struct {
		edit func(*run.Spec)
		why  string
	}{
		"gaps":       {func(s *run.Spec) { s.Data.Missing = "" }, ", column 3 (age): the value is missing"},
		"categories": {func(s *run.Spec) { s.Data.Categories = []string{"city"} }, `line 2, column 6 (plan): "`},
		"text":       {func(s *run.Spec) { s.Data.Ignore = []string{"id"} }, `line 2, column 2 (name, first): "Doe, `},
	} {
		if _, _, err := trainSpec(t, path, c.edit); err == nil || !strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKnownTablesTrain: iris and wine (testdata/tables/README.md) with the shortest spec there is. A line of another width, such
// as the counts that scikit-learn puts before its tables, is refused by its number.
func TestKnownTablesTrain(t *testing.T) {
	for name, least := range map[string]float64{"iris.csv": 0.85, "wine.csv": 0.9} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, copied := filepath.Join(dir, "run.yaml"), filepath.Join(dir, name)
			table, err := os.ReadFile(filepath.Join("testdata/tables", name))
			if err != nil {
				t.Fatal(err)
			}
			write(t, path, "data: {path: "+name+"}\nepochs: 60\n")
			write(t, copied, "150,4,0\n"+string(table))
			if _, _, err := trainSpec(t, path, nil); err == nil || !strings.Contains(err.Error(), "line 2 has ") {
				t.Errorf("with counts before it: %v", err)
			}
			write(t, copied, string(table))
			_, m, err := trainSpec(t, path, nil)
			if err != nil || m.Accuracy < least {
				t.Errorf("accuracy %v, %v", m.Accuracy, err)
			}
			t.Logf("accuracy %.3f on %d rows held out", m.Accuracy, m.Samples)
		})
	}
}

// TestExamplesTrain: every example of the built-in trainer has at most ten lines and learns, where its data is at hand.
func TestExamplesTrain(t *testing.T) {
	if testing.Short() {
		t.Skip("trains seven models")
	}
	for name, check := range map[string]func(trainer.Metrics) bool{
		"digits":           func(m trainer.Metrics) bool { return m.Accuracy > 0.95 },
		"digits-cnn":       func(m trainer.Metrics) bool { return m.Accuracy > 0.96 },
		"fashion":          func(m trainer.Metrics) bool { return m.Accuracy > 0.6 },
		"house":            func(m trainer.Metrics) bool { return m.R2 != nil && *m.R2 > 0.85 && *m.MAE < 50 },
		"text-mlp":         func(m trainer.Metrics) bool { return m.Loss < 2.9 },
		"text-transformer": func(m trainer.Metrics) bool { return m.Loss < 3.2 },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("../../examples", name+".yaml")
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(raw, []byte("\n")); n > 11 { // digits.yaml has a line of comment too
				t.Errorf("%d lines", n)
			}
			var edit func(*run.Spec)
			if name == "fashion" {
				if _, err := os.Stat("/usr/share/datasets/fashion-mnist"); err != nil {
					t.Skip("Fashion-MNIST is not installed: ", err)
				}
				edit = func(s *run.Spec) {
					s.Data.Holdout, s.Epochs, s.Model.Layers = 0.9, 1, []string{"maxpool 4", "linear 32", "relu"}
				} // a minute less
			}
			if strings.HasPrefix(name, "text") {
				edit = func(s *run.Spec) { s.Epochs = 2 }
			}
			if data, m, err := trainSpec(t, path, edit); err != nil || !check(m) {
				t.Errorf("%+v, loss %v, accuracy %v, %v", data, m.Loss, m.Accuracy, err)
			}
		})
	}
}
