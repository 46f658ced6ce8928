package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/agent"
	"tensorturn/agent/trainer"
	processtrainer "tensorturn/agent/trainer/process"
	"tensorturn/broker/inference"
	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

// passTime bounds one pass of an owner's program: a batch of predictions that takes longer hangs.
const passTime = time.Minute

// agentModels runs deployed models on this machine: the hub's own engine over this machine's cache and trainers.
type agentModels struct {
	engine *inference.Engine
	open   trainer.Factory
	// passes holds a place for each pass at a time: half of the cores, so that training keeps the others.
	passes chan struct{}
}

func newAgentModels(blobs inference.Blobs, open trainer.Factory, memory int64, log zerolog.Logger) *agentModels {
	a := &agentModels{open: open, passes: make(chan struct{}, max(1, runtime.NumCPU()/2))}
	a.engine = inference.New(inference.Config{Blobs: blobs, Load: a.load, Now: time.Now, Logger: log, LoadedBytes: memory})
	return a
}

func modelOf(m agent.Model) (*inference.Version, inference.Member) {
	return &inference.Version{Run: m.Run, Spec: m.Spec, Data: m.Data, Model: domain.ModelID(m.Run)},
		inference.Member{Number: m.Member, Weights: m.Weights, Layout: m.Layout}
}

// Load implements agent.Models.
func (a *agentModels) Load(ctx context.Context, m agent.Model) error {
	v, k := modelOf(m)
	return a.engine.Load(ctx, v, k)
}

// Predict implements agent.Models.
func (a *agentModels) Predict(ctx context.Context, m agent.Model, features []float32) ([]float32, error) {
	v, k := modelOf(m)
	out, err := a.engine.Member(ctx, v, k, features)
	return out, noFaultOfRows(err)
}

// noFaultOfRows makes what befell a program, at work or when it was started anew for the question, what it is to who asks: another
// machine may answer.
func noFaultOfRows(err error) error {
	var f *processtrainer.Failure
	if errors.As(err, &f) {
		return domain.Unavailable("predict", "the model's program failed: "+f.Error(), "try again", nil)
	}
	return err
}

// Ready implements agent.Models.
func (a *agentModels) Ready(m agent.Model) bool { return a.engine.Holds(m.Run, m.Member, m.Weights) }

// Keep implements agent.Models.
func (a *agentModels) Keep(ms []agent.Model) {
	type key struct {
		run     domain.RunID
		member  int
		weights domain.Digest
	}
	keep := map[key]bool{}
	for _, m := range ms {
		keep[key{m.Run, m.Member, m.Weights}] = true
	}
	a.engine.Forget(func(run domain.RunID, member int, weights domain.Digest) bool { return keep[key{run, member, weights}] })
}

// load is the engine's loader: the built-in trainer as in the hub, an owner's program in its serving mode.
func (a *agentModels) load(ctx context.Context, s inference.Source) (inference.Predictor, error) {
	if s.Spec.Trainer != run.Process {
		p, err := loadBuiltin(ctx, s)
		if err != nil {
			return nil, err
		}
		return &limited{Predictor: p, passes: a.passes}, nil
	}
	f, err := processFacts(s.Dataset)
	if err != nil {
		return nil, err
	}
	job := trainer.Job{Run: s.Run, Spec: s.Spec, Dataset: s.Dataset, Data: s.Data, Serve: true}
	if s.Member > 0 {
		job.Spec, job.Member, job.Columns = run.MemberSpec(s.Spec, s.Member), s.Member, run.FeaturesOf(s.Spec, s.Member, s.Dataset.Features)
	}
	t, err := a.open(ctx, job)
	if err != nil {
		return nil, err
	}
	if err := t.Load(ctx, s.Weights); err != nil {
		_ = t.Close() // the first error says more
		return nil, err
	}
	return &limited{Predictor: &program{trainer: t, facts: f}, passes: a.passes}, nil
}

// limited lets a predictor run while it has one of the places.
type limited struct {
	inference.Predictor
	passes chan struct{}
}

func (l *limited) Predict(ctx context.Context, features []float32) ([]float32, error) {
	select {
	case l.passes <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.passes }()
	return l.Predictor.Predict(ctx, features)
}

// Broken reports whether it may only be closed.
func (l *limited) Broken() bool {
	b, ok := l.Predictor.(interface{ Broken() bool })
	return ok && b.Broken()
}

// program is an owner's program that only predicts.
type program struct {
	trainer trainer.Trainer
	facts   inference.Facts
	broken  atomic.Bool
}

func (p *program) Facts() inference.Facts       { return p.facts }
func (p *program) Layout() []safetensors.Tensor { return p.trainer.Layout() }
func (p *program) Close() error                 { return p.trainer.Close() }
func (p *program) Broken() bool                 { return p.broken.Load() }

// Predict asks the program. What befalls the program is no fault of the rows: another machine may answer, and this one starts it
// anew when it may only be closed.
func (p *program) Predict(ctx context.Context, features []float32) ([]float32, error) {
	ctx, cancel := context.WithTimeout(ctx, passTime)
	defer cancel()
	out, err := p.trainer.Predict(ctx, features)
	if err == nil {
		return out, nil
	}
	if b, ok := p.trainer.(interface{ Broken() bool }); ok && b.Broken() {
		p.broken.Store(true)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, domain.Unavailable("predict", fmt.Sprintf("the model's program did not answer within %s", passTime), "ask for fewer rows", nil)
	}
	return nil, noFaultOfRows(err)
}
