package run_test

import (
	"strings"
	"testing"

	"tensorturn/domain/run"
)

func TestLayersAreFollowed(t *testing.T) {
	m := run.Model{Layers: run.DefaultCNN()}
	_, shapes, err := m.Shapes(run.PictureOf([]int{9, 8}, 72))
	want := []run.Picture{{16, 9, 8}, {16, 9, 8}, {32, 9, 8}, {32, 9, 8}, {32, 4, 4}, {64, 1, 1}, {64, 1, 1}}
	if err != nil || len(shapes) != len(want) {
		t.Fatal(shapes, err)
	}
	for i := range want {
		if shapes[i] != want[i] {
			t.Errorf("behind %q comes %v, want %v", m.Layers[i], shapes[i], want[i])
		}
	}
	m.Layers = []string{"conv 4 5 2"}
	if _, shapes, err = m.Shapes(run.Picture{Channels: 3, Height: 7, Width: 6}); err != nil || shapes[0] != (run.Picture{Channels: 4, Height: 4, Width: 3}) {
		t.Errorf("%v %v", shapes, err)
	}
}

func TestLayersAreRefused(t *testing.T) {
	for line, why := range map[string]string{
		"":                "empty",
		"dense 3":         `"dense 3"`,
		"conv":            "with 0 numbers",
		"conv 1 3 1 1":    "with 4 numbers",
		"conv 0":          `"0" is no number`,
		"conv 8 four":     `"four"`,
		"conv 8 4":        "a window of 4",
		"conv 8 17":       "a window of 17",
		"relu 4":          "with 1 numbers",
		"linear 99999999": `"99999999" is no number`,
		"maxpool 9":       "pools windows of 9 in a picture of 8 × 8",
	} {
		m := run.Model{Layers: []string{line}}
		if _, _, err := m.Shapes(run.Picture{Channels: 1, Height: 8, Width: 8}); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v", line, err)
		}
	}
	m := run.Model{Layers: []string{"linear 8", "conv 3"}}
	if _, _, err := m.Shapes(run.Picture{Channels: 1, Height: 8, Width: 8}); err == nil {
		t.Error("a convolution behind a linear layer is taken")
	}
	m.Layers = []string{"conv 65536", "conv 65536"}
	if _, _, err := m.Shapes(run.Picture{Channels: 1, Height: 1 << 12, Width: 1 << 12}); err == nil {
		t.Error("an endless picture is taken")
	}
}

// Settings of one kind of data or model are refused beside another.
func TestSettingsThatDoNotApply(t *testing.T) {
	for name, c := range map[string]struct {
		spec run.Spec
		why  string
	}{
		"layers of an mlp":        {run.Spec{Model: run.Model{Kind: "mlp", Layers: []string{"relu"}}}, "model.layers is set"},
		"hidden of a cnn":         {run.Spec{Model: run.Model{Kind: "cnn", Hidden: []int{3}}}, "model.hidden is set"},
		"no layers":               {run.Spec{Model: run.Model{Kind: "layers"}}, "model.layers is empty"},
		"transformer of a table":  {run.Spec{Model: run.Model{Kind: "transformer"}}, "the data is no text"},
		"heads that do not fit":   {run.Spec{Data: run.Data{Format: "text"}, Model: run.Model{Kind: "transformer", Embedding: 30}}, "model.embedding is 30"},
		"cnn of text":             {run.Spec{Data: run.Data{Format: "text"}, Model: run.Model{Kind: "cnn"}}, "model.kind"},
		"context of a table":      {run.Spec{Model: run.Model{Context: 8}}, "model.context"},
		"blocks of an mlp":        {run.Spec{Data: run.Data{Format: "text"}, Model: run.Model{Blocks: 8}}, "model.blocks"},
		"regression of text":      {run.Spec{Data: run.Data{Format: "text", Task: "regression"}}, "settings of tables"},
		"categories of pictures":  {run.Spec{Data: run.Data{Format: "idx", Categories: []string{"x"}}}, "settings of tables"},
		"labels file of a table":  {run.Spec{Data: run.Data{Labels: "x"}}, "data.labels"},
		"task":                    {run.Spec{Data: run.Data{Task: "guess"}}, "data.task"},
		"missing":                 {run.Spec{Data: run.Data{Missing: "zero"}}, "data.missing"},
		"shape":                   {run.Spec{Data: run.Data{Shape: []int{64}}}, "data.shape"},
		"shape without a size":    {run.Spec{Data: run.Data{Shape: []int{8, 0}}}, "data.shape"},
		"more ignored than taken": {run.Spec{Data: run.Data{Ignore: make([]string, 257)}}, "data.ignore"},
	} {
		if _, err := run.Defaults(c.spec); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
