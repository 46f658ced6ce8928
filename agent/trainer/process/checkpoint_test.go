package process

import (
	"bytes"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// speaking is a member whose program speaks the protocol and keeps checkpoints.
func speaking(t *testing.T, mode string) *Trainer {
	return member(t, memberJob(t, mode, func(s *run.Spec) { s.Output, s.Predict = "", nil }))
}

// A member that was resumed from its checkpoint has the bits of one that was not broken off.
func TestSpeakingMemberResumes(t *testing.T) {
	train := func(m *Trainer, from, to int) {
		for c := from; c < to; c++ {
			if r, err := m.Train(t.Context(), domain.ChunkID(c), nil); err != nil || r.All {
				t.Fatalf("%+v, %v", r, err)
			}
		}
	}
	saved := func(m *Trainer) string {
		var b bytes.Buffer
		if err := m.Save(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	whole, first, second, third := speaking(t, "member"), speaking(t, "member"), speaking(t, "member"), speaking(t, "member")
	train(whole, 0, 6)
	train(first, 0, 3)
	if !first.Keeps() {
		t.Fatal("it keeps no checkpoints")
	}
	var state bytes.Buffer
	if err := first.SaveState(t.Context(), &state); err != nil {
		t.Fatal(err)
	}
	half := saved(first)
	if err := second.LoadState(t.Context(), bytes.NewReader(state.Bytes())); err != nil {
		t.Fatal(err)
	}
	train(second, 3, 6)
	if saved(second) != saved(whole) {
		t.Error("the resumed member has other weights")
	}
	if err := third.Load(t.Context(), bytes.NewReader([]byte(half))); err != nil { // without momentum: the comparison can fail
		t.Fatal(err)
	}
	if train(third, 3, 6); saved(third) == saved(whole) {
		t.Error("weights alone give the same")
	}
	if err := third.LoadState(t.Context(), bytes.NewReader(state.Bytes()[:20])); err == nil {
		t.Error("a cut checkpoint is loaded")
	}
}

// A program of the first protocol keeps none: its member begins anew when it is requeued.
func TestOlderProgramKeepsNone(t *testing.T) {
	if m := speaking(t, "good"); m.Keeps() {
		t.Error("it says that it keeps checkpoints")
	}
}
