package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
)

func modelCommand(a *app) *cobra.Command {
	return group("model", "take trained models out, deploy them, and ask where they come from", modelExport(a), modelLineage(a),
		modelDeploy(a), modelList(a), modelRollback(a), modelRetire(a))
}

func modelExport(a *app) *cobra.Command {
	var soup, force bool
	c := &cobra.Command{Use: "export RUN DIR", Short: "write model.safetensors, config.json and tensorturn.json; of an ensemble members/ and ensemble.json", Args: args("RUN", "DIR"),
		Long: "Writes model.safetensors, config.json and tensorturn.json. Of an ensemble: members/<number>/ with the same three files each,\n" +
			"and ensemble.json with rule, weights and temperature of the vote and what it measured. Members stay apart: --soup\n" +
			"averages their weights into one model, and refuses to where they did not begin with the same weights.\n" +
			"A folder that holds a model already is left alone unless --force says otherwise.",
		RunE: func(c *cobra.Command, got []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			r, err := cl.run(c.Context(), got[0])
			if err != nil {
				return err
			}
			if err := freeOfModels(got[1]); err != nil && !force {
				return err
			}
			if soup {
				return a.exportSoup(c.Context(), cl, r, got[1])
			}
			if r.Members != nil {
				card, err := a.exportEnsemble(c.Context(), cl, r, got[1])
				if err != nil {
					return err
				}
				if a.json {
					return a.object(card)
				}
				a.say("wrote %s and ensemble.json to %s", count(len(card.Members), "member"), got[1])
				return nil
			}
			if r.Rounds.Merged == 0 {
				return nothingTrained(r)
			}
			card, err := exportModel(c.Context(), cl, r, got[1])
			if err != nil {
				return err
			}
			if a.json {
				return a.object(card)
			}
			a.say("wrote model.safetensors (%s), config.json and tensorturn.json to %s", count(r.Params, "parameter"), got[1])
			return nil
		}}
	c.Flags().BoolVar(&soup, "soup", false, "of an ensemble whose members began with the same weights: their mean, as one model")
	c.Flags().BoolVar(&force, "force", false, "write over a model that the folder holds")
	return c
}

// freeOfModels refuses a folder in which a model was written before: the files of two models would stand side by side.
func freeOfModels(dir string) error {
	for _, name := range []string{"model.safetensors", "config.json", "tensorturn.json", "ensemble.json", "members"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return domain.Conflict("export model", dir+" holds "+name+" already", "choose another folder, or write over it with --force")
		}
	}
	return nil
}

// nothingTrained says why a run has no model to take out.
func nothingTrained(r runs.Run) error {
	op := "export model of " + string(r.ID)
	if r.Phase.Ended() {
		return domain.Conflict(op, fmt.Sprintf("the run %s before its first merge: %s", ended(r.Phase), cmpOr(r.Reason, "no reason is given")), "see: tensorturn run replay "+string(r.ID))
	}
	return domain.Conflict(op, "no round is merged yet", "wait for the first: tensorturn run watch "+string(r.ID))
}

func ended(p run.Phase) string {
	if p == run.PhaseCancelled {
		return "was cancelled"
	}
	return string(p)
}

// card is tensorturn.json: where the weights come from, so that they can be traced and replayed.
type card struct {
	Run         domain.RunID    `json:"run"`
	Name        string          `json:"name"`
	Phase       run.Phase       `json:"phase"`
	Weights     domain.Digest   `json:"weights"`   // blob id: SHA-256 of the manifest of parts
	SHA256      domain.Digest   `json:"sha256"`    // of model.safetensors
	FirstEvent  uint64          `json:"first_seq"` // the run's event range
	LastEvent   uint64          `json:"last_seq"`
	Data        run.Dataset     `json:"data"`
	Seed        uint64          `json:"seed"`
	Rounds      int             `json:"rounds"`
	Ledger      runs.Ledger     `json:"ledger"`
	Evaluations []run.Evaluated `json:"evaluations"`
	Spec        run.Spec        `json:"spec"`
}

// config is config.json: what is needed to build the model and to prepare its inputs.
type config struct {
	ModelType   string    `json:"model_type"`
	Features    int       `json:"features"`
	Hidden      []int     `json:"hidden"`
	Activation  string    `json:"activation"`
	Classes     []string  `json:"classes"`
	Columns     []string  `json:"columns"`
	Mean        []float64 `json:"mean"` // subtract, then divide by std
	Std         []float64 `json:"std"`
	TensorOrder string    `json:"tensor_names"`

	Layers    []string `json:"layers,omitempty"` // lines of model.layers, without the last linear layer
	Shape     []int    `json:"shape,omitempty"`  // channels, height, width of a row that is a picture
	Context   int      `json:"context,omitempty"`
	Embedding int      `json:"embedding,omitempty"`
	Blocks    int      `json:"blocks,omitempty"`
	Heads     int      `json:"heads,omitempty"`
	// Rows is how a row as it stands in the table becomes one of columns, where it is not one already.
	Rows []rowColumn `json:"rows,omitempty"`
	// Of a regression: what the network gives, times std, plus mean, is the number.
	Target *target `json:"target,omitempty"`
}

