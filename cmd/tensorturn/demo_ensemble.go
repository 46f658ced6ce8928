package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/projections/replay"
	"tensorturn/projections/runs"
)

// The ensemble demo trains on few rows, where voting gains most, on faster machines than the fused one: a member is
// trained by one of them alone.
const (
	demoRows             = 1797 // of the digits data
	demoTraining         = 300  // of them are trained on, the others measure
	demoEnsembleThrottle = 0.04
)

// demoEnsembleSpec is the run of the ensemble demo: five members for three machines.
func demoEnsembleSpec() run.Spec {
	return run.Spec{Name: "digits-ensemble", Mode: run.ModeEnsemble, Seed: 1, Model: run.Model{Kind: "mlp", Hidden: []int{64}},
		Data:  run.Data{Path: "digits.csv.gz", Holdout: float64(demoRows-demoTraining) / demoRows},
		Batch: 32, Epochs: 60, Chunk: 64, Ensemble: &run.Ensemble{Members: 5, Min: 4, Every: 15}}
}

// demoEnsembleResult is the object of demo --mode ensemble --json.
type demoEnsembleResult struct {
	Voted         int            `json:"members_voted"`
	Members       int            `json:"members"`
	Resumed       int            `json:"members_resumed"` // went on from a checkpoint of another machine
	Accuracy      float64        `json:"accuracy_vote"`
	MeanAccuracy  float64        `json:"accuracy_mean_single"`
	BestAccuracy  float64        `json:"accuracy_best_single"`
	NLL           float64        `json:"nll_vote"`        // nats, after the temperature fitted for the vote
	MeanNLL       float64        `json:"nll_mean_single"` // the same for each member alone, mean
	PlainNLL      float64        `json:"nll_vote_before_temperature"`
	PlainMeanNLL  float64        `json:"nll_mean_single_before_temperature"`
	Disagreement  float64        `json:"disagreement"` // share of rows on which two members differ, mean over pairs
	Training      int            `json:"training_rows"`
	Test          int            `json:"test_rows"`
	Expected      int64          `json:"samples_expected"`
	Counted       int64          `json:"samples_counted"`
	Replay        string         `json:"replay"`
	Records       uint64         `json:"records"`
	Seconds       float64        `json:"seconds"`
	Prediction    bool           `json:"prediction_ok"`    // by the deployed ensemble, over HTTPS with a key
	WrongKey      int            `json:"wrong_key_status"` // of the same request with another key
	Served        demoServed     `json:"served"`
	Run           domain.RunID   `json:"run"`
	MemberDetails []*runs.Member `json:"member_details"`
}

// demoEnsemble runs the ensemble demo: one machine is killed with its member under way and stays away.
func (a *app) demoEnsemble(ctx context.Context, dir string) (demoEnsembleResult, error) {
	began := time.Now()
	p := &demoProcesses{app: a, dir: dir, throttle: demoEnsembleThrottle}
	defer p.stop()
	cl, err := p.start(ctx)
	if err != nil {
		return demoEnsembleResult{}, p.explain(err)
	}
	spec := demoEnsembleSpec()
	data, err := a.pack(ctx, cl, &spec, bytes.NewReader(digits))
	if err != nil {
		return demoEnsembleResult{}, err
	}
	r, err := a.demoRun(ctx, cl, p.troubleMember, spec, data)
	if err != nil {
		return demoEnsembleResult{}, p.explain(err)
	}
	if r.Vote == nil {
		return demoEnsembleResult{}, p.explain(domain.Conflict("demo", "the members have not voted", ""))
	}
	l := replay.New(registry(), r.ID)
	if err := readRecords(ctx, cl, l); err != nil {
		return demoEnsembleResult{}, err
	}
	report, err := a.verify(ctx, cl.getPart, l)
	if err != nil {
		return demoEnsembleResult{}, err
	}
	served, err := a.demoServe(ctx, cl, r.ID, len(r.Vote.Members))
	if err != nil {
		return demoEnsembleResult{}, p.explain(err)
	}
	d := ensembleSummary(r, report, time.Since(began))
	d.Prediction, d.WrongKey, d.Served = served.OK, served.WrongKey, served
	return d, nil
}

