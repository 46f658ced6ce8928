package builtin

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
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

// The cut into chunks changes nothing: samples and learning rates follow the run's clock, not the chunk's.
func TestChunkSizeDoesNotMatter(t *testing.T) {
	weights := func(perChunk, chunks int) []float32 {
		tr := started(t, digitsJob(t, func(s *run.Spec) { s.Batch, s.Chunk = 32, 32*perChunk }))
		for c := range chunks {
			if _, err := tr.Train(t.Context(), domain.ChunkID(c), nil); err != nil {
				t.Fatal(err)
			}
		}
		return tr.model.params.Data
	}
	if !slices.Equal(weights(1, 8), weights(4, 2)) {
		t.Error("8 chunks of one step and 2 chunks of four give other weights")
	}
}

// A chunk's samples do not depend on what was trained before it, in its own or another epoch.
func TestEpochsHaveTheirOwnOrder(t *testing.T) {
	job := digitsJob(t, func(s *run.Spec) { s.Optimizer.Kind = run.OptimizerSGD }) // no state but the weights
	second := domain.ChunkID(run.ChunksPerEpoch(job.Spec, job.Dataset) + 1)
	weights := func(chunks ...domain.ChunkID) []float32 {
		tr := started(t, digitsJob(t, func(s *run.Spec) { s.Optimizer.Kind = run.OptimizerSGD }))
		for _, c := range chunks {
			if err := tr.Init(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := tr.Train(t.Context(), c, nil); err != nil {
				t.Fatal(err)
			}
		}
		return tr.model.params.Data
	}
	alone := weights(second)
	for name, before := range map[string]domain.ChunkID{"another epoch": 1, "its own epoch": second + 1} {
		if !slices.Equal(alone, weights(before, second)) {
			t.Errorf("after a chunk of %s it is trained on other samples", name)
		}
	}
}
