package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/run"
	"tensorturn/projections/replay"
	"tensorturn/projections/runs"
)

// drillKinds are the failures of a drill.
var drillKinds = []string{"kill", "freeze", "throttle", "partition"}

// drillOptions are those of a drill.
type drillOptions struct {
	every    time.Duration
	seed     uint64
	faults   []string
	epochs   int
	throttle float64
	limit    time.Duration
}

// Defaults of a drill: a trial of a minute or two. The lease is that of the demo, so a failure that outlasts it comes quickly.
const (
	drillEvery = 4 * time.Second
	drillLimit = 15 * time.Minute
)

// drillSide is what one of the two trials has shown.
type drillSide struct {
	Seconds  float64      `json:"seconds"`
	Present  float64      `json:"slot_seconds"` // in which a slot could work: not killed or frozen, throttled time by half; a parted machine computes on
	Counted  int64        `json:"samples_counted"`
	Expected int64        `json:"samples_expected"`
	Loss     float64      `json:"loss"` // held out
	Accuracy float64      `json:"accuracy"`
	Rounds   int          `json:"rounds"`
	Expired  int          `json:"leases_expired"`
	Requeued int          `json:"requeued_chunks"`
	Replay   string       `json:"replay"`
	Run      domain.RunID `json:"run"`
}

// drillFault is a failure that was made.
type drillFault struct {
	At      float64 `json:"at_seconds"`
	Kind    string  `json:"kind"`
	Machine string  `json:"machine"`
	Lasted  float64 `json:"lasted_seconds"`
}

// drillResult is the object of drill --json.
type drillResult struct {
	Calm       drillSide    `json:"fault_free"`
	Drilled    drillSide    `json:"drilled"`
	Faults     []drillFault `json:"faults"`
	Efficiency float64      `json:"efficiency"` // samples per slot-second, against the fault-free trial
	LossRatio  float64      `json:"loss_ratio"` // of the held-out losses, drilled to fault-free
}

func drillCommand(a *app) *cobra.Command {
	var o drillOptions
	c := &cobra.Command{Use: "drill RUN|demo", Short: "a failure drill: train twice on a trial pool, once with machines killed, frozen, throttled and parted", Args: args("RUN"),
		Long: "Starts a trial pool on this machine, a hub and three agents as processes of their own on loopback, and trains twice: once in peace,\n" +
			"once while agents are killed, frozen, throttled and parted from the hub by a schedule. Says what that cost: work per second that a machine\n" +
			"was there, and the loss on held-out data. \"demo\" takes the digits data; RUN takes data and settings of a run of your hub, which is only read.",
		RunE: func(c *cobra.Command, got []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), o.limit)
			defer cancel()
			if err := o.check(); err != nil {
				return err
			}
			r, err := a.drill(ctx, got[0], o)
			if err != nil {
				return err
			}
			if a.json {
				return a.object(r)
			}
			a.showDrill(r)
			return nil
		}}
	f := c.Flags()
	f.DurationVar(&o.every, "every", drillEvery, "time between two failures")
	f.Uint64Var(&o.seed, "seed", 1, "of the schedule: which machine fails when, and how")
	f.StringSliceVar(&o.faults, "faults", drillKinds, "which failures, separated by commas")
	f.IntVar(&o.epochs, "epochs", 0, "passes over the data, fewer than the run's own for a shorter trial (0: the run's own)")
	f.Float64Var(&o.throttle, "throttle", demoThrottle, "fraction of its speed at which each machine of the trial trains: three share this one")
	f.DurationVar(&o.limit, "limit", drillLimit, "end the drill after this time")
	return c
}

func (o drillOptions) check() error {
	for _, k := range o.faults {
		if !slices.Contains(drillKinds, k) {
			return domain.Invalid("drill", fmt.Sprintf("%q is no failure", domain.Clip(k, 40)), "choose from "+strings.Join(drillKinds, ", "))
		}
	}
	if o.every < time.Second || len(o.faults) == 0 || o.epochs < 0 {
		return domain.Invalid("drill", "the schedule is no schedule", "give --every of a second at least, and one failure")
	}
	return nil
}

// drill makes both trials.
func (a *app) drill(ctx context.Context, what string, o drillOptions) (drillResult, error) {
	var out drillResult
	material, err := a.drillMaterial(ctx, what, o)
	if err != nil {
		return out, err
	}
	a.say("first in peace")
	if out.Calm, _, err = a.trial(ctx, material, o, false); err != nil {
		return out, err
	}
	a.say("again, with a failure every %s", short(o.every))
	if out.Drilled, out.Faults, err = a.trial(ctx, material, o, true); err != nil {
		return out, err
	}
	if len(out.Faults) == 0 {
		return out, domain.Conflict("drill", fmt.Sprintf("the trial was over after %.1f s, before its first failure: nothing was drilled", out.Drilled.Seconds), "train for longer with --epochs, or let failures come sooner with --every")
	}
	rate := func(s drillSide) float64 { return float64(s.Counted) / s.Present }
	out.Efficiency = rate(out.Drilled) / rate(out.Calm)
	if out.Calm.Loss > 0 {
		out.LossRatio = out.Drilled.Loss / out.Calm.Loss
	}
	return out, nil
}

// drillMaterial is what the trials train: a spec, and how its data comes to a trial hub.
type drillMaterial struct {
	spec run.Spec
	put  func(ctx context.Context, trial *client, spec *run.Spec) (run.Dataset, error)
}

