package wire

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/pack"
	"tensorturn/domain/run"
)

var digest = domain.Digest(strings.Repeat("0a", 32))

func sampleRequest() *SyncRequest {
	loss := 0.25
	return &SyncRequest{
		Version: Version, Incarnation: "i-1", Counter: 7, Head: []byte{1}, Build: "dev",
		Beat: Telemetry{CPUs: 2, Memory: 1 << 30, OS: "linux", Arch: "amd64", Vitals: &machine.Vitals{CPU: "x", Load: &loss,
			Memory: machine.Space{Total: 8, Free: 4}, GPUs: []machine.GPU{{UUID: "GPU-1", Name: "RTX", Busy: &loss, Celsius: &loss}}, SlotGPUs: []string{"GPU-1", ""}}},
		Missing: []domain.Digest{digest},
		Slots: []SlotReport{{
			Run: "r-1", Epoch: 12, Phase: PhaseOffered, Number: 2, Progress: 99, Loss: &loss, Speed: 120.5, Upload: 0.75,
			Trained: []TrainedChunk{{Chunk: 3, Steps: 4, Seconds: 1.5, Loss: 0.5}, {Chunk: 4, Steps: 4, Seconds: 1.25, Loss: 0.25}},
			Offer:   &Offer{Chunks: []domain.ChunkID{3, 4}, Boundaries: []int{1, 2}, Steps: 8, Blob: digest, Codec: run.CodecE3M0},
		}, {Index: 1, Phase: PhaseIdle, Away: &Away{Cause: machine.ByAbsence, Reason: "lost"}}},
	}
}

func sampleReply() *SyncReply {
	cut := 1
	return &SyncReply{
		Interval: 5, Lease: 120, Time: 1, Wanted: []domain.Digest{digest}, Merged: []MergedRound{{Run: "r-1", Round: 4}},
		Slots: []SlotDesire{{
			Run: "r-1", Epoch: 12, Unit: run.UnitTrain, Round: 5, Base: digest, Number: 2, Claims: []domain.ChunkID{3, 4}, Cut: &cut,
			Job: &Job{Spec: run.Spec{Name: "x", Codec: run.CodecFP32}, Data: run.Dataset{Blob: digest, Samples: 10}, Layout: digest},
		}, {Index: 1}},
	}
}

func TestRoundTrip(t *testing.T) {
	b, err := EncodeRequest(sampleRequest())
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeRequest(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sampleRequest(), got); d != "" {
		t.Error("request:", d)
	}
	if b, err = EncodeReply(sampleReply()); err != nil {
		t.Fatal(err)
	}
	reply, err := DecodeReply(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sampleReply(), reply); d != "" {
		t.Error("reply:", d)
	}
}

