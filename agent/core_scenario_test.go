package agent

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// TestScenarios plays testdata/core/*.txt: one input per block, the effects below it. A reply answers the sync in
// flight unless it names another counter; at= moves the clock, at=next to the time Core asked for.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/core", func(t *testing.T, path string) {
		w := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return w.run(t, d)
		})
	})
}

// script is the world of one scenario file.
type script struct {
	core    *Core
	now     time.Duration
	counter uint64 // of the newest sync
}

func (w *script) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	if d.Cmd == "start" {
		w.core = NewCore(CoreConfig{Incarnation: "i-1", Slots: number(d, "slots", 1), Seed: 1, RenewAfter: 12 * time.Hour})
		w.now, w.counter = 0, 0
		if epoch := number(d, "found", 0); epoch > 0 { // chunks 0 to n-1, all snapshots
			k := Kept{Run: "r", Epoch: domain.Epoch(epoch), Round: 1, Number: 1}
			for i := range number(d, "chunks", 1) {
				k.Trained = append(k.Trained, wire.TrainedChunk{Chunk: domain.ChunkID(i), Steps: 4, Seconds: 2, Loss: 0.5})
				k.Boundaries = append(k.Boundaries, i+1)
			}
			w.core.Found(0, k)
		}
		return w.play(Tick{})
	}
	if w.core == nil {
		t.Fatal("a scenario begins with start")
	}
	w.clock(t, d)
	if d.Cmd == "next" {
		return fmt.Sprintf("in %v\n", (w.core.Next() - w.now).Round(time.Millisecond))
	}
	return w.play(w.input(t, d))
}

func (w *script) clock(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	switch at := text(d, "at", ""); at {
	case "":
	case "next":
		w.now = max(w.now, w.core.Next())
	default:
		to, err := time.ParseDuration(at)
		if err != nil || to < w.now {
			t.Fatalf("%s: at=%s at %v: %v", d.Pos, at, w.now, err)
		}
		w.now = to
	}
}

func (w *script) input(t *testing.T, d *datadriven.TestData) Input {
	t.Helper()
	slot, epoch := number(d, "slot", 0), domain.Epoch(number(d, "epoch", 7))
	switch d.Cmd {
	case "tick":
		return Tick{}
	case "woken":
		return Woken{}
	case "stop":
		return StopRequested{}
	case "sync-failed":
		return SyncFailed{Counter: uint64(number(d, "counter", int(w.counter)))}
	case "credential-saved":
		return CredentialSaved{RenewAfter: 12 * time.Hour}
	case "reply":
		return Replied{Counter: uint64(number(d, "counter", int(w.counter))), Reply: reply(t, d)}
	case "prepared":
		return Prepared{Slot: slot, Epoch: epoch}
	case "moved":
		return Moved{Slot: slot, Epoch: epoch, Bytes: int64(number(d, "bytes", 1))}
	case "stepped":
		return Stepped{Slot: slot, Epoch: epoch, Steps: number(d, "steps", 1), Samples: number(d, "samples", 32), Seconds: 1, Loss: 0.5}
	case "trained":
		return ChunkTrained{Slot: slot, Epoch: epoch, Chunk: domain.ChunkID(number(d, "chunk", 0)), Samples: 128, Steps: 4, Seconds: 2, Loss: 0.5}
	case "delta-made":
		return DeltaMade{Slot: slot, Epoch: epoch, Number: number(d, "number", 1), Boundary: number(d, "boundary", 0), Blob: domain.Digest(text(d, "blob", "d1"))}
	case "uploaded":
		return Uploaded{Slot: slot, Epoch: epoch, Blob: domain.Digest(text(d, "blob", "d1"))}
	case "reset-done":
		return ResetDone{Slot: slot, Epoch: epoch, Boundary: number(d, "boundary", 0)}
	case "init-done":
		return InitDone{Slot: slot, Epoch: epoch, Base: domain.Digest(text(d, "base", "b0")), Layout: "l", Params: 100}
	case "evaluated":
		return Evaluated{Slot: slot, Epoch: epoch, Samples: 100, Accuracy: 0.9, Loss: 0.3}
	case "task-error":
		return TaskError{Slot: slot, Epoch: epoch, Error: text(d, "error", "boom")}
	case "transfer-error":
		return TransferError{Slot: slot, Epoch: epoch, Error: "link", Local: d.HasArg("local")}
	case "kept":
		return MemberKept{Slot: slot, Epoch: epoch, Blob: domain.Digest(text(d, "blob", "")), Bytes: int64(number(d, "bytes", 0))}
	case "finished":
		return MemberFinished{Slot: slot, Epoch: epoch, Weights: domain.Digest(text(d, "weights", "w1")), Layout: "l", Params: 100}
	case "predicted":
		return MemberPredicted{Slot: slot, Epoch: epoch, Outputs: run.MemberOutputs{Blob: domain.Digest(text(d, "blob", "o1")), Rows: 10, Classes: 2, Accuracy: 0.9, Loss: 0.3}}
	case "resent":
		return Resent{Blob: domain.Digest(text(d, "blob", "")), Missing: d.HasArg("missing")}
	case "resend-failed":
		return ResendFailed{Blob: domain.Digest(text(d, "blob", ""))}
	}
	t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	return nil
}

