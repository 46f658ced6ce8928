package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/builtin"
	"tensorturn/domain"
	"tensorturn/domain/merge"
	"tensorturn/domain/permute"
	"tensorturn/domain/run"
)

// The model of the language experiments: 8 bytes of context, 22,848 parameters. Small on purpose: what is compared is
// ways of training it, each on the same tokens.
var languageModel = run.Model{Kind: run.ModelMLP, Context: 8, Embedding: 8, Hidden: []int{64}}

const (
	parameters = 22848
	chunkSteps = 5  // a chunk is so many steps
	smallBatch = 64 // samples a step of one machine
)

// arm is one way of training. Everything that is not here is the product's default.
type arm struct {
	name   string
	tokens int
	lr     float64
	alone  bool      // one trainer, no merges
	batch  int       // samples a step; 0: smallBatch
	speeds []float64 // of the machines, chunks per unit of time
	steps  int       // H: steps a machine would do in a round if all were equal
	eta    float64   // outer step; 0: the product's for so many rounds
	mu     float64
	codec  run.Codec // up; empty: fp32
	down   run.Codec
	lossy  bool // error feedback
	topk   bool // only the largest 64 of 4,096 differences are sent, what is left out is lost
	static bool // every machine takes as many chunks, whatever its speed
	shards bool // every machine has a part of the text of its own
	weigh  string
	die    float64 // chance that a machine's delta is lost
	reset  bool    // inner optimizers begin anew each round
	bad    string  // what the last machine sends
	open   bool    // no gate looks at deltas (a planted fault)
}

// figures are what a run gave.
type figures struct {
	Loss                    float64 // nats on the reported text
	Time                    float64 // simulated: chunks of a machine of speed 1
	Rounds                  int
	Up, Down                int64 // bytes of the deltas' and the increments' or bases' data, over all machines
	Deltas                  int
	Refused                 map[string]int
	Twice, Missing, Dropped int // chunks counted twice, not counted, deltas lost
}

// fleet is one run under way: machines with trainers of the product, and a hub's arithmetic.
type fleet struct {
	a        arm
	seed     uint64
	data     []packed // one, or one for each machine
	spec     []run.Spec
	trainers []trainer.Trainer
	luck     *permute.Source
	base     []byte
	momentum []byte
	residual []byte         // of the way down
	lost     map[int][]byte // residual of each machine's newest delta
	weight   map[int]int64  // its samples
	refusals map[int]int    // in a row
	average  float64        // of norm/√steps
	merged   int
	counted  map[domain.ChunkID]bool
	f        figures
}

func (f *fleet) open(ctx context.Context, i int) (trainer.Trainer, error) {
	p := f.data[min(i, len(f.data)-1)]
	return builtin.Open(ctx, trainer.Job{Run: "r-1", Spec: f.spec[min(i, len(f.spec)-1)], Dataset: p.data, Data: bytes.NewReader(p.raw)})
}

func specOf(a arm, seed uint64, d run.Dataset) (run.Spec, error) {
	batch := cmp.Or(a.batch, smallBatch)
	return run.Resolve(run.Spec{Seed: seed, Data: run.Data{Format: run.FormatText, Holdout: 0.5}, Model: languageModel, Epochs: 1,
		Batch: batch, Chunk: chunkSteps * batch, Optimizer: run.Optimizer{LR: a.lr, Beta1: 0.9, Beta2: 0.95}}, d)
}

// train runs an arm to its end and gives its last weights.
func train(ctx context.Context, c *corpus, a arm, seed uint64) ([]byte, figures, error) {
	f := &fleet{a: a, seed: seed, luck: permute.NewSource(seed, 77), lost: map[int][]byte{}, weight: map[int]int64{}, refusals: map[int]int{}, counted: map[domain.ChunkID]bool{}}
	f.f.Refused = map[string]int{}
	if err := f.prepare(c); err != nil {
		return nil, f.f, err
	}
	n := len(a.speeds)
	if a.alone {
		n = 1
	}
	for i := range n {
		t, err := f.open(ctx, i)
		if err != nil {
			return nil, f.f, err
		}
		f.trainers = append(f.trainers, t)
	}
	defer func() {
		for _, t := range f.trainers {
			_ = t.Close()
		}
	}()
	if err := f.trainers[0].Init(ctx); err != nil {
		return nil, f.f, err
	}
	if a.alone {
		return f.alone(ctx)
	}
	var w bytes.Buffer
	if err := f.trainers[0].Save(ctx, &w); err != nil {
		return nil, f.f, err
	}
	f.base = w.Bytes()
	err := f.rounds(ctx)
	return f.base, f.f, err
}

