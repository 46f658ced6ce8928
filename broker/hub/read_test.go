package hub

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// fill gives every field below v a value, every slice and map one element, every pointer a target.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(elem)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, elem)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(1)
	}
}

// shared lists the paths whose memory both values use.
func shared(path string, a, b reflect.Value) []string {
	var out []string
	switch a.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if a.IsNil() || b.IsNil() {
			return nil
		}
		if a.Pointer() == b.Pointer() {
			return []string{path}
		}
	}
	switch a.Kind() {
	case reflect.Pointer:
		out = shared(path, a.Elem(), b.Elem())
	case reflect.Struct:
		for i := range a.NumField() {
			out = append(out, shared(path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))...)
		}
	case reflect.Slice:
		for i := range a.Len() {
			out = append(out, shared(path+"[]", a.Index(i), b.Index(i))...)
		}
	case reflect.Map:
		for _, k := range a.MapKeys() {
			out = append(out, shared(path+"{}", a.MapIndex(k), b.MapIndex(k))...)
		}
	}
	return out
}

// A field that is added to run.State must be copied too: a copy is equal and shares nothing but the specification and
// the chunks of accepted contributions, outputs and vote, which never change.
func TestCopySharesNothing(t *testing.T) {
	var s run.State
	fill(reflect.ValueOf(&s).Elem())
	c := s.Clone()
	if d := cmp.Diff(&s, c, cmp.AllowUnexported(run.State{}, run.OpenRoundState{}, run.Lease{})); d != "" {
		t.Errorf("the copy differs: %s", d)
	}
	want := []string{".Spec.Data.Shape", ".Spec.Data.Categories", ".Spec.Data.Ignore", ".Spec.Model.Hidden", ".Spec.Model.Layers", ".Spec.Outer.LR", ".Spec.Outer.Momentum", ".Spec.Command", ".Spec.Predict", ".Spec.Ensemble", ".Spec.Requirements", ".Spec.Machines", ".Open.Contributions[].Chunks", ".Ensemble.Members[].Outputs",
		".Ensemble.Vote", ".Evaluations[].R2", ".Evaluations[].MAE"}
	if d := cmp.Diff(want, shared("", reflect.ValueOf(s), reflect.ValueOf(*c))); d != "" {
		t.Errorf("shared with the copy: %s", d)
	}
}

func TestRun(t *testing.T) {
	w := newWorld(t)
	w.submit("r-1", nil)
	if s := w.core.Run("r-1"); s == nil || s.ID != domain.RunID("r-1") || s == w.state("r-1") {
		t.Error("the run is not found, or is not a copy")
	}
	if w.core.Run("r-2") != nil {
		t.Error("a run that does not exist is found")
	}
}
