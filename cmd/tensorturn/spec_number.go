package main

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// fraction finds a number with a fraction where the type has whole numbers: the decoder would cut it off. nil: there is none.
func fraction(n *yaml.Node, t reflect.Type) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if t.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode {
		for _, e := range n.Content {
			if f := fraction(e, t.Elem()); f != nil {
				return f
			}
		}
	}
	if t.Kind() != reflect.Int && t.Kind() != reflect.Uint64 || n.Kind != yaml.ScalarNode {
		return nil
	}
	var v float64
	if n.ShortTag() == "!!float" && n.Decode(&v) == nil && v != math.Trunc(v) {
		return n
	}
	return nil
}

// notZero says of a key that stands for its default when it is left out, and would when it is 0, what may be written. In a
// decoded spec 0 and nothing are one; the owner who wrote 0 did not mean the default.
var notZero = map[string]string{
	"seed":                        "a whole number from 1",
	"batch":                       "1 to " + strconv.Itoa(run.MaxBatch),
	"epochs":                      "1 to " + strconv.Itoa(run.MaxEpochs),
	"chunk":                       "a multiple of batch",
	"keep_every":                  "1 to " + strconv.Itoa(run.MaxKeepEvery),
	"round.chunks":                "a whole number from 1",
	"data.holdout":                fmt.Sprintf("a number above 0, up to %v: a run is measured on what is held out", run.MaxHoldout),
	"model.context":               "a whole number from 1",
	"model.embedding":             "a whole number from 1",
	"model.blocks":                "a whole number from 1",
	"model.heads":                 "a whole number from 1",
	"optimizer.lr":                "a number above 0",
	"optimizer.beta1":             "a number above 0 and below 1",
	"optimizer.beta2":             "a number above 0 and below 1",
	"optimizer.clip":              "a gradient norm above 0, or -1 for no clipping",
	"schedule.warmup":             "a fraction of the run above 0, or -1 for no warm-up",
	"schedule.floor":              "a fraction of the peak above 0, or -1 to end at zero",
	"ensemble.members":            "1 to " + strconv.Itoa(run.MaxMembers),
	"ensemble.min_members":        "1 to ensemble.members",
	"ensemble.checkpoint_seconds": fmt.Sprintf("a number from %v", run.MinCheckpointPeriod),
	"ensemble.recipe.features":    "a fraction above 0, up to 1",
	"requirements.gpu.count":      "a whole number from 1",
}

// builtinAlone are settings that programs of the owner's do not have: they are refused elsewhere, in other words.
var builtinAlone = []string{"data.", "model.", "optimizer.", "schedule."}

// zero refuses a 0 that would be taken for "not written".
func zero(op, path string, n *yaml.Node, trainer string) error {
	allowed, ok := notZero[path]
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	var v float64
	if !ok || n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" || n.Decode(&v) != nil || v != 0 {
		return nil
	}
	for _, prefix := range builtinAlone {
		if trainer == run.Process && strings.HasPrefix(path, prefix) {
			return nil
		}
	}
	return domain.Invalid(op, fmt.Sprintf("line %d: %s is %s", n.Line, path, n.Value), "set "+path+" to "+allowed+"; leave it out for the default")
}

// noZeros walks the document, whose keys are known to be right.
func noZeros(op, at string, n *yaml.Node, trainer string) error {
	if n.Kind != yaml.MappingNode {
		return zero(op, at, n, trainer)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if err := noZeros(op, strings.TrimPrefix(at+"."+n.Content[i].Value, "."), n.Content[i+1], trainer); err != nil {
			return err
		}
	}
	return nil
}