func TestDecodeRequestRefuses(t *testing.T) {
	nan, huge := math.NaN(), 1.7e308
	cases := []struct {
		name string
		edit func(*SyncRequest)
		why  string
	}{
		{"another protocol version", func(r *SyncRequest) { r.Version = 2 }, "speaks protocol version 2, this hub speaks 1"},
		{"incarnation with a dot", func(r *SyncRequest) { r.Incarnation = "a.b" }, "incarnation"},
		{"too many slots", func(r *SyncRequest) { r.Slots = make([]SlotReport, domain.MaxSlotsPerMachine+1) }, "65 slots"},
		{"slots out of order", func(r *SyncRequest) { r.Slots[1].Index = 5 }, "slot 1: it says index 5"},
		{"run with a wildcard", func(r *SyncRequest) { r.Slots[0].Run = ">" }, "is not an id"},
		{"run without epoch", func(r *SyncRequest) { r.Slots[0].Epoch = 0 }, "both be set"},
		{"unknown phase", func(r *SyncRequest) { r.Slots[0].Phase = "x" }, "phase"},
		{"negative number", func(r *SyncRequest) { r.Slots[0].Number = -1 }, "number is negative"},
		{"a chunk of more than a day", func(r *SyncRequest) {
			r.Slots[0].Trained[0].Seconds = math.Nextafter(run.MaxChunkSeconds, math.Inf(1))
		}, "seconds of a chunk are beyond"},
		{"a loss whose sums are infinite", func(r *SyncRequest) { r.Slots[0].Trained[1].Loss = -1.7e308 }, "loss is beyond"},
		{"a running loss that is none", func(r *SyncRequest) { r.Slots[0].Loss = &huge }, "loss is beyond"},
		{"an evaluation of no model", func(r *SyncRequest) { r.Slots[0].Eval = &Eval{Samples: 1, R2: &huge} }, "R² is beyond"},
		{"an error of no model", func(r *SyncRequest) { r.Slots[0].Eval = &Eval{Samples: 1, MAE: &huge} }, "mean absolute error is beyond"},
		{"a checkpoint's loss that is none", func(r *SyncRequest) { r.Slots[0].Member = &Member{Checkpoint: &Checkpoint{Loss: huge}} }, "checkpoint loss is beyond"},
		{"watts that no machine draws", func(r *SyncRequest) { r.Beat.Vitals.GPUs[0].Joules = &huge }, "gpu reading is beyond"},
		{"speed not a number", func(r *SyncRequest) { r.Slots[0].Speed = nan }, "speed is not finite"},
		{"negative seconds", func(r *SyncRequest) { r.Slots[0].Trained[0].Seconds = -1 }, "seconds is negative"},
		{"loss not a number", func(r *SyncRequest) { r.Slots[0].Loss = &nan }, "loss is not finite"},
		{"chunk out of range", func(r *SyncRequest) { r.Slots[0].Trained[0].Chunk = run.MaxChunks }, "out of range"},
		{"too many chunks", func(r *SyncRequest) { r.Slots[0].Trained = make([]TrainedChunk, MaxSlotChunks+1) }, "8193 trained"},
		{"boundary beyond the chunks", func(r *SyncRequest) { r.Slots[0].Offer.Boundaries = []int{3} }, "boundaries"},
		{"boundaries not ascending", func(r *SyncRequest) { r.Slots[0].Offer.Boundaries = []int{2, 1} }, "boundaries"},
		{"too many boundaries", func(r *SyncRequest) { r.Slots[0].Offer.Boundaries = make([]int, MaxBoundaries+1) }, "9 boundaries"},
		{"blob not a digest", func(r *SyncRequest) { r.Slots[0].Offer.Blob = "../x" }, "not a SHA-256"},
		{"unknown codec", func(r *SyncRequest) { r.Slots[0].Offer.Codec = "zip" }, "codec"},
		{"long error", func(r *SyncRequest) { r.Slots[0].Error = strings.Repeat("e", MaxText+1) }, "error has 1025 bytes"},
		{"a pause that is the owner's", func(r *SyncRequest) { r.Slots[1].Away = &Away{Cause: machine.ByOwner} }, "cannot pause a slot"},
		{"too many gpus", func(r *SyncRequest) { r.Beat.Vitals.GPUs = make([]machine.GPU, machine.MaxGPUs+1) }, "65 gpus"},
		{"a gpu without uuid", func(r *SyncRequest) { r.Beat.Vitals.GPUs[0].UUID = "" }, "without a uuid"},
		{"a long gpu name", func(r *SyncRequest) { r.Beat.Vitals.GPUs[0].Name = strings.Repeat("g", machine.MaxDeviceText+1) }, "gpu name has 129 bytes"},
		{"a temperature that is none", func(r *SyncRequest) { r.Beat.Vitals.GPUs[0].Celsius = &nan }, "gpu reading is not finite"},
		{"a load beyond all cores", func(r *SyncRequest) { two := 2.0; r.Beat.Vitals.Load = &two }, "load is beyond 1"},
		{"a step that took more than a machine has", func(r *SyncRequest) { r.Slots[0].Init = initOf(r, run.Memory{Host: run.MaxTake + 1}) }, "took more than"},
		{"a step that took more than a GPU has", func(r *SyncRequest) { r.Slots[0].Init = initOf(r, run.Memory{Device: 1 << 63}) }, "took more than"},
		{"missing not digests", func(r *SyncRequest) { r.Missing[0] = "x" }, "missing is not"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := sampleRequest()
			c.edit(r)
			b, err := EncodeRequest(r)
			if err != nil {
				t.Fatal(err)
			}
			_, err = DecodeRequest(b)
			refused(t, err, c.why)
		})
	}
}

