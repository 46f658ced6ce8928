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
	return speedsSize{perRound: 14, rounds: 4, solo: 6}
}

// speeds trains on four unequal slots and compares the time with the ideal: all samples over the sum of the speeds that
// the slots have alone, each measured in a run of its own before. Each pool is new, so that the measured run begins
// without a known speed.
func (b *bench) speeds(d *bed) {
	size := b.speedsSize()
	data := writeTable(d, 12_000)
	var solo map[string]float64
	d.must(inBed(b.talk, func(d *bed) { solo = b.solos(d, data, size) })) // its hub is gone when the pool begins
	total := 0
	for _, m := range speedsPool {
		total += m.weight
	}
	p := b.pool(d)
	for _, m := range speedsPool {
		p.StartAgent(m.name, throttle(m.weight)...)
	}
	chunks := size.perRound * total
	before := cpuOf()
	id := p.Submit(speedsSpec(data, chunks, chunks*size.rounds))
	awaitEnd(d, p, id)
	s := readStory(d, p, id)
	names := machineNames(d, p)
	b.reportSpeeds(d, s, solo, names, cpuOf()-before)
}

// pool starts a new hub.
func (b *bench) pool(d *bed) *kit.Pool {
	bin, err := filepath.Abs(b.bin)
	d.must(err)
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

// solos gives each machine's samples per second when it trains alone, by name: by its own clock, over the chunks behind
// the first.
func (b *bench) solos(d *bed, data string, size speedsSize) map[string]float64 {
	p := b.pool(d)
	speeds := map[string]float64{}
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
		speeds[m.name] = float64(samples) / seconds
	}
	return speeds
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
	d.must(os.WriteFile(file, []byte(out.String()), 0o600))
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
