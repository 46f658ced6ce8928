package sim

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var plantFlag = flag.Int("bugs", 150, "how many seeds each planted bug has to be found in; 2000 is the promise")

// TestPlantedBugs plants one bug after another and plays seeds until one finds it. The table says which, and what the
// checkers said.
func TestPlantedBugs(t *testing.T) {
	var table strings.Builder
	fmt.Fprintf(&table, "%-20s %10s  %s\n", "bug", "first seed", "what the checkers say")
	for _, p := range plants() {
		seed, says := hunt(p, *plantFlag)
		if seed == 0 {
			t.Errorf("%d seeds do not find %q: %s", *plantFlag, p.name, p.what)
			says = "nothing"
		}
		fmt.Fprintf(&table, "%-20s %10d  %s\n", p.name, seed, says)
	}
	t.Log("\n" + table.String())
}

// hunt plays seeds from 1 on and gives the first that fails, with the checker's sentence; 0 when none does.
func hunt(p planted, seeds int) (seed uint64, says string) {
	var next, found atomic.Uint64
	var mu sync.Mutex
	var all sync.WaitGroup
	sentences := map[uint64]string{}
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for {
				n := next.Add(1)
				if n > uint64(seeds) || found.Load() != 0 {
					return
				}
				plant := p
				if o := playPlanted(draw(n, false), p.wrong, &plant, nil); o.err != nil {
					first, _, _ := strings.Cut(o.err.Error(), "\n")
					mu.Lock()
					sentences[n] = first
					mu.Unlock()
					found.Store(n)
				}
			}
		})
	}
	all.Wait()
	for n, s := range sentences { // the smallest that was played
		if seed == 0 || n < seed {
			seed, says = n, s
		}
	}
	if len(says) > 150 {
		says = says[:150]
	}
	return seed, says
}
