package main

import (
	"context"
	"time"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/builtin"
	"tensorturn/broker/inference"
	"tensorturn/domain/dataset"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

// openInference makes the engine that answers for models in the hub's own process.
func (h *hubProcess) openInference() {
	h.engine = inference.New(inference.Config{Blobs: h.store.Blobs, Load: loadBuiltin, Now: time.Now, Logger: h.opts.logger})
	h.later(func() error { h.engine.Stop(); return nil }) // after the front, which asks it
}

// inference says who answers for models there.
func (h *hubProcess) inference(w pool.Where) inference.Backend {
	switch w {
	case pool.WhereHub:
		return h.engine
	case pool.WhereAgents:
		return h.dispatch
	}
	return nil
}

// loadBuiltin builds a predictor from the built-in trainer.
func loadBuiltin(ctx context.Context, s inference.Source) (inference.Predictor, error) {
	set, err := dataset.Open(s.Data, s.Data.Size())
	if err != nil {
		return nil, err
	}
	job := trainer.Job{Run: s.Run, Spec: s.Spec, Dataset: s.Dataset, Data: s.Data}
	if s.Member > 0 {
		job.Spec, job.Member, job.Columns = run.MemberSpec(s.Spec, s.Member), s.Member, run.FeaturesOf(s.Spec, s.Member, s.Dataset.Features)
	}
	t, err := builtin.Open(ctx, job)
	if err != nil {
		return nil, err
	}
	if err := t.Load(ctx, s.Weights); err != nil {
		t.Close()
		return nil, err
	}
	f := set.Facts()
	return &builtinPredictor{t, inference.Facts{Columns: f.Columns, Classes: f.Outputs(), Form: dataset.FormOf(f, s.Spec.Data)}}, nil
}

// builtinPredictor is a trainer that only predicts.
type builtinPredictor struct {
	trainer trainer.Trainer
	facts   inference.Facts
}

func (p *builtinPredictor) Facts() inference.Facts       { return p.facts }
func (p *builtinPredictor) Layout() []safetensors.Tensor { return p.trainer.Layout() }
func (p *builtinPredictor) Close() error                 { return p.trainer.Close() }

func (p *builtinPredictor) Predict(ctx context.Context, features []float32) ([]float32, error) {
	return p.trainer.Predict(ctx, features)
}
