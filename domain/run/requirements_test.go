package run_test

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/pack"
	"tensorturn/domain/run"
)

func TestRequirementsAreChecked(t *testing.T) {
	many := map[string]string{}
	for i := range domain.MaxLabels {
		many[strings.Repeat("k", i+1)] = "v"
	}
	more := maps.Clone(many)
	more["one"] = "more"
	for name, tc := range map[string]struct {
		set func(*run.Spec)
		why string // empty: taken
	}{
		"nothing": {func(s *run.Spec) {}, ""},
		"all": {func(s *run.Spec) {
			s.Requirements = &run.Requirements{GPU: &run.GPUNeed{Memory: "8GiB", Model: "RTX*", Count: 1}, CPU: 4, Memory: "16GB", Disk: "1e3", Labels: map[string]string{"site": "home"}}
		}, ""},
		"a size of nothing":  {func(s *run.Spec) { s.Requirements = &run.Requirements{Memory: "0"} }, `requirements.memory is "0"`},
		"no size":            {func(s *run.Spec) { s.Requirements = &run.Requirements{GPU: &run.GPUNeed{Memory: "8 apples"}} }, `requirements.gpu.memory is "8 apples"`},
		"a negative size":    {func(s *run.Spec) { s.Requirements = &run.Requirements{Disk: "-1GiB"} }, `requirements.disk is "-1GiB"`},
		"no pattern":         {func(s *run.Spec) { s.Requirements = &run.Requirements{GPU: &run.GPUNeed{Model: "RTX["}} }, "no pattern"},
		"too many GPUs":      {func(s *run.Spec) { s.Requirements = &run.Requirements{GPU: &run.GPUNeed{Count: 65}} }, "requirements.gpu.count is 65"},
		"negative cores":     {func(s *run.Spec) { s.Requirements = &run.Requirements{CPU: -1} }, "requirements.cpu is -1"},
		"most labels":        {func(s *run.Spec) { s.Requirements = &run.Requirements{Labels: many} }, ""},
		"too many labels":    {func(s *run.Spec) { s.Requirements = &run.Requirements{Labels: more} }, "requirements.labels has 33 labels"},
		"a label of symbols": {func(s *run.Spec) { s.Requirements = &run.Requirements{Labels: map[string]string{"a b": "c"}} }, `has "a b"="c"`},
		"machines":           {func(s *run.Spec) { s.Machines = []string{"box", "attic"} }, ""},
		"machines twice":     {func(s *run.Spec) { s.Machines = []string{"box", "box"} }, `machines[1] is "box"`},
		"priority":           {func(s *run.Spec) { s.Priority = -run.MaxPriority }, ""},
		"too much priority":  {func(s *run.Spec) { s.Priority = run.MaxPriority + 1 }, "priority is 1001"},
	} {
		t.Run(name, func(t *testing.T) {
			s := run.Spec{Data: run.Data{Path: "d.csv"}}
			tc.set(&s)
			_, err := run.Defaults(s)
			if tc.why == "" && err != nil || tc.why != "" && (err == nil || !strings.Contains(err.Error(), tc.why)) {
				t.Errorf("refused with %v, want %q", err, tc.why)
			}
		})
	}
}

// TestRequirementsReadBack writes specs as the log does: a repeated submission must be known for one after a restart.
func TestRequirementsReadBack(t *testing.T) {
	for name, r := range map[string]*run.Requirements{
		"none": nil, "empty": {}, "any GPU": {GPU: &run.GPUNeed{}}, "no labels": {CPU: 1, Labels: map[string]string{}}, "labels": {Labels: map[string]string{"a": "b", "c": "d"}},
	} {
		s, err := run.Defaults(run.Spec{Data: run.Data{Path: "d.csv"}, Requirements: r, Machines: []string{}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := pack.Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		var back run.Spec
		if err := pack.Decode(b, pack.EventLimits(), &back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back.Requirements, s.Requirements) || !reflect.DeepEqual(back.Machines, s.Machines) {
			t.Errorf("%s: %+v reads back as %+v", name, s.Requirements, back.Requirements)
		}
	}
}
