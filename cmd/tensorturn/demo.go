package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/projections/replay"
	"tensorturn/projections/runs"
)

// digits is the demo's data; demo/README.md names its source.
//
//go:embed demo/digits.csv.gz
var digits []byte

// The demo's pool: equal machines but for their throttle, so that a quarter of the speed is a quarter.
const (
	demoLease    = 6 * time.Second
	demoLimit    = 3 * time.Minute // beyond it something hangs
	demoThrottle = 0.012
	demoVictim   = "laptop"
	demoMinFree  = 64 << 20 // a demo writes a few MiB: it should run on a disk that a hub would call nearly full
)

var demoPool = []struct {
	name  string
	speed float64 // relative
}{{"workstation", 1}, {"laptop", 1}, {"old-desktop", 0.25}}

// demoSpec is the run of the demo.
func demoSpec() run.Spec {
	return run.Spec{Name: "digits", Seed: 1, Data: run.Data{Path: "digits.csv.gz", Holdout: 0.2}, Model: run.Model{Kind: "mlp", Hidden: []int{64}},
		Batch: 32, Epochs: 30, Chunk: 64, Round: run.Round{Chunks: 46}, KeepEvery: 1}
}

// demoResult is the object of demo --json.
type demoResult struct {
	Accuracy   float64       `json:"accuracy"` // on the held-out, stratified fifth
	Loss       float64       `json:"loss"`
	Heldout    int           `json:"heldout_samples"`
	Expected   int64         `json:"samples_expected"`
	Counted    int64         `json:"samples_counted"`
	Rounds     int           `json:"rounds"`
	Steals     int           `json:"steals"`
	Stolen     int           `json:"stolen_chunks"`
	Requeued   int           `json:"requeued_chunks"`
	Copied     int           `json:"copied_chunks"`
	Adopted    int           `json:"adopted_chunks"`
	Expired    int           `json:"leases_expired"`
	Replay     string        `json:"replay"`
	Recomputed int           `json:"rounds_recomputed"`
	Records    uint64        `json:"records"`
	Seconds    float64       `json:"seconds"`
	Run        domain.RunID  `json:"run"`
	Slots      []*runs.Slot  `json:"slots"`
	Model      domain.Digest `json:"model"`
}

func demoCommand(a *app) *cobra.Command {
	var keep, mode string
	c := &cobra.Command{Use: "demo", Short: "a hub and three agents on this machine train the digits data; one is killed on the way", Args: args(),
		Long: "Starts a hub and three agents as processes of their own on loopback, joined by leafnodes over wss. One runs at a\n" +
			"quarter of the speed, one is killed with SIGKILL in the middle and started again. Ends with the model measured on\n" +
			"held-out rows, the ledger, and every merge recomputed from the log.\n" +
			"With --mode ensemble five members are trained on 300 rows and vote; the machine that is killed stays away, and another\n" +
			"one goes on with its member. The vote is then deployed and asked over HTTPS with a key.",
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), demoLimit)
			defer cancel()
			m, err := demoMode(mode)
			if err != nil {
				return err
			}
			dir, remove, err := demoFolder(keep)
			if err != nil {
				return err
			}
			defer remove()
			if m == run.ModeEnsemble {
				r, err := a.demoEnsemble(ctx, dir)
				if err != nil {
					return err
				}
				if a.json {
					return a.object(r)
				}
				a.showDemoEnsemble(r)
				return nil
			}
			r, err := a.demo(ctx, dir)
			if err != nil {
				return err
			}
			if a.json {
				return a.object(r)
			}
			a.showDemo(r)
			return nil
		}}
	c.Flags().StringVar(&mode, "mode", string(run.ModeFused), "fused: one model; ensemble: five that vote")
	c.Flags().StringVar(&keep, "dir", "", "keep everything in this folder instead of a temporary one")
	return c
}

