package run

import (
	"fmt"
	"reflect"
	"strings"

	"tensorturn/domain"
)

// A process run is trained by the owner's own program. Model, optimizer, schedule and data are the program's: the spec
// says how it is started and how many samples there are, and the run's data blob is the packed code.

// Limits of a command.
const (
	MaxCommandWords = 64   // far above what a person writes by hand
	MaxCommandWord  = 1024 // bytes
	MaxImage        = 255  // bytes of a container image's name
	// DefaultOutput is what a member that does not speak leaves in its output folder.
	DefaultOutput = "model.safetensors"
	// ProcessBlock is the shuffle block of a process run. The data lie where the program has them, so blocks save no
	// transfer; they bound what must be shuffled to find the samples of one chunk.
	ProcessBlock = 1 << 16
)

// fillProcess sets the name; nothing else of a program is ours to choose.
func fillProcess(s *Spec) {
	for _, word := range s.Command {
		if name := nameOf(word); s.Name == "" && strings.HasSuffix(word, ".py") {
			s.Name = name
		}
	}
	or(&s.Name, "run")
	if len(s.Predict) > 0 && s.Mode == ModeEnsemble {
		or(&s.Output, DefaultOutput) // who predicts by a command does not speak
	}
}

// checkProcess checks what a process run says, and refuses settings that would have no effect.
func checkProcess(s *Spec) error {
	err := first(checkText("python", s.Python, MaxPathLength), checkText("code", s.Code, MaxPathLength))
	if err == nil && (len(s.Command) == 0 || len(s.Command) > MaxCommandWords) {
		err = bad("command", fmt.Sprintf("%d words long", len(s.Command)), fmt.Sprintf("1 to %d words, for example [python, train.py]", MaxCommandWords))
	}
	if err == nil && len(s.Predict) > MaxCommandWords {
		err = bad("predict", fmt.Sprintf("%d words long", len(s.Predict)), fmt.Sprintf("at most %d words", MaxCommandWords))
	}
	err = first(err, checkWords("command", s.Command), checkWords("predict", s.Predict))
	return first(err, checkImage(s),
		within("data.samples", s.Data.Samples, 2, MaxSamples),
		within("data.heldout", s.Data.Heldout, 0, MaxSamples),
		within("data.features", s.Data.Features, 0, MaxFeatures),
		within("data.classes", s.Data.Classes, 0, MaxClasses),
		checkOutput(s),
		unused("data.path", s.Data.Path), unused("data.label", s.Data.Label), unused("data.holdout", s.Data.Holdout),
		unused("data.format", s.Data.Format), unused("data.task", s.Data.Task), unused("data.labels", s.Data.Labels),
		unused("data.shape", s.Data.Shape), unused("data.missing", s.Data.Missing),
		unused("data.categories", s.Data.Categories), unused("data.ignore", s.Data.Ignore),
		unused("model", s.Model), unused("optimizer", s.Optimizer), unused("schedule", s.Schedule),
	)
}

// checkWords checks the words of a command.
func checkWords(field string, words []string) (err error) {
	for i, word := range words {
		err = first(err, checkText(fmt.Sprintf("%s[%d]", field, i), word, MaxCommandWord))
		if err == nil && word == "" && i == 0 {
			err = bad(field+"[0]", "empty", "a program")
		}
	}
	return err
}

// checkImage checks the name of the container's image: it becomes a word of another program's command line, so it cannot
// begin like an option.
func checkImage(s *Spec) error {
	odd := strings.ContainsFunc(s.Container, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/:@", r))
	})
	switch {
	case s.Container == "":
		return nil
	case odd || len(s.Container) > MaxImage || strings.ContainsRune("._-/:@", rune(s.Container[0])):
		return bad("container", fmt.Sprintf("%q", domain.Clip(s.Container, 80)), "the name of an image, for example pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime")
	case s.Python != "":
		return domain.Invalid(opSpec, "python and container are both set", "the image brings its own interpreter: remove python, or name the program in command")
	}
	return nil
}

// unused refuses a setting of the built-in trainer in a process run.
func unused(field string, v any) error {
	if reflect.ValueOf(v).IsZero() {
		return nil
	}
	return domain.Invalid(opSpec, field+" is set, but the trainer is a program of your own", "remove "+field+" from the spec and set it in the program")
}

// checkNoProcess refuses settings of a process run in one of the built-in trainer.
func checkNoProcess(s *Spec) error {
	for _, f := range []struct {
		name string
		v    any
	}{{"command", s.Command}, {"python", s.Python}, {"code", s.Code}, {"network", s.Network}, {"container", s.Container}, {"output", s.Output}, {"predict", s.Predict}, {"data.samples", s.Data.Samples}, {"data.heldout", s.Data.Heldout},
		{"data.features", s.Data.Features}, {"data.classes", s.Data.Classes}} {
		if !reflect.ValueOf(f.v).IsZero() {
			return domain.Invalid(opSpec, f.name+" is set, but the trainer is "+s.Trainer, "add trainer: process, or remove "+f.name)
		}
	}
	return nil
}

// ProcessData is the data set of a process run: the packed code, and the owner's word for the numbers.
func ProcessData(s Spec, code domain.Digest) Dataset {
	return Dataset{Blob: code, Samples: s.Data.Samples, Heldout: s.Data.Heldout, Features: s.Data.Features, Classes: s.Data.Classes,
		Block: min(s.Data.Samples, ProcessBlock)}
}

// checkProcessData makes sure that a process run's data set is what its spec says.
func checkProcessData(s *Spec, d *Dataset) error {
	if _, err := domain.ParseDigest(string(d.Blob)); err != nil {
		return domain.Invalid("check data", "the packed code has no digest", "submit the run with: tensorturn run submit")
	}
	want := ProcessData(*s, d.Blob)
	want.Bytes = d.Bytes // measured, not said
	if *d != want {
		return domain.Invalid("check data", fmt.Sprintf("%d training and %d held-out samples, the spec says %d and %d", d.Samples, d.Heldout, want.Samples, want.Heldout),
			"submit the run with: tensorturn run submit")
	}
	return nil
}
