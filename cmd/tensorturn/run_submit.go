package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
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
	var watch, dry, wait bool
	var id string
	var params int64
	var link hubLink
	c := &cobra.Command{Use: "submit SPEC.yaml", Short: "pack the data, store it, and start a run", Args: args("SPEC.yaml"),
		RunE: func(c *cobra.Command, got []string) error {
			spec, err := loadSpec(got[0])
			if err != nil {
				return err
			}
			if err := suits(dry, c.Flags().Changed); err != nil {
				return err
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			if dry {
				return a.tryRun(c.Context(), cl, spec, params, link)
			}
			r, err := a.submit(c.Context(), cl, gateway.SubmitRun{ID: id, Spec: spec, Anyway: wait})
			if err != nil {
				return err
			}
			if watch {
				if a.json { // the run itself follows at its end
					a.say("run %s", r.ID)
				} else {
					a.print("%s", r.ID)
				}
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
	watchFlags(a, c)
	c.Flags().BoolVar(&dry, "dry-run", false, "only say which machines would take part and why, and what a round would cost; nothing is stored")
	c.Flags().Int64Var(&params, "params", 0, "with --dry-run: parameters of the model, where the spec does not tell them")
	link.flags(c.Flags())
	c.Flags().BoolVar(&wait, "wait-for-machine", false, "take the run although no machine of the pool meets its requirements: one may join")
	c.Flags().StringVar(&id, "id", "", "the run's id; submitting again under one id is safe")
	return c
}

// suits refuses flags that would change nothing: those of a dry run without it, and those of a stored run with it.
func suits(dry bool, given func(flag string) bool) error {
	for _, flag := range []string{"params", "hub-up", "hub-down"} {
		if !dry && given(flag) {
			return domain.Invalid("submit run", "--"+flag+" is for a dry run alone; a run that is stored goes by what was measured", "add --dry-run, or leave it out")
		}
	}
	for _, flag := range []string{"watch", "wait-for-machine"} {
		if dry && given(flag) {
			return domain.Invalid("submit run", "--"+flag+" is for a run that is stored, and --dry-run stores nothing", "leave one of them out")
		}
	}
	return nil
}

// submit packs and uploads the data set and starts the run.
func (a *app) submit(ctx context.Context, cl *client, r gateway.SubmitRun) (runs.Run, error) {
	data, err := a.upload(ctx, cl, &r.Spec)
	if err != nil {
		return runs.Run{}, err
	}
	for _, w := range append(doubts(data), fewSteps(&r.Spec, data)...) {
		a.say("warning: %s", w)
	}
	r.Data = data
	return a.start(ctx, cl, r)
}

// fewHeldout is the number of held-out samples below which an accuracy is a guess: of 30, one sample is three points.
const fewHeldout = 30

// doubts are what makes the result of a run worth little, although it can be trained.
func doubts(d run.Dataset) []string {
	switch {
	case d.Heldout == 0:
		return []string{"nothing is held out: the run will end without being evaluated"}
	case d.Heldout < fewHeldout && d.Task == run.TaskRegression:
		return []string{fmt.Sprintf("only %s held out: the errors measured on them say little", isAre(d.Heldout, "sample"))}
	case d.Heldout < fewHeldout:
		return []string{fmt.Sprintf("only %s held out: one more right or wrong moves the accuracy by %.0f points", isAre(d.Heldout, "sample"), 100/float64(d.Heldout))}
	}
	return nil
}

// fewBatches is the number of batches of an epoch below which a large batch wastes passes: each is one step of learning.
const fewBatches = 10

// fewSteps warns of a batch so large that a pass over the data is a handful of steps. Of few data the default batch is no mistake.
func fewSteps(s *run.Spec, d run.Dataset) []string {
	if s.Trainer == run.Process || s.Batch <= run.DefaultBatch {
		return nil
	}
	n := (d.Samples + s.Batch - 1) / s.Batch
	if n >= fewBatches {
		return nil
	}
	return []string{fmt.Sprintf("batch is %d, so that an epoch of %s has %s and the whole run %d: a smaller batch learns more of each pass (the default is %d)",
		s.Batch, count(d.Samples, "sample"), count(n, "step"), n*s.Epochs, run.DefaultBatch)}
}

// lonely are the classes with a single row, in order: it is trained on, and no accuracy ever speaks of it.
func lonely(t *dataset.Table) []string {
	rows := make([]int, len(t.Classes))
	for _, l := range t.Labels {
		rows[l]++
	}
	var names []string
	for c, n := range rows {
		if n == 1 {
			names = append(names, fmt.Sprintf("%q", domain.Clip(t.Classes[c], 40)))
		}
	}
	if more := len(names) - maxTroubles; more > 0 {
		names = append(names[:maxTroubles], fmt.Sprintf("and %d more", more))
	}
	return names
}

// start starts a run on a data set that is stored.
func (a *app) start(ctx context.Context, cl *client, submitted gateway.SubmitRun) (runs.Run, error) {
	if _, err := run.Resolve(submitted.Spec, submitted.Data); err != nil { // say it before the hub does
		return runs.Run{}, err
	}
	var r runs.Run
	err := cl.call(ctx, http.MethodPost, "/api/v1/runs", submitted, &r)
	return r, err
}

// upload packs what the trainer works on and stores it as a blob: a table, pictures or text, or the owner's code.
func (a *app) upload(ctx context.Context, cl *client, spec *run.Spec) (run.Dataset, error) {
	if spec.Trainer == run.Process {
		return a.packCode(ctx, cl, spec)
	}
	if spec.Data.Path == "" {
		return run.Dataset{}, domain.Invalid("submit run", "data.path is missing", "name a CSV file, an IDX file of pictures, or text (a file or a folder) in the spec")
	}
	if spec.Data.Format == "" {
		spec.Data.Format = formatOf(spec.Data.Path)
	}
	var err error
	if *spec, err = run.Defaults(*spec); err != nil { // before the file: what is wrong with the spec is not the data's fault
		return run.Dataset{}, err
	}
	data, err := a.store(ctx, cl, spec, func(spec *run.Spec, w io.Writer) (packed, error) { return packSource(spec, w, a.say) })
	if err != nil && domain.KindOf(err) != domain.KindNotFound {
		return data, fmt.Errorf("%s: %w", spec.Data.Path, err)
	}
	return data, err
}

// pack settles the defaults that decide how the data is split, then packs and stores a table.
func (a *app) pack(ctx context.Context, cl *client, spec *run.Spec, r io.Reader) (run.Dataset, error) {
	var err error
	if *spec, err = run.Defaults(*spec); err != nil {
		return run.Dataset{}, err
	}
	return a.store(ctx, cl, spec, func(spec *run.Spec, w io.Writer) (packed, error) { return packTable(spec, r, w) })
}

// store packs data straight into the store, and says what it is.
func (a *app) store(ctx context.Context, cl *client, spec *run.Spec, pack func(*run.Spec, io.Writer) (packed, error)) (run.Dataset, error) {
	var sent int64
	w := blobTo(ctx, cl, &sent)
	p, err := pack(spec, w)
	if err != nil {
		return run.Dataset{}, err
	}
	id, err := w.Close()
	if err != nil {
		return run.Dataset{}, err
	}
	a.say("packed %s: %s; sent %s", strings.TrimSpace(spec.Data.Path), p.text, count(sent, "byte"))
	for _, w := range p.warnings {
		a.say("warning: %s", w)
	}
	return p.facts.Run(id), nil
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
	a.say("packed %s: %s, %s of code; sent %s", spec.Code, count(facts.Files, "file"), count(facts.Bytes, "byte"), count(sent, "byte"))
	return run.ProcessData(*spec, id), nil
}

// blobTo is a writer whose parts go to the hub, but for those it has; sent counts. Without a client they go nowhere.
func blobTo(ctx context.Context, cl *client, sent *int64) *blob.Writer {
	return blob.NewWriter(ctx, func(ctx context.Context, d domain.Digest, b []byte) error {
		if cl == nil {
			return nil
		}
		if resp, err := cl.do(ctx, http.MethodHead, "/blobs/"+string(d), nil, 0); err == nil {
			resp.Body.Close()
			return nil
		}
		*sent += int64(len(b))
		return cl.putPart(ctx, d, b)
	})
}
