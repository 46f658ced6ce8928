package torch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/process"
	"tensorturn/agent/trainer/trainertest"
	"tensorturn/domain"
	"tensorturn/domain/permute"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

// ownScript is a script like an owner's; {model} and {more} are replaced.
const ownScript = `
import os, torch
from torch import nn
import torch.nn.functional as F
import tensorturn

torch.manual_seed(int(os.environ.get("TENSORTURN_SEED", 1)))
g = torch.Generator().manual_seed(3)
x = torch.randn(140, 6, generator=g); y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
train = torch.utils.data.TensorDataset(x[:100], y[:100])
model = {model}
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)

def evaluate(model):
    model.eval()
    z = model(x[100:])
    return {"accuracy": (z.argmax(1) == y[100:]).float().mean().item(), "loss": F.cross_entropy(z, y[100:]).item(), "samples": 40}

job = tensorturn.join(model, optimizer, train, evaluate=evaluate, predict=lambda m, x: m(x).softmax(1){join})
for bx, by in job.batches(batch_size=8):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(bx).float(), by)
    loss.backward()
    {step}
    job.log(loss=loss)
{more}
`

// script fills the small script in.
func script(parts ...string) string {
	all := map[string]string{"model": "nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))", "more": "", "join": "", "step": "optimizer.step()"}
	for i := 0; i < len(parts); i += 2 {
		all[parts[i]] = parts[i+1]
	}
	text := ownScript
	for name, part := range all {
		text = strings.ReplaceAll(text, "{"+name+"}", part)
	}
	return text
}

func TestScriptPassesTheSuite(t *testing.T) {
	python(t)
	trainertest.Suite(t, opener(t).Open, func(t *testing.T) trainer.Job { return scriptJob(t, script(), nil) })
}