// prepare packs the text.
func (f *fleet) prepare(c *corpus) error {
	text, err := c.text(!f.a.shards)
	if err != nil {
		return err
	}
	parts := [][]byte{text}
	if f.a.shards {
		k := len(f.a.speeds)
		parts = nil
		for i := range k {
			parts = append(parts, text[i*len(text)/k:(i+1)*len(text)/k])
		}
	}
	for _, t := range parts {
		p, err := pack(t, 0, f.seed)
		if err != nil {
			return err
		}
		s, err := specOf(f.a, f.seed, p.data)
		if err != nil {
			return err
		}
		f.data, f.spec = append(f.data, p), append(f.spec, s)
	}
	return nil
}

func (f *fleet) alone(ctx context.Context) ([]byte, figures, error) {
	t := f.trainers[0]
	for n := range f.chunks() {
		c := f.place(n, 0)
		if _, err := t.Train(ctx, c, nil); err != nil {
			return nil, f.f, err
		}
		f.f.Time++
	}
	var w bytes.Buffer
	err := t.Save(ctx, &w)
	return w.Bytes(), f.f, err
}

// chunks is how many the arm trains on.
func (f *fleet) chunks() int { return max(f.a.tokens/f.spec[0].Chunk, 1) }

// place is the chunk of a machine's text that the arm's chunk n is: an even choice of all, so that n stands where it does
// on the run's clock, and with it the learning rate.
func (f *fleet) place(n, machine int) domain.ChunkID {
	i := min(machine, len(f.spec)-1)
	return domain.ChunkID(n * run.TotalChunks(f.spec[i], f.data[i].data) / f.chunks())
}

// work is a machine's part of a round.
type work struct {
	machine int
	chunks  []domain.ChunkID
	samples int64
	steps   int
	local   []byte
}

// rounds trains and merges until every chunk is counted: each round takes an even share, and what was lost comes again.
func (f *fleet) rounds(ctx context.Context) error {
	total := f.chunks()
	share := max(len(f.a.speeds)*f.a.steps/chunkSteps, 1)
	planned := (total + share - 1) / share
	eta, mu := f.a.eta, f.a.mu
	if eta == 0 {
		eta, mu = merge.OuterDefaults(planned)
	}
	next := 0
	var again []domain.ChunkID
	for next < total || len(again) > 0 {
		own := 0
		if left := (total - next + share - 1) / share; left > 0 {
			own = (total - next + left - 1) / left
		}
		chunks := again
		for range own {
			chunks = append(chunks, domain.ChunkID(next))
			next++
		}
		var err error
		if again, err = f.round(ctx, chunks, eta, mu); err != nil {
			return fmt.Errorf("round %d: %w", f.f.Rounds+1, err)
		}
		f.f.Rounds++
		if f.f.Rounds > 4*planned+10 {
			return fmt.Errorf("%d rounds and no end", f.f.Rounds)
		}
	}
	if !f.a.shards {
		f.f.Missing = total - len(f.counted)
	}
	return nil
}

// assign gives every chunk to a machine: to the one that is free first, or to each as many.
func (f *fleet) assign(chunks []domain.ChunkID) []work {
	ws := make([]work, len(f.a.speeds))
	free := make([]float64, len(ws))
	for i := range ws {
		ws[i].machine = i
	}
	for n, c := range chunks {
		k := -1
		for i := range ws {
			if f.refusals[i] >= run.MaxRefusals {
				continue // quarantined
			}
			if k < 0 || free[i] < free[k] {
				k = i
			}
		}
		if f.a.static {
			k = n % len(ws)
		}
		ws[k].chunks = append(ws[k].chunks, c)
		free[k] += 1 / f.a.speeds[k]
	}
	longest := 0.0
	for _, t := range free {
		longest = max(longest, t)
	}
	f.f.Time += longest
	return ws
}

// round trains the chunks and merges what came of them. It gives those that must come again.
func (f *fleet) round(ctx context.Context, chunks []domain.ChunkID, eta, mu float64) (again []domain.ChunkID, err error) {
	from := domain.Digest(fmt.Sprintf("%064x", f.f.Rounds+1))
	var inputs []merge.Input
	var done []work
	for _, w := range f.assign(chunks) {
		if len(w.chunks) == 0 {
			continue
		}
		if err := f.local(ctx, &w); err != nil {
			return nil, err
		}
		if f.a.die > 0 && f.luck.Float64() < f.a.die {
			again = append(again, w.chunks...)
			f.f.Dropped++
			continue
		}
		delta, err := f.delta(w, from)
		if err != nil {
			return nil, err
		}
		if why := f.judge(w, delta, from); why != "" {
			f.f.Refused[why]++
			f.refusals[w.machine]++
			again = append(again, w.chunks...)
			continue
		}
		f.refusals[w.machine] = 0
		f.f.Deltas++
		for _, c := range w.chunks {
			if f.counted[c] && !f.a.shards {
				f.f.Twice++
			}
			f.counted[c] = true
		}
		inputs = append(inputs, merge.Input{Delta: bytes.NewReader(delta), Codec: merge.Codec(f.codec()), Samples: f.sway(w)})
		done = append(done, w)
	}
	if len(inputs) == 0 {
		return again, nil
	}
	f.nova(done, inputs, from)
	return again, f.merge(inputs, from, eta, mu)
}

