package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"tensorturn/agent/trainer/process/code"
	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
)

func runSubmit(a *app) *cobra.Command {
	var watch bool
	var id string
	c := &cobra.Command{Use: "submit SPEC.yaml", Short: "pack the data, store it, and start a run", Args: args("SPEC.yaml"),
		RunE: func(c *cobra.Command, got []string) error {
			spec, err := loadSpec(got[0])
			if err != nil {
				return err
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			r, err := a.submit(c.Context(), cl, id, spec)
			if err != nil {
				return err
			}
			if watch {
				return a.watch(c.Context(), cl, r.ID)
			}
			if a.json {
				return a.object(r)
			}
			a.print("%s", r.ID)
			a.say("follow it with: tensorturn run watch %s", r.ID)
			return nil
		}}
	c.Flags().BoolVar(&watch, "watch", false, "follow the run until it ends")
	c.Flags().StringVar(&id, "id", "", "the run's id; submitting again under one id is safe")
	return c
}

// submit packs and uploads the data set and starts the run.
func (a *app) submit(ctx context.Context, cl *client, id string, spec run.Spec) (runs.Run, error) {
	data, err := a.upload(ctx, cl, &spec)
	if err != nil {
		return runs.Run{}, err
	}
	return a.start(ctx, cl, id, spec, data)
}

// start starts a run on a data set that is stored.
func (a *app) start(ctx context.Context, cl *client, id string, spec run.Spec, data run.Dataset) (runs.Run, error) {
	if _, err := run.Resolve(spec, data); err != nil { // say it before the hub does
		return runs.Run{}, err
	}
	var r runs.Run
	err := cl.call(ctx, http.MethodPost, "/api/v1/runs", gateway.SubmitRun{ID: id, Spec: spec, Data: data}, &r)
	return r, err
}

// upload packs what the trainer works on and stores it as a blob: the CSV, or the owner's code.
func (a *app) upload(ctx context.Context, cl *client, spec *run.Spec) (run.Dataset, error) {
	if spec.Trainer == run.Process {
		return a.packCode(ctx, cl, spec)
	}
	if spec.Data.Path == "" {
		return run.Dataset{}, domain.Invalid("submit run", "data.path is missing", "name the CSV file in the spec")
	}
	f, err := os.Open(spec.Data.Path)
	if err != nil {
		return run.Dataset{}, domain.NotFound("read data", plainPathError(err), "data.path is relative to the folder of the spec")
	}
	defer f.Close()
	data, err := a.pack(ctx, cl, spec, f)
	if err != nil {
		return data, fmt.Errorf("%s: %w", spec.Data.Path, err)
	}
	return data, nil
}

// pack settles the defaults that decide how the data is split, then packs and stores it.
func (a *app) pack(ctx context.Context, cl *client, spec *run.Spec, r io.Reader) (run.Dataset, error) {
	var err error
	if *spec, err = run.Defaults(*spec); err != nil {
		return run.Dataset{}, err
	}
	table, err := dataset.ParseCSV(r, dataset.CSVOptions{Label: spec.Data.Label})
	if err != nil {
		return run.Dataset{}, err
	}
	var sent int64
	w := blobTo(ctx, cl, &sent)
	facts, err := dataset.Pack(table, spec.Data.Holdout, spec.Seed, w)
	if err != nil {
		return run.Dataset{}, err
	}
	id, err := w.Close()
	if err != nil {
		return run.Dataset{}, err
	}
	data := facts.Run(id)
	a.say("packed %s: %d rows to train on, %d held out (%.0f %%, stratified, seed %d), %d features, %d classes; sent %d bytes",
		strings.TrimSpace(spec.Data.Path), data.Samples, data.Heldout, 100*spec.Data.Holdout, spec.Seed, data.Features, data.Classes, sent)
	return data, nil
}

// packCode packs the folder of the owner's code; without a word it is the folder of the spec.
func (a *app) packCode(ctx context.Context, cl *client, spec *run.Spec) (run.Dataset, error) {
	var err error
	if *spec, err = run.Defaults(*spec); err != nil {
		return run.Dataset{}, err
	}
	var sent int64
	w := blobTo(ctx, cl, &sent)
	facts, err := code.Pack(ctx, spec.Code, w)
	if err != nil {
		return run.Dataset{}, err
	}
	id, err := w.Close()
	if err != nil {
		return run.Dataset{}, err
	}
	a.say("packed %s: %d files, %d bytes of code; sent %d bytes", spec.Code, facts.Files, facts.Bytes, sent)
	return run.ProcessData(*spec, id), nil
}

// blobTo is a writer whose parts go to the hub, but for those it has; sent counts.
func blobTo(ctx context.Context, cl *client, sent *int64) *blob.Writer {
	return blob.NewWriter(ctx, func(ctx context.Context, d domain.Digest, b []byte) error {
		if resp, err := cl.do(ctx, http.MethodHead, "/blobs/"+string(d), nil, 0); err == nil {
			resp.Body.Close()
			return nil
		}
		*sent += int64(len(b))
		return cl.putPart(ctx, d, b)
	})
}
