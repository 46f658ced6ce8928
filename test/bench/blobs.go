package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tensorturn/agent"
	"tensorturn/domain"
	"tensorturn/domain/blob"
)

// blobs sends parts through the hub's HTTPS front on loopback and fetches them again, as an agent does, beside files
// that are copied and synced one by one.
func (b *bench) blobs(d *bed) {
	parts := 24
	if b.quick {
		parts = 2
	}
	p := b.pool(d)
	o := operatorOf(d, p)
	front, err := agent.NewHTTPBlobs(p.URL, agent.NewHTTPClient(o.tls), func() (string, error) { return o.Key, nil })
	d.Must(err)
	mb := float64(parts) * domain.MaxPartBytes / 1e6
	plain := mb / plainCopy(d, parts)
	b.report.add(row{Section: "blobs", What: "files of 8 MiB written and synced", Value: plain, Unit: "MB/s"})
	for i, width := range []int{1, 4} {
		data := manyParts(parts, uint64(i))
		ids := make([]domain.Digest, parts)
		for j, x := range data {
			ids[j] = blob.Sum(x)
		}
		put := inParallel(d, width, parts, func(j int) error { return front.Put(b.ctx, ids[j], data[j], nil) })
		get := inParallel(d, width, parts, func(j int) error {
			_, err := front.Get(b.ctx, ids[j], nil)
			return err
		})
		b.report.add(
			row{Section: "blobs", What: fmt.Sprintf("put through the front, %d at a time", width), Value: mb / put, Unit: "MB/s", Ratio: mb / put / plain, Of: "synced files"},
			row{Section: "blobs", What: fmt.Sprintf("get through the front, %d at a time", width), Value: mb / get, Unit: "MB/s", Ratio: mb / get / plain, Of: "synced files"})
	}
}

// manyParts makes parts that differ from each other and cannot be compressed.
func manyParts(n int, seed uint64) [][]byte {
	all := make([][]byte, n)
	x := seed*1_000_003 + 1
	for i := range all {
		p := make([]byte, domain.MaxPartBytes)
		for j := range p {
			if j%8 == 0 {
				x = x*6364136223846793005 + 1442695040888963407
			}
			p[j] = byte(x >> (8 * (j % 8)))
		}
		all[i] = p
	}
	return all
}

// plainCopy writes parts as files, each synced, and gives the seconds.
func plainCopy(d *bed, parts int) float64 {
	dir, data := d.TempDir(), manyParts(1, 99)[0]
	began := time.Now()
	for i := range parts {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
		d.Must(err)
		_, err = f.Write(data)
		d.Must(err)
		d.Must(f.Sync())
		d.Must(f.Close())
	}
	return time.Since(began).Seconds()
}

// inParallel does n things, so many at a time, and gives the seconds.
func inParallel(d *bed, width, n int, do func(i int) error) float64 {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	work := make(chan int)
	var wg sync.WaitGroup
	began := time.Now()
	for range width {
		wg.Go(func() {
			for i := range work {
				if err := do(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
	d.Must(context.Cause(ctx))
	return time.Since(began).Seconds()
}
