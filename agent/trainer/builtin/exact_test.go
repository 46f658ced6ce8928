package builtin

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Initial weights are the same bits on every platform, for ever: a run is replayed from them.
func TestInitialWeightsAreGolden(t *testing.T) {
	tr := started(t, digitsJob(t, nil))
	var raw []byte
	for _, v := range tr.model.params.Data {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	sum := sha256.Sum256(raw)
	if got, want := hex.EncodeToString(sum[:8]), "a54ae5457b8a136d"; got != want {
		t.Errorf("weights of seed 1 hash to %s, want %s", got, want)
	}
}

// Four machines that each make one SGD step on a quarter of a batch, and are then averaged, make the step of one machine
// on the whole batch: the gradient is a mean over samples and the order of samples does not depend on the chunk size.
func TestMeanOfFourStepsIsOneStepOfFourTimesTheBatch(t *testing.T) {
	plain := func(batch int) *Trainer {
		return started(t, digitsJob(t, func(s *run.Spec) {
			s.Batch, s.Chunk = batch, batch
			s.Optimizer = run.Optimizer{Kind: run.OptimizerSGD, LR: 0.1, Clip: -1}
			s.Schedule = run.Schedule{Kind: run.ScheduleConstant, Warmup: -1}
		}))
	}
	whole := plain(128)
	if _, err := whole.Train(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	mean := make([]float64, len(whole.model.params.Data))
	for c := range 4 {
		part := plain(32)
		if _, err := part.Train(t.Context(), domain.ChunkID(c), nil); err != nil {
			t.Fatal(err)
		}
		for i, v := range part.model.params.Data {
			mean[i] += float64(v) / 4
		}
	}
	moved := false
	before := started(t, digitsJob(t, nil)).model.params.Data
	for i, v := range whole.model.params.Data {
		if math.Abs(float64(v)-mean[i]) > 1e-6 {
			t.Fatalf("weight %d is %v, the mean of four is %v", i, v, mean[i])
		}
		moved = moved || math.Abs(float64(v-before[i])) > 1e-3
	}
	if !moved {
		t.Error("the step moved nothing, so that the test shows nothing")
	}
}
