package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"tensorturn/agent/trainer"
	processtrainer "tensorturn/agent/trainer/process"
	"tensorturn/domain"
)

// playedProgram is an owner's program that fails as it is told.
type playedProgram struct {
	trainer.Trainer
	err    error
	broken bool
}

func (p *playedProgram) Predict(context.Context, []float32) ([]float32, error) { return nil, p.err }
func (p *playedProgram) Broken() bool                                          { return p.broken }

// A program that died is no fault of the rows, and is started anew; rows that it refuses leave it as it is.
func TestProgramFailures(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		broken bool
		kind   domain.Kind
		why    string
	}{
		"died":               {&processtrainer.Failure{Kind: processtrainer.KindMemory, Why: "the script was killed"}, true, domain.KindUnavailable, "program failed: the script was killed"},
		"its command failed": {&processtrainer.Failure{Kind: processtrainer.KindScript, Why: "exit code 1"}, false, domain.KindUnavailable, "exit code 1"},
		"hung":               {context.DeadlineExceeded, true, domain.KindUnavailable, "did not answer within 1m"},
		"refused":            {domain.Invalid("predict", "the script refuses these rows", ""), false, domain.KindInvalid, "refuses"},
		"disk":               {domain.Unavailable("predict", "the input cannot be written", "", errors.New("full")), false, domain.KindUnavailable, "full"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &limited{Predictor: &program{trainer: &playedProgram{err: c.err, broken: c.broken}}, passes: make(chan struct{}, 1)}
			_, err := p.Predict(t.Context(), nil)
			if domain.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.why) || p.Broken() != c.broken {
				t.Errorf("%s: %v, broken %v", domain.KindOf(err), err, p.Broken())
			}
		})
	}
}

// So is one that could not be started anew for the question: its engine says so in its own words.
func TestProgramNotStartedAnew(t *testing.T) {
	err := fmt.Errorf("load model m version 1: %w", &processtrainer.Failure{Kind: processtrainer.KindMissing, Why: "no module named torch"})
	if got := noFaultOfRows(err); domain.KindOf(err) != domain.KindInvalid || domain.KindOf(got) != domain.KindUnavailable || !strings.Contains(got.Error(), "torch") {
		t.Errorf("%s: %v", domain.KindOf(got), got)
	}
	if noFaultOfRows(nil) != nil {
		t.Error("an answer became an error")
	}
}