func ensembleSummary(r runs.Run, v replay.Report, took time.Duration) demoEnsembleResult {
	res := &r.Vote.Result
	d := demoEnsembleResult{Voted: len(r.Vote.Members), Members: r.Spec.Ensemble.Members, Accuracy: res.Vote.Accuracy, MeanAccuracy: res.Mean.Accuracy,
		NLL: res.Vote.ScaledNLL, MeanNLL: res.Mean.ScaledNLL, PlainNLL: res.Vote.NLL, PlainMeanNLL: res.Mean.NLL, Disagreement: res.Disagreement,
		Training: r.Data.Samples, Test: res.TestRows, Expected: r.Ledger.Expected, Counted: r.Ledger.Counted, Replay: v.Verdict, Records: v.Records,
		Seconds: took.Seconds(), Run: r.ID, MemberDetails: r.Members}
	for _, s := range res.Members {
		d.BestAccuracy = max(d.BestAccuracy, s.Accuracy)
	}
	for _, m := range r.Members {
		if len(m.Stretch) > 1 {
			d.Resumed++
		}
	}
	return d
}

// showDemoEnsemble tells what happened in a few lines.
func (a *app) showDemoEnsemble(d demoEnsembleResult) {
	a.print("vote       accuracy %.4f, a member alone %.4f on average (best %.4f), on %s that no member saw", d.Accuracy, d.MeanAccuracy, d.BestAccuracy, count(d.Test, "row"))
	a.print("log loss   %.4f, a member alone %.4f on average", d.NLL, d.MeanNLL)
	a.print("members    %d of %d voted, %d resumed on another machine; two of them differ on %.1f %% of rows", d.Voted, d.Members, d.Resumed, 100*d.Disagreement)
	a.print("ledger     %d of %d samples counted, each once, although a machine was killed", d.Counted, d.Expected)
	a.print("served     %s named %s as %s; a wrong key got %d", d.Served.URL, strings.Join(d.Served.Truth, " "), strings.Join(d.Served.Labels, " "), d.WrongKey)
	a.print("replay     %s: the vote recomputed from stored outputs, %d records of the log", d.Replay, d.Records)
	a.print("")
	a.memberTable(runs.Run{Members: d.MemberDetails})
	a.print("")
	a.print("took %.0f s. join your own machines: see README, \"joining real machines\"", d.Seconds)
}

// troubleMember waits until the victim's member has a checkpoint and kills the machine. Nobody starts it again.
func (p *demoProcesses) troubleMember(ctx context.Context, cl *client, id domain.RunID) error {
	victim, _ := p.find(demoVictim)
	for victim != nil {
		r, err := cl.run(ctx, string(id))
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if r.Phase.Ended() {
			return nil
		}
		for _, m := range r.Members {
			if m.Status == run.MemberTraining && m.Saved > 0 && m.Weights == "" && m.Samples*4 > m.Total && p.isVictim(ctx, cl, m.Slot.Machine()) {
				p.app.say("killing %s with SIGKILL: it trains member %d, %d of %s are in its checkpoint", demoVictim, m.Number, m.Samples, count(m.Total, "sample"))
				p.kill(victim)
				return nil
			}
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return nil
		}
	}
	return nil
}

// demoModes are the values of demo --mode.
func demoMode(mode string) (run.Mode, error) {
	switch m := run.Mode(mode); m {
	case run.ModeFused, run.ModeEnsemble:
		return m, nil
	}
	return "", domain.Invalid("demo", fmt.Sprintf("--mode is %q", domain.Clip(mode, 40)), "give fused or ensemble")
}
