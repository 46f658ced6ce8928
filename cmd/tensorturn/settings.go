package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// settings lists every field of a resolved spec that has an effect, by its YAML name, so that no default is in force
// unseen. Where a number stands for a rule the rule is told.
func settings(s run.Spec) [][]string {
	var rows [][]string
	words := inWords(s)
	walkSettings("", reflect.ValueOf(s), func(name, value string) {
		if !applies(s, name) || slices.Contains(onlyWhenSet, name) && slices.Contains(unset, value) {
			return
		}
		if w, ok := words[name]; ok {
			value = w
		}
		rows = append(rows, []string{name, value})
	})
	return rows
}

func walkSettings(at string, v reflect.Value, emit func(name, value string)) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			emit(at, "-")
			return
		}
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		emit(at, fmt.Sprint(v.Interface()))
		return
	}
	for i := range v.NumField() {
		tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		walkSettings(strings.TrimPrefix(at+"."+tag, "."), v.Field(i), emit)
	}
}

// onlyWhenSet are settings of some kinds of data or model: one that is unset is not in force anywhere.
var onlyWhenSet = []string{"data.format", "data.task", "data.labels", "data.shape", "data.missing", "data.categories", "data.ignore", "model.hidden",
	"model.layers", "model.context", "model.embedding", "model.blocks", "model.heads"}

// unset are the texts of values that are not set.
var unset = []string{"", "0", "[]"}

// applies reports whether a setting has an effect with the run's trainer, optimizer and schedule.
func applies(s run.Spec, name string) bool {
	group, _, _ := strings.Cut(name, ".")
	if s.IsEnsemble() {
		switch name {
		case "round.chunks", "round.deadline_seconds", "outer.lr", "outer.momentum", "codec", "codec_down", "max_chunks_per_contribution", "evaluate_every", "keep_every":
			return false
		}
	}
	switch {
	case name == "machines":
		return len(s.Machines) > 0
	case name == "priority":
		return s.Priority != 0
	case group == "requirements":
		return asked(s.Requirements, name)
	case name == "ensemble":
		return false // walked into where there is one
	case name == "output":
		return s.Output != ""
	case strings.HasPrefix(name, "ensemble.recipe.grid."):
		return s.Ensemble.Recipe.Grid.Size() > 1
	case slices.Contains(onlyWhenSet, name):
		return s.Trainer != run.Process
	case name == "data.path", name == "data.label", name == "data.holdout", group == "model", group == "optimizer", group == "schedule":
		if s.Trainer == run.Process {
			return false
		}
	case group == "data", name == "command", name == "network":
		return s.Trainer == run.Process
	case name == "container":
		return s.Container != ""
	case name == "predict":
		return len(s.Predict) > 0
	case name == "python":
		return s.Python != ""
	case name == "code":
		return s.Code != ""
	}
	switch name {
	case "optimizer.beta1", "optimizer.beta2":
		return s.Optimizer.Kind == run.OptimizerAdamW
	case "schedule.warmup", "schedule.floor":
		return s.Schedule.Kind == run.ScheduleCosine || s.Schedule.Warmup != 0 || s.Schedule.Floor != 0
	}
	return true
}

// asked reports whether a requirement asks for something.
func asked(r *run.Requirements, name string) bool {
	if r == nil {
		return false
	}
	g := r.GPU
	switch strings.TrimPrefix(name, "requirements.") {
	case "gpu.memory":
		return g != nil && g.Memory != ""
	case "gpu.model":
		return g != nil // "any" where there is no pattern
	case "gpu.count":
		return g != nil && g.Count > 1
	case "cpu":
		return r.CPU > 0
	case "memory":
		return r.Memory != ""
	case "disk":
		return r.Disk != ""
	case "labels":
		return len(r.Labels) > 0
	}
	return false
}

// inWords are the settings whose number is a rule.
func inWords(s run.Spec) map[string]string {
	w := map[string]string{}
	say := func(yes bool, name, words string) {
		if yes {
			w[name] = words
		}
	}
	say(s.Round.Deadline == 0, "round.deadline_seconds", "4 × the expected time of the round")
	say(s.Down() == "", "codec_down", "fp32: machines fetch the next base whole")
	say(s.MaxChunksPerContribution == 0, "max_chunks_per_contribution", "no limit")
	say(s.EvaluateEvery == 0, "evaluate_every", "the final model only")
	say(s.KeepEvery == 1, "keep_every", "every round")
	say(s.KeepEvery > 1, "keep_every", fmt.Sprintf("every %d rounds, and the last three", s.KeepEvery))
	say(s.Optimizer.Clip < 0, "optimizer.clip", "off")
	say(s.Schedule.Warmup < 0, "schedule.warmup", "off")
	say(s.Schedule.Floor < 0, "schedule.floor", "0")
	say(s.Data.Heldout == 0, "data.heldout", "none: the script does not evaluate")
	say(s.Data.Features == 0, "data.features", "not said")
	say(s.Data.Classes == 0, "data.classes", "not said")
	say(s.IsEnsemble() && s.Ensemble.Deadline == 0, "ensemble.deadline_seconds", "none")
	if r := s.Requirements; r != nil {
		w["requirements.labels"] = domain.LabelText(r.Labels)
		say(r.GPU != nil && r.GPU.Model == "", "requirements.gpu.model", "any")
	}
	w["machines"] = strings.Join(s.Machines, ", ")
	return w
}