// rowColumn is a column of the table. Of a word the feature first + its place in categories is 1, the others of the column are 0.
type rowColumn struct {
	Name       string   `json:"name"`
	First      int      `json:"first"` // its first place in columns
	Categories []string `json:"categories,omitempty"`
	Fill       *float64 `json:"fill,omitempty"` // stands for a missing number; without it there may be none
}

// rowsOf tells the form of a table with words or gaps.
func rowsOf(f *dataset.Form) []rowColumn {
	if f == nil || !f.Spread() && !f.Fills {
		return nil
	}
	var out []rowColumn
	for _, c := range f.Columns {
		r := rowColumn{Name: c.Name, First: c.At, Categories: c.Words}
		if f.Fills && c.Words == nil {
			r.Fill = &c.Mean
		}
		out = append(out, r)
	}
	return out
}

type target struct {
	Name string  `json:"name"`
	Mean float64 `json:"mean"`
	Std  float64 `json:"std"`
}

// exportModel writes the folder; the weights are checked part by part while they are copied.
func exportModel(ctx context.Context, cl *client, r runs.Run, dir string) (card, error) {
	c := cardOf(r)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return c, domain.Invalid("export model", plainPathError(err), "choose another folder")
	}
	sum, err := copyBlob(ctx, cl, r.Model, filepath.Join(dir, "model.safetensors"))
	if err != nil {
		return c, err
	}
	c.SHA256 = sum
	if r.Spec.Trainer == run.Process { // the program knows how to build its model
		return c, writeJSON(filepath.Join(dir, "tensorturn.json"), c)
	}
	f, err := factsOf(ctx, cl, r)
	if err != nil {
		return c, err
	}
	if err := writeJSON(filepath.Join(dir, "config.json"), configOf(r.Spec, *f)); err != nil {
		return c, err
	}
	return c, writeJSON(filepath.Join(dir, "tensorturn.json"), c)
}

func cardOf(r runs.Run) card {
	return card{Run: r.ID, Name: r.Name, Phase: r.Phase, Weights: r.Model, FirstEvent: r.FirstSeq, LastEvent: r.LastSeq, Data: r.Data, Seed: r.Spec.Seed,
		Rounds: r.Rounds.Merged, Ledger: r.Ledger, Evaluations: r.Evaluations, Spec: r.Spec}
}

// factsOf reads what packing found from the stored data set.
func factsOf(ctx context.Context, cl *client, r runs.Run) (*dataset.Facts, error) {
	data, err := blob.Open(ctx, r.Data.Blob, cl.getPart)
	if err != nil {
		return nil, err
	}
	set, err := dataset.Open(data, data.Size())
	if err != nil {
		return nil, err
	}
	f := set.Facts()
	return &f, nil
}

func configOf(s run.Spec, f dataset.Facts) config {
	m := s.Model
	c := config{ModelType: "tensorturn-" + m.Kind, Features: f.Features(), Hidden: m.Hidden,
		Activation: "relu", Classes: f.Classes, Columns: f.Columns, Mean: f.Mean, Std: f.Std, TensorOrder: "torch.nn.Sequential(Linear, ReLU, ..., Linear)",
		Layers: m.Layers, Shape: f.Shape, Context: m.Context, Embedding: m.Embedding, Blocks: m.Blocks, Heads: m.Heads,
		Rows: rowsOf(dataset.FormOf(f, s.Data))}
	if f.Predicts > 0 || len(m.Layers) > 0 {
		c.TensorOrder = "places in torch.nn.Sequential"
	}
	if f.Regression() {
		c.Target = &target{f.Label, f.TargetMean, f.TargetStd}
	}
	return c
}

// copyBlob writes a blob to a file in one step and gives the SHA-256 of its bytes.
func copyBlob(ctx context.Context, cl *client, id domain.Digest, path string) (domain.Digest, error) {
	r, err := blob.Open(ctx, id, cl.getPart)
	if err != nil {
		return "", err
	}
	f, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o644))
	if err != nil {
		return "", domain.Invalid("export model", plainPathError(err), "choose another folder")
	}
	defer f.Cleanup()
	h := newHash()
	if _, err := io.Copy(io.MultiWriter(f, h), r); err != nil {
		return "", err
	}
	return h.digest(), f.CloseAtomicallyReplace()
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(b, '\n'), 0o644)
}