// play steps the core and prints the effects.
func (w *script) play(in Input) string {
	var b strings.Builder
	for _, e := range w.core.Step(w.now, in) {
		if s, ok := e.(SendSync); ok {
			w.counter = s.Request.Counter
		}
		b.WriteString(line(e) + "\n")
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// reply reads the hub's word: one line per slot, and lines for what belongs to no slot.
func reply(t *testing.T, d *datadriven.TestData) *wire.SyncReply {
	t.Helper()
	r := &wire.SyncReply{Interval: 5, Lease: 120, Stop: d.HasArg("stop"), Credential: text(d, "credential", ""), Head: []byte(text(d, "head", ""))}
	if d.HasArg("error") {
		r.Error = &wire.Error{Kind: domain.KindUnavailable, Why: text(d, "error", "")}
	}
	for _, l := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		word, rest, _ := strings.Cut(l, " ")
		switch word {
		case "":
		case "slot":
			r.Slots = append(r.Slots, desire(t, d, rest))
		case "wanted":
			for _, x := range strings.Fields(rest) {
				r.Wanted = append(r.Wanted, domain.Digest(x))
			}
		case "merged":
			id, round, _ := strings.Cut(rest, " ")
			r.Merged = append(r.Merged, wire.MergedRound{Run: domain.RunID(id), Round: integer(t, round)})
		default:
			t.Fatalf("%s: unknown line %q", d.Pos, l)
		}
	}
	return r
}

// desire reads "0 train run=r epoch=7 round=1 base=b0 number=1 claims=0,1 contribute cut=1 done nojob".
func desire(t *testing.T, d *datadriven.TestData, s string) wire.SlotDesire {
	t.Helper()
	index, rest, _ := strings.Cut(s, " ")
	out := wire.SlotDesire{Index: integer(t, index)}
	if rest == "empty" {
		return out
	}
	out.Run, out.Epoch, out.Round, out.Base, out.Number = "r", 7, 1, "b0", 1
	out.Job = &wire.Job{Spec: run.Spec{Codec: run.CodecE3M0}, Layout: "l"}
	for _, f := range strings.Fields(rest) {
		key, value, _ := strings.Cut(f, "=")
		switch key {
		case "train", "init", "evaluate":
			out.Unit = run.Unit(key)
		case "member":
			out.Unit, out.Base, out.Member = run.UnitMember, "", integer(t, value)
			out.Job = memberJob()
		case "saved":
			out.Saved = integer(t, value)
		case "recorded":
			out.Trained = true
		case "run":
			out.Run = domain.RunID(value)
		case "epoch":
			out.Epoch = domain.Epoch(integer(t, value))
		case "round":
			out.Round = integer(t, value)
		case "base":
			out.Base = domain.Digest(value)
		case "number":
			out.Number = integer(t, value)
		case "claims":
			for _, c := range strings.Split(value, ",") {
				out.Claims = append(out.Claims, domain.ChunkID(integer(t, c)))
			}
		case "contribute":
			out.Contribute = true
		case "cut":
			k := integer(t, value)
			out.Cut = &k
		case "adopt": // adopt=LEASE:CHUNKS
			lease, keep, _ := strings.Cut(value, ":")
			out.Adopt = &wire.Adopt{Late: domain.Epoch(integer(t, lease)), Keep: integer(t, keep)}
		case "done":
			out.Done = true
		case "nojob":
			out.Job = nil
		default:
			t.Fatalf("%s: unknown word %q", d.Pos, f)
		}
	}
	return out
}

// memberJob is a member of two epochs of two chunks, kept every minute.
func memberJob() *wire.Job {
	own := true
	return &wire.Job{Spec: run.Spec{Mode: run.ModeEnsemble, Seed: 1, Batch: 128, Chunk: 128, Epochs: 2,
		Ensemble: &run.Ensemble{Members: 3, Every: 60, Recipe: run.Recipe{Seed: &own}}}, Data: run.Dataset{Samples: 256, Block: 256}}
}

func text(d *datadriven.TestData, key, otherwise string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return a.Vals[0]
		}
	}
	return otherwise
}

func number(d *datadriven.TestData, key string, otherwise int) int {
	n, err := strconv.Atoi(text(d, key, strconv.Itoa(otherwise)))
	if err != nil {
		panic(fmt.Sprintf("%s: %s: %v", d.Pos, key, err))
	}
	return n
}

func integer(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
