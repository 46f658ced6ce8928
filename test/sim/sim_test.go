package sim

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seedsFlag = flag.Int("seeds", 100, "how many seeds to simulate")
	firstFlag = flag.Uint64("first", 1, "the first seed")
	seedFlag  = flag.Uint64("seed", 0, "simulate this one alone")
	traceFlag = flag.Bool("trace", false, "print the whole trace of the one seed")
)

// TestMain gives the collector less to do: worlds are small and short-lived.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// leastMarks and mostMarks are the shares of the marks that 100 and 2,000 seeds must reach.
const (
	leastMarks = 0.8
	mostMarks  = 0.95
)

// TestSeeds plays the seeds that found something, then as many others as asked for.
func TestSeeds(t *testing.T) {
	if *seedFlag != 0 {
		t.Skip("one seed is asked for")
	}
	seeds := knownSeeds(t)
	for i := range *seedsFlag {
		seeds = append(seeds, *firstFlag+uint64(i))
	}
	began := time.Now()
	outcomes := playAll(draws(seeds))
	var hit [markCount]int
	var virtual time.Duration
	var records uint64
	events, slowest := 0, 0
	for i, o := range outcomes {
		if o.healing > outcomes[slowest].healing {
			slowest = i
		}
		if o.err != nil {
			t.Errorf("seed %d: %v", seeds[i], o.err)
		}
		for m, n := range o.marks {
			if n > 0 {
				hit[m]++
			}
		}
		virtual, records, events = virtual+o.virtual, records+o.records, events+o.events
	}
	t.Logf("%d seeds in %v: %v of virtual time, %d records, %d events", len(seeds), time.Since(began).Round(time.Millisecond), virtual.Round(time.Second), records, events)
	t.Logf("longest healing: %v of seed %d", outcomes[slowest].healing.Round(time.Millisecond), seeds[slowest])
	reached := 0
	for m, n := range hit {
		if n > 0 {
			reached++
		}
		t.Logf("%4d seeds: %v", n, mark(m))
	}
	least := leastMarks
	if *seedsFlag >= 2000 {
		least = mostMarks
	}
	if *seedsFlag >= 100 && float64(reached) < least*float64(markCount) {
		t.Errorf("the seeds reach %d of %d situations", reached, markCount)
	}
}

// TestSeed plays one seed: make sim SEED=7.
func TestSeed(t *testing.T) {
	if *seedFlag == 0 {
		t.Skip("no seed is asked for")
	}
	var out io.Writer
	if *traceFlag {
		out = os.Stdout
	}
	o := play(draw(*seedFlag, false), wrongNothing, out)
	if o.err != nil {
		t.Fatal(o.err)
	}
	t.Logf("seed %d ends after %v with %d records, trace %s", *seedFlag, o.virtual, o.records, o.digest)
}

// TestSameSeedSameTrace plays seeds twice.
func TestSameSeedSameTrace(t *testing.T) {
	opts := draws([]uint64{1, 2, 3, 4, 5, 6})
	a, b := playAll(opts), playAll(opts)
	for i := range opts {
		if a[i].digest != b[i].digest {
			t.Errorf("seed %d gives the traces %s and %s", opts[i].Seed, a[i].digest, b[i].digest)
		}
	}
}

// TestQuietWorlds: where nothing goes wrong nothing is lost, refused or suspected.
func TestQuietWorlds(t *testing.T) {
	var opts []options
	for seed := uint64(1); seed <= 8; seed++ {
		opts = append(opts, draw(seed, true))
	}
	for i, o := range playAll(opts) {
		if o.err != nil {
			t.Errorf("seed %d without faults: %v", opts[i].Seed, o.err)
		}
	}
}

// TestOutagesOfTheHubCostNoLease: agents go on computing, and nothing expires before everybody could speak again.
func TestOutagesOfTheHubCostNoLease(t *testing.T) {
	var opts []options
	for seed := uint64(1); seed <= 12; seed++ {
		o := draw(seed, true)
		o.Faults, o.Pace, o.Faulty = []fault{faultHub, faultFreeze}, 2*o.Timing.Lease, 20*o.Timing.Lease
		opts = append(opts, o)
	}
	outages := 0
	for i, o := range playAll(opts) {
		if outages += o.marks[markHeldRestart]; o.err != nil || o.expired > 0 {
			t.Errorf("seed %d: %d leases expired, %v", opts[i].Seed, o.expired, o.err)
		}
	}
	if outages == 0 {
		t.Error("the hub never started again while leases were held")
	}
}