func TestAStepMayTakeTheMost(t *testing.T) {
	r := sampleRequest()
	r.Slots[0].Init = initOf(r, run.Memory{Host: run.MaxTake, Device: run.MaxTake})
	b, err := EncodeRequest(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeRequest(b); err != nil {
		t.Error(err)
	}
}

// initOf is a first base whose dry step took that.
func initOf(r *SyncRequest, take run.Memory) *Init {
	blob := r.Slots[0].Offer.Blob
	return &Init{Base: blob, Layout: blob, Params: 1, Take: &take}
}

func TestDecodeReplyRefuses(t *testing.T) {
	cases := []struct {
		name string
		edit func(*SyncReply)
		why  string
	}{
		{"interval not a number", func(r *SyncReply) { r.Interval = math.Inf(1) }, "interval"},
		{"lease beyond the limit", func(r *SyncReply) { r.Lease = 3601 }, "lease"},
		{"unknown unit", func(r *SyncReply) { r.Slots[0].Unit = "dance" }, "unit"},
		{"train without base", func(r *SyncReply) { r.Slots[0].Base = "" }, "base"},
		{"negative cut", func(r *SyncReply) { *r.Slots[0].Cut = -1 }, "cut"},
		{"data set not a digest", func(r *SyncReply) { r.Slots[0].Job.Data.Blob = "x" }, "data set"},
		{"merged run not an id", func(r *SyncReply) { r.Merged[0].Run = "*" }, "merged run"},
		{"error without kind", func(r *SyncReply) { r.Error = &Error{Why: "x"} }, "without a kind"},
		{"too many wanted", func(r *SyncReply) { r.Wanted = make([]domain.Digest, MaxWanted+1) }, "257 wanted"},
		{"too many claims", func(r *SyncReply) { r.Slots[0].Claims = make([]domain.ChunkID, MaxSlotChunks+1) }, "8193 claims"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := sampleReply()
			c.edit(r)
			b, err := EncodeReply(r)
			if err != nil {
				t.Fatal(err)
			}
			_, err = DecodeReply(b)
			refused(t, err, c.why)
		})
	}
}

func refused(t *testing.T, err error, why string) {
	t.Helper()
	if err == nil {
		t.Fatal("it was accepted")
	}
	if domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), why) {
		t.Errorf("got %s error %q, want an invalid one that says %q", domain.KindOf(err), err, why)
	}
}

// A contribution at the limit still fits a message; beyond the message's size the encoder says what to do.
func TestEncodeAtTheLimit(t *testing.T) {
	r := sampleRequest()
	r.Slots = r.Slots[:1]
	full := make([]TrainedChunk, MaxSlotChunks)
	for i := range full {
		full[i] = TrainedChunk{Chunk: domain.ChunkID(run.MaxChunks - 1 - i), Steps: 512, Seconds: 10.1, Loss: 0.123}
	}
	r.Slots[0].Trained = full
	r.Slots[0].Offer.Chunks = make([]domain.ChunkID, MaxSlotChunks)
	b, err := EncodeRequest(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeRequest(b); err != nil {
		t.Error("at the limit:", err)
	}
	r.Slots = nil
	for i := range 8 {
		r.Slots = append(r.Slots, SlotReport{Index: i, Run: "r-1", Epoch: 1, Phase: PhaseTraining, Trained: full})
	}
	if _, err := EncodeRequest(r); domain.NextOf(err) == "" {
		t.Errorf("eight full slots: got %v, want an error with a hint", err)
	}
}

func TestErrorCrosses(t *testing.T) {
	in := domain.Unavailable("append", "disk full", "free some space", nil)
	out := ErrorOf(in).Err("sync")
	if domain.KindOf(out) != domain.KindUnavailable || domain.NextOf(out) != "free some space" || !strings.Contains(out.Error(), "disk full") {
		t.Errorf("got %v", out)
	}
	if ErrorOf(nil) != nil || (*Error)(nil).Err("x") != nil {
		t.Error("no error became one")
	}
}

// Whatever decodes must encode again to something that decodes to the same.
func FuzzDecodeRequest(f *testing.F) {
	b, _ := EncodeRequest(sampleRequest())
	seeds(f, b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRequest(b)
		if err != nil {
			return
		}
		again, err := EncodeRequest(r)
		if err != nil {
			t.Fatal(err)
		}
		if r2, err := DecodeRequest(again); err != nil || !cmp.Equal(r, r2) {
			t.Fatalf("%v %s", err, cmp.Diff(r, r2))
		}
	})
}

func FuzzDecodeReply(f *testing.F) {
	b, _ := EncodeReply(sampleReply())
	seeds(f, b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeReply(b)
		if err != nil {
			return
		}
		if _, err := pack.Encode(r); err != nil {
			t.Fatal(err)
		}
	})
}

func seeds(f *testing.F, good []byte) {
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0xc6, 0xff, 0xff, 0xff, 0xff})
	f.Add(bytes.Repeat([]byte{0x91}, 4096))
	f.Add(append(bytes.Clone(good), 0))
}
