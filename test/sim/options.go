package sim

import (
	"fmt"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/run"
)

// options is one world, drawn from a seed. Each seed has its own mix, so that rare mixes happen.
type options struct {
	Seed     uint64
	Timing   domain.Timing
	Machines []machineOptions
	Runs     []runOptions
	Net      netOptions
	Faults   []fault       // those the nemesis may choose from; empty: nothing goes wrong
	Pace     time.Duration // mean time between two faults
	Between  float64       // chance that the hub dies between a step and the delivery of what it gave
	Faulty   time.Duration // how long the faults last
}

// machineOptions is a machine of the owner's.
type machineOptions struct {
	ID    domain.MachineID
	Slots int
	Speed float64       // samples per second and slot
	Clock float64       // how fast its clock runs
	Join  time.Duration // when it enrols
}

// runOptions is a run and when it is submitted.
type runOptions struct {
	ID   domain.RunID
	Spec run.Spec
	Data run.Dataset
	At   time.Duration
}

// netOptions is the weather on the links.
type netOptions struct {
	Lo, Hi time.Duration // delay of a message
	Loss   float64
	Twice  float64
	Late   float64 // chance of a delay of up to one and a half lease times
}

const batchSize = 5

// trainingData is what stands in the store as the packed data set: the fake trainer never looks at it.
var trainingData = []byte("samples of nothing in particular")

// draw makes the options of a seed. Quiet forces a world without faults.
func draw(seed uint64, quiet bool) options {
	l := newLuck(seed, streamOptions)
	o := options{Seed: seed}
	lease := []time.Duration{2, 3, 6, 12}[l.pick(4)] * time.Second
	o.Timing = domain.TimingOf(lease)
	o.drawRuns(l, lease)
	slow := l.between(0.04, 0.5) * lease.Seconds() // of a chunk on the slowest machine
	n := l.number(1, 6)
	for i := range n {
		m := machineOptions{ID: domain.MachineID(fmt.Sprintf("m%d", i)), Slots: l.number(1, 2), Clock: 1}
		m.Speed = float64(o.Runs[0].Spec.Chunk) / slow * l.between(1, 16)
		if l.chance(0.3) {
			m.Clock = l.between(0.99, 1.01)
		}
		if i > 0 && l.chance(0.2) {
			m.Join = l.span(0, 4*lease)
		}
		o.Machines = append(o.Machines, m)
	}
	o.drawDeadlines(l)
	o.Net.Lo = l.span(0, 5*time.Millisecond)
	o.Net.Hi = o.Net.Lo + l.span(0, o.Timing.Sync)
	if !quiet && !l.chance(0.1) {
		o.drawFaults(l, lease)
	}
	o.drawEnsemble(lease)
	return o
}

func (o *options) drawRuns(l luck, lease time.Duration) {
	for i := range l.number(1, 2) {
		s := run.Spec{
			Name: fmt.Sprintf("run %d", i), Seed: l.Uint64()>>1 | 1, Batch: batchSize, Chunk: batchSize * l.number(1, 4), Epochs: l.number(1, 3),
			Codec: []run.Codec{run.CodecFP32, run.CodecE3M0}[l.pick(2)], KeepEvery: 1, EvaluateEvery: l.number(0, 3),
		}
		drawCodecs(&s)
		d := run.Dataset{Samples: l.number(2*s.Chunk, 24*s.Chunk), Heldout: 20 * l.pick(2), Features: 4, Classes: 2, Block: 64}
		d.Blob, _ = packBlob(trainingData)
		if l.chance(0.5) {
			s.MaxChunksPerContribution = l.number(1, 4)
		}
		s.Round.Chunks = l.number(3, 16)
		o.Runs = append(o.Runs, runOptions{ID: domain.RunID(fmt.Sprintf("r%d", i)), Spec: s, Data: d, At: l.span(0, time.Duration(i)*3*lease)})
	}
}

// drawDeadlines gives some runs a deadline that is tight for the machines there are, and resolves the specs.
func (o *options) drawDeadlines(l luck) {
	speed := 0.0
	for _, m := range o.Machines {
		speed += m.Speed * float64(m.Slots)
	}
	for i := range o.Runs {
		r := &o.Runs[i]
		if l.chance(0.35) {
			ideal := float64(r.Spec.Round.Chunks*r.Spec.Chunk) / speed
			r.Spec.Round.Deadline = ideal*l.between(0.5, 2) + 4*o.Timing.Sync.Seconds()
		}
		s, err := run.Resolve(r.Spec, r.Data)
		must(err)
		r.Spec = s
	}
}

func (o *options) drawFaults(l luck, lease time.Duration) {
	if l.chance(0.6) {
		o.Net.Loss = l.between(0, 0.15)
	}
	if l.chance(0.5) {
		o.Net.Twice = l.between(0, 0.15)
	}
	if l.chance(0.4) {
		o.Net.Late = l.between(0, 0.03)
	}
	if l.chance(0.3) {
		o.Between = l.between(0, 0.01)
	}
	for f := range firstFaults {
		if l.chance(0.35) {
			o.Faults = append(o.Faults, f)
		}
	}
	o.Pace = l.span(lease/4, 3*lease)
	o.Faulty = l.span(3*lease, 14*lease)
	for f := firstFaults; f < faultCount; f++ { // behind the others, so that older seeds keep their meaning
		if l.chance(0.2) {
			o.Faults = append(o.Faults, f)
		}
	}
}

// String shows the options in a failure.
func (o options) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lease %v, faults for %v, one every %v: %v, between %.3f\n", o.Timing.Lease, o.Faulty, o.Pace, o.Faults, o.Between)
	fmt.Fprintf(&b, "links: delay %v to %v, loss %.3f, twice %.3f, late %.3f\n", o.Net.Lo, o.Net.Hi, o.Net.Loss, o.Net.Twice, o.Net.Late)
	for _, m := range o.Machines {
		fmt.Fprintf(&b, "machine %s: %d slots, %.1f samples/s, clock %.4f, joins at %v\n", m.ID, m.Slots, m.Speed, m.Clock, m.Join)
	}
	for _, r := range o.Runs {
		fmt.Fprintf(&b, "run %s at %v: %d samples, %d epochs, chunk %d, round %d, deadline %.2f, at most %d a contribution, codec %s, down %q, evaluate every %d, held out %d\n",
			r.ID, r.At, r.Data.Samples, r.Spec.Epochs, r.Spec.Chunk, r.Spec.Round.Chunks, r.Spec.Round.Deadline, r.Spec.MaxChunksPerContribution,
			r.Spec.Codec, r.Spec.CodecDown, r.Spec.EvaluateEvery, r.Data.Heldout)
	}
	return b.String()
}

// dataBlob stores the packed data set.
func dataBlob() (domain.Digest, []object) { return packBlob(trainingData) }

// digestOf is short for the digest of bytes.
func digestOf(b []byte) domain.Digest { return blob.Sum(b) }