// TestKilledAgentsLeaveTheirWork: what a killed process had trained is found by the next one and counted, again and again.
func TestKilledAgentsLeaveTheirWork(t *testing.T) {
	var opts []options
	for seed := uint64(1); seed <= 12; seed++ {
		o := draw(seed, true)
		o.Faults, o.Pace, o.Faulty = []fault{faultAgent}, o.Timing.Lease/8, 20*o.Timing.Lease
		opts = append(opts, o)
	}
	adopted := 0
	for i, o := range playAll(opts) {
		if adopted += o.marks[markLeftAdopted]; o.err != nil {
			t.Errorf("seed %d: %v", opts[i].Seed, o.err)
		}
	}
	t.Logf("work of killed processes was adopted %d times", adopted)
	if adopted < 10 {
		t.Errorf("work of killed processes was adopted %d times", adopted)
	}
}

// TestCheckersSee builds a defect into the simulator: the checker that is meant to see it must say so.
func TestCheckersSee(t *testing.T) {
	for _, c := range []struct {
		what wrong
		says string
	}{
		{wrongStale, "counts delta"},
		{wrongForget, "is not the fold of the log"},
		{wrongDouble, "twice"},
		{wrongSeed, "training them gives"},
		{wrongRewrite, "has changed"},
		{wrongFrozen, "is not the fold of the log"},
		{wrongLitter, "nobody names it"},
		{wrongStuck, "no end within"},
		{wrongLeak, "a secret"},
	} {
		t.Run(string(c.what), func(t *testing.T) {
			last := "nothing"
			for seed := uint64(1); seed <= 40; seed++ {
				opt := draw(seed, false)
				if c.what == wrongStale || c.what == wrongStuck {
					alone(&opt)
				}
				o := play(opt, c.what, nil)
				if o.err == nil {
					continue
				}
				if last, _, _ = strings.Cut(o.err.Error(), "\n"); strings.Contains(last, c.says) {
					return
				}
			}
			t.Errorf("no checker says %q; the last one said: %s", c.says, last)
		})
	}
}

// alone leaves one slot and a bad link: what a lease loses there, the same slot gets again.
func alone(o *options) {
	o.Machines = o.Machines[:1]
	o.Machines[0].Slots, o.Machines[0].Join = 1, 0
	o.Faults, o.Pace, o.Faulty = []fault{faultCut, faultCutUp}, o.Timing.Lease, 20*o.Timing.Lease
	for i := range o.Runs {
		o.Runs[i].Spec.MaxChunksPerContribution = 1
	}
}

// draws gives the worlds of seeds.
func draws(seeds []uint64) []options {
	opts := make([]options, len(seeds))
	for i, s := range seeds {
		opts[i] = draw(s, false)
	}
	return opts
}

// tellEvery is after how many seeds a long simulation says how far it is.
const tellEvery = 100

// playAll plays worlds side by side: they share nothing.
func playAll(opts []options) []outcome {
	out := make([]outcome, len(opts))
	var done atomic.Int64
	next := make(chan int)
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := range next {
				out[i] = play(opts[i], wrongNothing, nil)
				if out[i].err != nil {
					fmt.Fprintf(os.Stderr, "seed %d: %v\n", opts[i].Seed, out[i].err)
				}
				if n := done.Add(1); n%tellEvery == 0 {
					fmt.Fprintf(os.Stderr, "%d of %d seeds played\n", n, len(opts))
				}
			}
		})
	}
	for i := range opts {
		next <- i
	}
	close(next)
	all.Wait()
	return out
}

// knownSeeds reads testdata/seeds.txt.
func knownSeeds(t *testing.T) []uint64 {
	f, err := os.Open("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var seeds []uint64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		word, _, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		if word == "" || strings.HasPrefix(word, "#") {
			continue
		}
		seed, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			t.Fatal(fmt.Errorf("seeds.txt: %w", err))
		}
		seeds = append(seeds, seed)
	}
	return seeds
}