func (f *fleet) codec() run.Codec { return cmp.Or(f.a.codec, run.CodecFP32) }

// local trains a machine's chunks from the base.
func (f *fleet) local(ctx context.Context, w *work) (err error) {
	i := w.machine
	if f.a.reset {
		if err := f.trainers[i].Close(); err != nil {
			return err
		}
		if f.trainers[i], err = f.open(ctx, i); err != nil {
			return err
		}
	}
	t := f.trainers[i]
	if err := t.Load(ctx, bytes.NewReader(f.base)); err != nil {
		return err
	}
	spec, data := f.spec[min(i, len(f.spec)-1)], f.data[min(i, len(f.data)-1)].data
	for _, n := range w.chunks {
		c := f.place(int(n), i)
		r, err := t.Train(ctx, c, nil)
		if err != nil {
			return err
		}
		w.samples += int64(run.ChunkSamples(spec, data, c))
		w.steps += r.Steps
	}
	var b bytes.Buffer
	err = t.Save(ctx, &b)
	w.local = b.Bytes()
	return err
}

// merge is the hub's arithmetic on the round's deltas.
func (f *fleet) merge(inputs []merge.Input, from domain.Digest, eta, mu float64) error {
	var base, momentum, residual, increment bytes.Buffer
	job := merge.Job{Base: bytes.NewReader(f.base), BaseDigest: from, Inputs: inputs, Eta: eta, Mu: mu, NextBase: &base, NextMomentum: &momentum}
	if f.momentum != nil {
		job.Momentum = bytes.NewReader(f.momentum)
	}
	if f.a.down != "" {
		job.Down = merge.Down{Codec: merge.Codec(f.a.down), Increment: &increment, NextResidual: &residual}
		if f.residual != nil {
			job.Down.Residual = bytes.NewReader(f.residual)
		}
	}
	if _, err := merge.Merge(job); err != nil {
		return err
	}
	if f.a.down != "" { // the machines' base is what the increment makes of theirs
		var grown bytes.Buffer
		if err := merge.ApplyIncrement(merge.Codec(f.a.down), bytes.NewReader(f.base), bytes.NewReader(increment.Bytes()), from, &grown); err != nil {
			return err
		}
		if !bytes.Equal(grown.Bytes(), base.Bytes()) {
			return fmt.Errorf("the increment does not lead to the next base")
		}
		f.f.Down += int64(len(f.a.speeds)) * payloadOf(increment.Bytes())
		f.residual = residual.Bytes()
	} else {
		f.f.Down += int64(len(f.a.speeds)) * payloadOf(base.Bytes())
	}
	f.base, f.momentum = base.Bytes(), momentum.Bytes()
	f.merged++
	return nil
}

// payloadOf is the length of a safetensors file without its header.
func payloadOf(file []byte) int64 {
	return int64(len(file)) - 8 - int64(binary.LittleEndian.Uint64(file))
}

// values gives the weights of a file of float32 in file order, and puts others there.
func values(file []byte) []float32 {
	raw := file[len(file)-4*parameters:]
	vs := make([]float32, parameters)
	for i := range vs {
		vs[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return vs
}

func withValues(file []byte, vs []float32) []byte {
	out := bytes.Clone(file)
	raw := out[len(out)-4*parameters:]
	for i, v := range vs {
		binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
	}
	return out
}

// evaluator measures weights on the reported and on the validation text.
type evaluator struct{ test, validation trainer.Trainer }

func newEvaluator(ctx context.Context, c *corpus) (*evaluator, error) {
	e := &evaluator{}
	for _, x := range []struct {
		text []byte
		to   *trainer.Trainer
	}{{c.test, &e.test}, {c.validation, &e.validation}} {
		p, err := pack(x.text, 0.9, 1)
		if err != nil {
			return nil, err
		}
		s, err := specOf(arm{lr: 1e-3}, 1, p.data)
		if err != nil {
			return nil, err
		}
		if *x.to, err = builtin.Open(ctx, trainer.Job{Run: "r-1", Spec: s, Dataset: p.data, Data: bytes.NewReader(p.raw)}); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func loss(ctx context.Context, t trainer.Trainer, weights []byte) (float64, error) {
	if err := t.Load(ctx, bytes.NewReader(weights)); err != nil {
		return 0, err
	}
	m, err := t.Evaluate(ctx, nil)
	return m.Loss, err
}
