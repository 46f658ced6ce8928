package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/permute"
)

// load looks at the cores for a moment. Where the system does not say, they are idle.
func load(ctx context.Context) float64 {
	p, err := cpu.PercentWithContext(ctx, loadLook, false)
	if err != nil || len(p) != 1 {
		return 0
	}
	return p[0] / 100
}

// quiet is an error while other programs use so much of the CPU that a figure would be theirs as much as the machine's.
func (b *Bench) quiet(ctx context.Context) error {
	if l := b.opts.Load(ctx); l > mostLoad {
		return domain.Unavailable("", fmt.Sprintf("other programs use %.0f %% of the CPU", 100*l), "", nil)
	}
	return nil
}

// cpu measures a float32 matrix product on all cores. The best of a few windows counts: what disturbs only makes it slower.
func (b *Bench) cpu(ctx context.Context, s *machine.Score) error {
	if err := b.quiet(ctx); err != nil {
		return err
	}
	square := func(v float32) blas32.General {
		g := blas32.General{Rows: matrixSide, Cols: matrixSide, Stride: matrixSide, Data: make([]float32, matrixSide*matrixSide)}
		for i := range g.Data {
			g.Data[i] = v
		}
		return g
	}
	x, y, z := square(0.5), square(0.25), square(0)
	const flops = 2 * matrixSide * matrixSide * matrixSide
	product := func() { blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, x, y, 0, z) }
	product() // wakes the cores and the caches
	s.Devices[0].Flops = best(ctx, matrixTime, func() float64 { product(); return flops })
	return nil
}

// memory measures copying between two buffers on all cores; bytes read and bytes written count.
func (b *Bench) memory(ctx context.Context, s *machine.Score) error {
	if err := b.quiet(ctx); err != nil {
		return err
	}
	size := memoryBytes
	if v, _ := b.opts.Vitals(); v.Memory.Free > 0 {
		size = min(size, int(v.Memory.Free/16))
	}
	from, to := make([]byte, size), make([]byte, size)
	n := runtime.GOMAXPROCS(0)
	pass := func() float64 {
		var wg sync.WaitGroup
		for i := range n {
			lo, hi := size*i/n, size*(i+1)/n
			wg.Go(func() { copy(to[lo:hi], from[lo:hi]) })
		}
		wg.Wait()
		return float64(2 * size)
	}
	pass() // has the pages given out
	s.Devices[0].Memory = best(ctx, memoryTime, pass)
	return nil
}

// windows is how many parts of its time a measurement has; the best of them counts.
const windows = 5

// best repeats f, which says how much it did, and gives the most that was done a second.
func best(ctx context.Context, limit time.Duration, f func() float64) (top float64) {
	end := time.Now().Add(limit)
	for ctx.Err() == nil && time.Now().Before(end) {
		began, did := time.Now(), 0.0
		for ctx.Err() == nil && (did == 0 || time.Since(began) < limit/windows) {
			did += f()
		}
		if took := time.Since(began).Seconds(); took > 0 && ctx.Err() == nil {
			top = max(top, did/took)
		}
	}
	return top
}

// diskFile is written to measure the disk. Its name is fixed: what an agent that was killed has left is overwritten by the next one.
const diskFile = "bench.tmp"

// disk measures writing a file, its way to the disk included. Where little is free it is left alone.
func (b *Bench) disk(ctx context.Context, s *machine.Score) error {
	if v, _ := b.opts.Vitals(); v.Disk.Total > 0 && v.Disk.Free < diskSpare {
		return domain.Conflict("measure the disk", "less than 2 GiB of it are free", "")
	}
	f, err := os.OpenFile(filepath.Join(b.opts.Dir, diskFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, diskBlock)
	permute.NewSource(1).Fill(block) // nothing that a file system compresses
	began, wrote := time.Now(), 0
	for ctx.Err() == nil && wrote < diskBytes && time.Since(began) < diskTime {
		if _, err := f.Write(block); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		wrote += len(block)
	}
	s.Disk = float64(wrote) / time.Since(began).Seconds()
	return nil
}