func (a *app) drillMaterial(ctx context.Context, what string, o drillOptions) (drillMaterial, error) {
	if what == "demo" {
		m := drillMaterial{spec: demoSpec(), put: func(ctx context.Context, trial *client, spec *run.Spec) (run.Dataset, error) {
			return a.pack(ctx, trial, spec, bytes.NewReader(digits))
		}}
		if o.epochs > 0 {
			m.spec.Epochs = o.epochs
		}
		return m, nil
	}
	cl, err := a.client()
	if err != nil {
		return drillMaterial{}, err
	}
	r, err := cl.run(ctx, what)
	if err != nil {
		return drillMaterial{}, err
	}
	m := drillMaterial{spec: r.Spec, put: func(ctx context.Context, trial *client, _ *run.Spec) (run.Dataset, error) {
		return r.Data, carryBlob(ctx, cl, trial, r.Data.Blob)
	}}
	if o.epochs > 0 {
		m.spec.Epochs = min(o.epochs, m.spec.Epochs)
	}
	return m, nil
}

// carryBlob carries a blob from one hub to another, part by part.
func carryBlob(ctx context.Context, from, to *client, d domain.Digest) error {
	text, err := from.getPart(ctx, d)
	if err != nil {
		return err
	}
	m, err := blob.Parse(text)
	if err != nil {
		return err
	}
	for _, p := range append(slices.Clone(m.Parts), d) { // the manifest last: it says that all parts are there
		data, err := from.getPart(ctx, p)
		if err != nil {
			return err
		}
		if blob.Sum(data) != p {
			return domain.Integrity("drill", "part "+p.Short()+" of the data is damaged", "check it with: tensorturn run replay --verify")
		}
		if err := to.putPart(ctx, p, data); err != nil {
			return err
		}
	}
	return nil
}

// trial trains once on a pool of its own.
func (a *app) trial(ctx context.Context, m drillMaterial, o drillOptions, drilled bool) (side drillSide, faults []drillFault, err error) {
	dir, err := os.MkdirTemp("", "tensorturn-drill-")
	if err != nil {
		return side, nil, domain.Unavailable("drill", "no temporary folder can be made", "set TMPDIR to one", err)
	}
	defer os.RemoveAll(dir)
	p, err := a.startDrillPool(ctx, dir, o)
	defer p.stop()
	if err != nil {
		return side, nil, p.procs.explain(err)
	}
	spec := m.spec
	data, err := m.put(ctx, p.cl, &spec)
	if err != nil {
		return side, nil, err
	}
	began := time.Now()
	r, err := a.start(ctx, p.cl, gateway.SubmitRun{Spec: spec, Data: data})
	if err != nil {
		return side, nil, err
	}
	p.begin()
	if drilled {
		stop := p.schedule(ctx, o)
		defer stop()
	}
	if r, err = p.await(ctx, r.ID); err != nil {
		return side, nil, p.procs.explain(err)
	}
	took := time.Since(began)
	present, faults := p.end()
	side, err = a.drillSide(ctx, p, r)
	side.Seconds, side.Present = took.Seconds(), present.Seconds()
	return side, faults, err
}

// drillSide reads what a trial has come to.
func (a *app) drillSide(ctx context.Context, p *drillPool, r runs.Run) (drillSide, error) {
	s := drillSide{Counted: r.Ledger.Counted, Expected: r.Ledger.Expected, Rounds: r.Rounds.Merged, Expired: r.Totals.Expired, Requeued: r.Totals.Requeued, Run: r.ID}
	if n := len(r.Evaluations); n > 0 {
		s.Loss, s.Accuracy = r.Evaluations[n-1].Loss, r.Evaluations[n-1].Accuracy
	}
	if r.Phase != run.PhaseCompleted {
		return s, domain.Conflict("drill", fmt.Sprintf("the trial is %s: %s", r.Phase, r.Reason), "")
	}
	l := replay.New(registry(), r.ID)
	if err := readRecords(ctx, p.cl, l); err != nil {
		return s, err
	}
	v, err := a.verify(ctx, p.cl.getPart, l)
	s.Replay = v.Verdict
	return s, err
}

// showDrill prints the two trials side by side.
func (a *app) showDrill(d drillResult) {
	row := func(name string, f func(drillSide) string) []string { return []string{name, f(d.Calm), f(d.Drilled)} }
	a.table([]string{"", "IN PEACE", "DRILLED"}, [][]string{
		row("seconds", func(s drillSide) string { return fmt.Sprintf("%.1f", s.Seconds) }),
		row("slot-seconds present", func(s drillSide) string { return fmt.Sprintf("%.1f", s.Present) }),
		row("samples counted", func(s drillSide) string { return fmt.Sprintf("%d of %d", s.Counted, s.Expected) }),
		row("held-out loss", func(s drillSide) string { return fmt.Sprintf("%.4f", s.Loss) }),
		row("held-out accuracy", func(s drillSide) string { return fmt.Sprintf("%.4f", s.Accuracy) }),
		row("leases lost", func(s drillSide) string { return itoa(s.Expired) }),
		row("chunks trained again", func(s drillSide) string { return itoa(s.Requeued) }),
		row("replay", func(s drillSide) string { return s.Replay }),
	})
	a.print("")
	kinds := map[string]int{}
	for _, f := range d.Faults {
		kinds[f.Kind]++
	}
	var told []string
	for _, k := range drillKinds {
		if kinds[k] > 0 {
			told = append(told, fmt.Sprintf("%d %s", kinds[k], k))
		}
	}
	a.print("failures    %s (%s)", itoa(len(d.Faults)), strings.Join(told, ", "))
	a.print("efficiency  %.3f of the work per slot-second of the trial in peace", d.Efficiency)
	if !math.IsNaN(d.LossRatio) && d.LossRatio > 0 {
		a.print("loss        %.3f of the trial in peace", d.LossRatio)
	}
}
