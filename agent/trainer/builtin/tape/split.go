package tape

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// split runs do for 0 to n−1 on as many goroutines as there are processors, and waits for all. Parts must not share what
// they write, and must not depend on which goroutine runs them: then the bits do not depend on the number of processors.
// lane is below lanes(n), one for each goroutine, for scratch memory.
func split(n int, do func(part, lane int)) {
	workers := lanes(n)
	if workers == 1 {
		for i := range n {
			do(i, 0)
		}
		return
	}
	var next atomic.Int64
	var wait sync.WaitGroup
	work := func(lane int) {
		for {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			do(i, lane)
		}
	}
	for lane := 1; lane < workers; lane++ {
		wait.Go(func() { work(lane) })
	}
	work(0)
	wait.Wait()
}

// maxLanes bounds the scratch memory of an operation.
const maxLanes = 16

func lanes(n int) int { return max(1, min(n, runtime.GOMAXPROCS(0), maxLanes)) }

// tiles is how many tiles of rows make up a batch; the last one may be shorter.
func tiles(rows, tile int) int { return (rows + tile - 1) / tile }