// The order the helper works out is the pool's, at any place in it.
func TestOrderIsOurs(t *testing.T) {
	type order struct{ Seed, Epoch, N, Block, First, Count int }
	var cases []order
	var want [][]int
	for i := range 60 {
		n := 1 + i*i*7%401
		o := order{Seed: i * 977, Epoch: i % 5, N: n, Block: i * 13 % 90, First: i % n}
		o.Count = (n - o.First) / 2
		cases = append(cases, o)
		want = append(want, permute.New(uint64(o.Seed), o.Epoch, o.N, o.Block).Append([]int{}, o.First, o.Count))
	}
	in, _ := json.Marshal(cases)
	out := runScript(t, fmt.Sprintf("import json, tensorturn\nprint(json.dumps([tensorturn.Order(c['Seed'], c['Epoch'], c['N'], c['Block']).rows(c['First'], c['Count']) for c in json.loads('''%s''')]))", in))
	var got [][]int
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A script alone and its chunks one after another under an agent give the same bits.
func TestAloneIsTheSame(t *testing.T) {
	alone := strings.TrimSpace(runScript(t, script("more", `
import hashlib
print(hashlib.sha256(b"".join(bytes(memoryview(t.numpy()).cast("B")) for _, t in sorted(job._tensors().items()))).hexdigest())
`), "TENSORTURN_EPOCHS=2", "TENSORTURN_SEED=5"))
	var out bytes.Buffer
	job := scriptJob(t, script(), nil)
	m, err := trainertest.Plain(t.Context(), opener(t).Open, job, &out)
	if err != nil {
		t.Fatal(err)
	}
	if got := valuesDigest(t, out.Bytes()); got != alone {
		t.Errorf("alone %s, under an agent %s", alone, got)
	}
	if m.Samples != 40 || m.Accuracy < 0.5 {
		t.Errorf("%+v", m)
	}
}

// valuesDigest is the SHA-256 of all data without the header.
func valuesDigest(t *testing.T, file []byte) string {
	t.Helper()
	r, err := safetensors.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, tensor := range r.Tensors() {
		n, err := tensor.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		size += n
	}
	h := sha256.Sum256(file[int64(len(file))-size:])
	return hex.EncodeToString(h[:])
}

// layoutOf opens the script and lists what would travel.
func layoutOf(t *testing.T, text string) ([]string, error) {
	t.Helper()
	tr, err := opener(t).Open(t.Context(), scriptJob(t, text, nil))
	if err != nil {
		return nil, err
	}
	defer tr.Close()
	var names []string
	for _, tensor := range tr.Layout() {
		names = append(names, fmt.Sprint(tensor.Name, " ", tensor.DType, tensor.Shape))
	}
	return names, nil
}

// Each kind of tensor by its rule: what is trained travels as F32, what is tied has one name, what is frozen or a buffer
// shows only as a digest, prefixes of wrappers are gone.
func TestTensorKinds(t *testing.T) {
	python(t)
	const tied = `
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.frozen, self.table = nn.Linear(6, 16), nn.Linear(16, 16), nn.Embedding(3, 16)
        self.head = nn.Linear(16, 3, bias=False)
        self.head.weight = self.table.weight
        self.frozen.requires_grad_(False)
        self.register_buffer("ids", torch.arange(4))
    def forward(self, x):
        return self.head(self.frozen(self.inner(x).relu()))
`
	head := "import torch\nfrom torch import nn\n" + tied
	plain, err := layoutOf(t, head+script("model", "Tied()"))
	if err != nil {
		t.Fatal(err)
	}
	if len(plain) != 4 || !strings.HasPrefix(plain[3], "tensorturn.frozen.") || !strings.HasSuffix(plain[3], " F32[0]") {
		t.Fatalf("%q", plain)
	}
	if d := cmp.Diff([]string{"inner.bias F32[16]", "inner.weight F32[16 6]", "table.weight F32[3 16]"}, plain[:3]); d != "" {
		t.Error(d)
	}
	wrapped, err := layoutOf(t, head+`
class Wrap(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.module = inner
    def forward(self, x):
        return self.module(x)
`+script("model", "Wrap(Tied())"))
	if d := cmp.Diff(plain, wrapped); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	compiled, err := layoutOf(t, head+`
class Compiled(nn.Module): # named like what torch.compile and DistributedDataParallel give, one in the other
    def __init__(self, inner):
        super().__init__()
        self._orig_mod = inner
    def forward(self, x):
        return self._orig_mod(x)
class Parallel(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.module = inner
    def forward(self, x):
        return self.module(x)
`+script("model", "Parallel(Compiled(Tied()))"))
	if d := cmp.Diff(plain, compiled); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	thawed, err := layoutOf(t, strings.ReplaceAll(head, "torch.arange(4)", "torch.arange(4) + 1")+script("model", "Tied()"))
	if err != nil || thawed[3] == plain[3] {
		t.Errorf("another buffer is not noticed: %v %q", err, thawed)
	}
}

// BatchNorm: its statistics travel beside the weights under the names by which the merge knows them, its counter stays,
// and what was saved can be loaded.
func TestBatchNormTravels(t *testing.T) {
	names, err := layoutOf(t, script("model", "nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"0.bias F32[16]", "0.weight F32[16 6]", "1.bias F32[16]", "1.running_mean F32[16]", "1.running_var F32[16]", "1.weight F32[16]", "3.bias F32[3]", "3.weight F32[3 16]"}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
}

// bf16 weights travel widened and come back rounded to the same bits.
func TestHalfPrecisionRoundTrip(t *testing.T) {
	tr, err := opener(t).Open(t.Context(), scriptJob(t, script("model", "nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).bfloat16()", "join", ")\nx = x.bfloat16(); job.dataset.tensors = (x[:100], y[:100]"), nil))
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	var first, second bytes.Buffer
	for _, step := range []func() error{
		func() error { return tr.Init(t.Context()) },
		func() error { _, err := tr.Train(t.Context(), 0, nil); return err },
		func() error { return tr.Save(t.Context(), &first) },
		func() error { return tr.Load(t.Context(), bytes.NewReader(first.Bytes())) },
		func() error { return tr.Save(t.Context(), &second) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the bits changed on the way")
	}
	if got := tr.Layout()[0].DType; got != safetensors.F32 {
		t.Errorf("it travels as %s", got)
	}
}

// Each way a Python script fails, with its kind and words.
func TestScriptFailures(t *testing.T) {
	for _, c := range []struct {
		name string
		text string
		kind process.Kind
		why  string
	}{
		{"an exception", script("step", `raise KeyError("lr")`), process.KindScript, "KeyError: 'lr'"},
		{"host memory", script("step", `raise MemoryError("no room")`), process.KindMemory, "MemoryError: no room"},
		{"device memory", script("step", `raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")`), process.KindMemory, "CUDA out of memory"},
		{"device lost", script("step", `raise RuntimeError("CUDA error: unspecified launch failure")`), process.KindDevice, "CUDA error"},
		{"a NaN loss", script("step", `loss = loss * float("nan")`), process.KindDiverged, "the loss is nan"},
		{"leaving the loop", script("step", "break"), process.KindScript, "left in the middle of a chunk"},
		{"sys.exit", script("step", "import sys; sys.exit(0)"), process.KindScript, "left in the middle of a chunk"},
		{"os._exit", script("step", "os._exit(7)"), process.KindScript, "exit code 7"},
		{"a batch of its own", strings.ReplaceAll(script(), "batch_size=8", "batch_size=16"), process.KindScript, "batches of 16, the spec says batch: 8"},
		{"other data", strings.ReplaceAll(script(), "x[:100], y[:100]", "x[:99], y[:99]"), process.KindData, "has 99 samples, the spec says 100"},
		{"nothing to train", script("model", "nn.Linear(6, 3).requires_grad_(False)"), process.KindScript, ""},
		{"a module that is not there", "import nonesuch\n" + script(), process.KindMissing, "No module named 'nonesuch'"},
		{"a mistake in the text", "def f(:\n", process.KindScript, "SyntaxError"},
		{"a scheduler without a closed form", script("join", ", scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)"), process.KindScript, "ReduceLROnPlateau"},
	} {
		t.Run(c.name, func(t *testing.T) {
			python(t)
			tr, err := opener(t).Open(t.Context(), scriptJob(t, c.text, nil))
			if err == nil {
				defer tr.Close()
				if err = tr.Init(t.Context()); err == nil {
					_, err = tr.Train(t.Context(), 0, nil)
				}
			}
			var f *process.Failure
			if !errors.As(err, &f) || f.Kind != c.kind || !strings.Contains(f.Why, c.why) {
				t.Errorf("%v\nwant %s: %q", err, c.kind, c.why)
			}
		})
	}
}

// The rate is the one of the chunk's place in the run, whatever was trained before.
func TestSchedulerRunsOnTheSampleClock(t *testing.T) {
	rates := func(join string, chunks ...int) string {
		text := script("join", ", scheduler="+join, "step", `optimizer.step(); print("rate %.6f" % optimizer.param_groups[0]["lr"], flush=True); job.log(rate=optimizer.param_groups[0]["lr"])`)
		o := opener(t)
		tr, err := o.Open(t.Context(), scriptJob(t, text, func(s *run.Spec) { s.Batch, s.Chunk = 8, 8 }))
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Init(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, c := range chunks {
			if _, err := tr.Train(t.Context(), domain.ChunkID(c), nil); err != nil {
				t.Fatal(err)
			}
		}
		_ = tr.Close()
		return ratesIn(t, o)
	}
	for _, join := range []string{"torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 26)", "torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1 / (1 + k))", "lambda f: 1 - f"} {
		there, back := strings.Fields(rates(join, 0, 5, 20)), strings.Fields(rates(join, 20, 5, 0))
		if len(there) != 3 || there[0] != back[2] || there[1] != back[1] || there[2] != back[0] || there[0] == there[2] {
			t.Errorf("%s: %q forwards, %q backwards", join, there, back)
		}
	}
}

// Started to serve, join loads weights, answers predictions and does not return: what stands behind it in the script never
// runs, and it ends when it is closed.
func TestJoinServes(t *testing.T) {
	job := scriptJob(t, script("more", `print("join returned")`), nil)
	job.Serve = true
	o := opener(t)
	tr, err := o.Open(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		y, err := tr.Predict(t.Context(), make([]float32, 12))
		if err != nil || len(y) != 6 {
			t.Fatalf("%v, %v", y, err)
		}
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	for _, l := range o.Logs() {
		if b, _, err := o.ReadLog(l, 0, process.MaxLog); err != nil || strings.Contains(string(b), "join returned") {
			t.Errorf("%s, %v", b, err)
		}
	}
}

// An exception of predict= refuses the rows it came from, and the script goes on; out of memory it ends.
func TestPredictRefuses(t *testing.T) {
	job := scriptJob(t, script("model", `nn.Linear(6, 3)

def refuse(x):
    raise ValueError("too large") if x[0, 0] == 1 else RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
`, "join", " if x[0, 0] < 1 else refuse(x)"), nil)
	job.Serve = true
	tr, err := opener(t).Open(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	if err := tr.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	row := make([]float32, 6)
	row[0] = 1
	if _, err := tr.Predict(t.Context(), row); domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), "ValueError: too large") {
		t.Errorf("an exception: %v", err)
	}
	row[0] = 0
	if y, err := tr.Predict(t.Context(), row); err != nil || len(y) != 3 {
		t.Errorf("after it: %v, %v", y, err)
	}
	row[0] = 2
	var f *process.Failure
	if _, err := tr.Predict(t.Context(), row); !errors.As(err, &f) || f.Kind != process.KindMemory {
		t.Errorf("out of memory: %v", err)
	}
}

// Out of memory with halve=True: the next attempt of the run on this machine gets half of the batch, and a script that asks for
// its own size goes on with it; without, nothing changes.
func TestHalving(t *testing.T) {
	for join, want := range map[string]int{", halve=True": 4, "": 8} {
		text := script("join", join, "step", `
    if len(bx) > 4: raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    optimizer.step()`)
		o := opener(t)
		for attempt, fails := range []bool{true, want == 8} {
			tr, err := o.Open(t.Context(), scriptJob(t, text, nil))
			if err != nil {
				t.Fatal(err)
			}
			r, err := tr.Train(t.Context(), 0, nil)
			var f *process.Failure
			if fails && (!errors.As(err, &f) || f.Kind != process.KindMemory || strings.Contains(f.Next, "batches of 4") != (want == 4)) || !fails && (err != nil || r.Steps != 6) {
				t.Errorf("halve %q, attempt %d: %+v, %v", join, attempt, r, err)
			}
			_ = tr.Close()
		}
	}
}
