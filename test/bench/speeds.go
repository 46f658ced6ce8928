package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/test/kit"
)

// The pool of the first section: speeds 1:2:4:8 by throttles of the same code. The fastest uses a fifth of a core and all
// four together less than two fifths, so that two cores are shared by waiting and not by fighting.
const (
	speedsLease    = 6 * time.Second // as in the demo
	speedsUnit     = 0.025           // of a core: the slowest slot
	speedsLimit    = 1.10            // of the ideal time
	speedsPatience = 3 * time.Minute // for one run, which takes one on an idle machine
	samplesChunk   = 960             // 30 steps of 32: 1.3 s of the slowest slot
)

var speedsPool = []struct {
	name   string
	weight int // speed as a multiple of the slowest
}{{"one", 1}, {"two", 2}, {"four", 4}, {"eight", 8}}

// speedsSize says how much is trained, in chunks of the slowest slot: its share of a round, enough to stay above ten when
// others steal from it, and its solo.
type speedsSize struct{ perRound, rounds, solo int }

func (b *bench) speedsSize() speedsSize {
	if b.quick {
		return speedsSize{perRound: 3, rounds: 2, solo: 2}
	}
	return speedsSize{perRound: 14, rounds: 4, solo: 4}
}

// speeds trains on four unequal slots and compares the time with the ideal: all samples over the sum of the speeds that
// the slots have alone, each measured in runs of its own before and after, since a machine that others use too drifts.
// Each pool is new, so that the measured run begins without a known speed.
func (b *bench) speeds(d *bed) {
	size := b.speedsSize()
	data := writeTable(d, 12_000)
	solo := map[string]*soloSpeed{}
	for _, m := range speedsPool {
		solo[m.name] = &soloSpeed{}
	}
	alone := func() { // in a bed of its own: its hub is gone when the next pool begins
		d.Must(inBed(b.talk, func(d *bed) { b.solos(d, data, size, solo) }))
	}
	alone()
	var together *pooled
	d.Must(inBed(b.talk, func(d *bed) { together = b.together(d, data, size) }))
	alone()
	b.reportSpeeds(together, solo)
}

// soloSpeed is what a slot trains alone, each time it was measured, in samples per second.
type soloSpeed struct{ each []float64 }

func (s *soloSpeed) mean() float64 {
	sum := 0.0
	for _, x := range s.each {
		sum += x
	}
	return sum / float64(len(s.each))
}

// pooled is the measured run.
type pooled struct {
	*story
	names map[domain.MachineID]string
	cpu   time.Duration // of hub and agents
}

// together trains on all slots.
func (b *bench) together(d *bed, data string, size speedsSize) *pooled {
	p := b.pool(d)
	total := 0
	for _, m := range speedsPool {
		total += m.weight
		p.StartAgent(m.name, throttle(m.weight)...)
	}
	chunks := size.perRound * total
	before := cpuOf()
	id := p.Submit(speedsSpec(data, chunks, chunks*size.rounds))
	awaitEnd(d, p, id)
	cpu := cpuOf() - before
	return &pooled{story: readStory(d, p, id), names: machineNames(d, p), cpu: cpu}
}

// pool starts a new hub.
func (b *bench) pool(d *bed) *kit.Pool {
	bin, err := filepath.Abs(b.bin)
	d.Must(err)
	if _, err := os.Stat(bin); err != nil {
		d.Fatalf("%v: build it first with make build", err)
	}
	p := kit.NewPool(d, bin, speedsLease)
	p.StartHub()
	return p
}

// awaitEnd waits until the run is completed. It asks seldom: every question costs the hub a handshake, and following the
// run's facts one by one would cost it as much as all else.
func awaitEnd(d *bed, p *kit.Pool, id domain.RunID) {
	const every = 500 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < speedsPatience; <-tick.C {
		r, ok := p.Show(id)
		switch {
		case ok && r.Phase == run.PhaseCompleted:
			return
		case ok && r.Phase.Ended():
			d.Fatalf("the run is %s: %s", r.Phase, r.Reason)
		}
	}
	d.Fatalf("run %s has not ended within %s", id, speedsPatience)
}

func throttle(weight int) []string {
	return []string{"--throttle", fmt.Sprint(speedsUnit * float64(weight))}
}

// solos adds each machine's samples per second when it trains alone: by its own clock, over the chunks behind the first.
func (b *bench) solos(d *bed, data string, size speedsSize, solo map[string]*soloSpeed) {
	p := b.pool(d)
	for _, m := range speedsPool {
		agent := p.StartAgent(m.name, throttle(m.weight)...)
		chunks := size.solo * m.weight
		id := p.Submit(speedsSpec(data, chunks, chunks))
		awaitEnd(d, p, id)
		s := readStory(d, p, id)
		agent.Kill()
		p.Await("the hub to miss "+m.name, func() bool {
			got, ok := p.Machine(m.name)
			return ok && got.Standing != "online"
		})
		samples, seconds := 0, 0.0
		for _, l := range s.slots {
			for _, c := range l.trained[1:] {
				samples, seconds = samples+c.samples, seconds+c.seconds
			}
		}
		solo[m.name].each = append(solo[m.name].each, float64(samples)/seconds)
	}
}

// speedsSpec is a run of at least so many chunks, in whole epochs.
func speedsSpec(data string, perRound, chunks int) string {
	const perEpoch = 10 // chunks of samplesChunk in the training part
	epochs := (chunks + perEpoch - 1) / perEpoch
	return fmt.Sprintf("name: speeds\ndata: {path: %s, holdout: 0.2}\nmodel: {kind: mlp, hidden: [128, 128]}\nbatch: 32\nepochs: %d\nchunk: %d\nround: {chunks: %d}\nkeep_every: 1\n",
		data, epochs, samplesChunk, perRound)
}

// writeTable writes a classification table of 20 columns: ten clouds of points, made by a small generator.
func writeTable(d *bed, rows int) string {
	const columns = 20
	var out strings.Builder
	for j := range columns {
		fmt.Fprintf(&out, "x%d,", j)
	}
	out.WriteString("label\n")
	x := uint64(1)
	draw := func() float64 {
		x = x*6364136223846793005 + 1442695040888963407
		return float64(x>>40) / (1 << 24)
	}
	for i := range rows {
		label := i % 10
		for j := range columns {
			fmt.Fprintf(&out, "%.3f,", draw()+draw()+float64(label*(j%3)%7)*0.2)
		}
		fmt.Fprintf(&out, "c%d\n", label)
	}
	file := filepath.Join(d.TempDir(), "clouds.csv")
	d.Must(os.WriteFile(file, []byte(out.String()), 0o600))
	return file
}

// machineNames maps machines to the names they were given.
func machineNames(d *bed, p *kit.Pool) map[domain.MachineID]string {
	names := map[domain.MachineID]string{}
	for _, m := range speedsPool {
		got, ok := p.Machine(m.name)
		if !ok {
			d.Fatalf("the hub does not know machine %s", m.name)
		}
		names[got.ID] = m.name
	}
	return names
}