// demoFolder gives the demo's folder and what removes it afterwards.
func demoFolder(keep string) (dir string, remove func(), err error) {
	if keep == "" {
		tmp, err := os.MkdirTemp("", "tensorturn-demo-")
		if err != nil {
			return "", nil, domain.Unavailable("demo", "no temporary folder can be made", "give one with --dir", err)
		}
		return tmp, func() { os.RemoveAll(tmp) }, nil
	}
	if err := os.MkdirAll(keep, 0o700); err != nil {
		return "", nil, domain.Invalid("demo", plainPathError(err), "choose another folder with --dir")
	}
	return keep, func() {}, nil
}

func (a *app) demo(ctx context.Context, dir string) (demoResult, error) {
	began := time.Now()
	p := &demoProcesses{app: a, dir: dir, throttle: demoThrottle}
	defer p.stop()
	cl, err := p.start(ctx)
	if err != nil {
		return demoResult{}, p.explain(err)
	}
	spec := demoSpec()
	data, err := a.pack(ctx, cl, &spec, bytes.NewReader(digits))
	if err != nil {
		return demoResult{}, err
	}
	r, err := a.demoRun(ctx, cl, p.trouble, spec, data)
	if err != nil {
		return demoResult{}, p.explain(err)
	}
	l := replay.New(registry(), r.ID)
	if err := readRecords(ctx, cl, l); err != nil {
		return demoResult{}, err
	}
	report, err := a.verify(ctx, cl.getPart, l)
	if err != nil {
		return demoResult{}, err
	}
	return demoSummary(r, report, time.Since(began)), nil
}

func demoSummary(r runs.Run, v replay.Report, took time.Duration) demoResult {
	d := demoResult{Expected: r.Ledger.Expected, Counted: r.Ledger.Counted, Rounds: r.Rounds.Merged, Steals: r.Totals.Steals, Stolen: r.Totals.Stolen,
		Requeued: r.Totals.Requeued, Copied: r.Totals.Copied, Adopted: r.Totals.Adopted, Expired: r.Totals.Expired, Replay: v.Verdict, Recomputed: v.Recomputed, Records: v.Records,
		Seconds: took.Seconds(), Run: r.ID, Slots: r.Slots, Model: r.Model}
	if n := len(r.Evaluations); n > 0 {
		e := r.Evaluations[n-1]
		d.Accuracy, d.Loss, d.Heldout = e.Accuracy, e.Loss, e.Samples
	}
	return d
}

// showDemo tells what happened in a few lines.
func (a *app) showDemo(d demoResult) {
	a.print("held-out   accuracy %.4f on %d stratified rows that no machine trained on, loss %.4f", d.Accuracy, d.Heldout, d.Loss)
	a.print("ledger     %d of %d samples counted, each once, although a machine was killed", d.Counted, d.Expected)
	a.print("scheduler  %s moved %s, %d requeued, %d given to a second slot as copies; %s expired", count(d.Steals, "steal"), count(d.Stolen, "chunk"), d.Requeued, d.Copied, count(d.Expired, "lease"))
	a.print("replay     %s: %d of %d merges recomputed from %d records of the log", d.Replay, d.Recomputed, d.Rounds, d.Records)
	a.print("")
	a.slotTable(runs.Run{Slots: d.Slots, Ledger: runs.Ledger{Counted: d.Counted}, Spec: demoSpec()})
	a.print("")
	a.print("took %.0f s. join your own machines: see README, \"joining real machines\"", d.Seconds)
}

// demoRun submits the run, follows it, and makes trouble on the way.
func (a *app) demoRun(ctx context.Context, cl *client, cause func(context.Context, *client, domain.RunID) error, spec run.Spec, data run.Dataset) (runs.Run, error) {
	r, err := a.start(ctx, cl, gateway.SubmitRun{Spec: spec, Data: data})
	if err != nil {
		return r, err
	}
	trouble := make(chan error, 1)
	cctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { trouble <- cause(cctx, cl, r.ID) }()
	r, err = a.follow(ctx, cl, r.ID)
	cancel()
	if terr := <-trouble; err == nil && terr != nil {
		err = terr
	}
	if err == nil && r.Phase != run.PhaseCompleted {
		err = domain.Conflict("demo", fmt.Sprintf("the run is %s: %s", r.Phase, r.Reason), "")
	}
	return r, err
}
