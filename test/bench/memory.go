package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/merge"
	"tensorturn/domain/safetensors"
)

// memoryLimit is the most that the merge of 8 deltas of 100 million parameters may take, MiB.
const memoryLimit = 1536

// childJob is what a child process merges: blobs in its folder, as the hub reads them from its store.
type childJob struct {
	Codec                 merge.Codec
	Base, Momentum, Delta domain.Digest
}

// memory merges 8 deltas of 100 million parameters in a process of its own, from blobs on the disk, and reports that
// process's peak of resident memory.
func (b *bench) memory(d *bed) {
	n := 96
	if b.quick {
		n = 4
	}
	dir := d.TempDir()
	weights := func(seed uint64) io.Reader {
		return vast(d, matrices(n, safetensors.F32), pattern(seed, safetensors.F32, 0.1))
	}
	base := store(d, dir, func(w io.Writer) error { _, err := io.Copy(w, weights(1)); return err })
	momentum := store(d, dir, func(w io.Writer) error {
		_, err := io.Copy(w, vast(d, matrices(n, safetensors.F64), pattern(2, safetensors.F64, 0.001)))
		return err
	})
	exe, err := os.Executable()
	d.Must(err)
	for _, codec := range []merge.Codec{merge.CodecE3M0, merge.CodecFP32} {
		delta := store(d, dir, func(w io.Writer) error {
			_, err := merge.EncodeDelta(codec, weights(1), weights(3), base, w)
			return err
		})
		job, err := json.Marshal(childJob{codec, base, momentum, delta})
		d.Must(err)
		d.Must(os.WriteFile(filepath.Join(dir, "job"), job, 0o600))
		child := exec.CommandContext(b.ctx, exe, "--merge-child", dir)
		child.Stderr = b.talk
		out, err := child.Output()
		d.Must(err)
		mib, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		d.Must(err)
		b.report.add(row{Section: "memory", What: fmt.Sprintf("merge of 8 %s deltas of %.0fM parameters", codec, float64(n*matrixValues)/1e6),
			Value: mib, Unit: "MiB at the peak", Limit: memoryLimit})
	}
}

// store writes a blob's parts and manifest as files of the folder.
func store(d *bed, dir string, write func(io.Writer) error) domain.Digest {
	w := blob.NewWriter(context.Background(), func(_ context.Context, id domain.Digest, data []byte) error {
		return os.WriteFile(filepath.Join(dir, string(id)), data, 0o600)
	})
	d.Must(write(w))
	id, err := w.Close()
	d.Must(err)
	return id
}

// mergeChild merges the folder's job and prints the peak memory of this process in MiB.
func mergeChild(dir string, stdout, stderr io.Writer) int {
	if err := mergeIn(dir); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	kib := strings.TrimSuffix(field("/proc/self/status", "VmHWM"), " kB")
	x, err := strconv.ParseFloat(kib, 64)
	if err != nil {
		fmt.Fprintln(stderr, "this system does not tell a process's peak memory")
		return 1
	}
	fmt.Fprintf(stdout, "%.1f\n", x/1024)
	return 0
}

func mergeIn(dir string) error {
	raw, err := os.ReadFile(filepath.Join(dir, "job"))
	if err != nil {
		return err
	}
	var job childJob
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&job); err != nil {
		return err
	}
	ctx := context.Background()
	get := func(_ context.Context, id domain.Digest) ([]byte, error) {
		return os.ReadFile(filepath.Join(dir, string(id)))
	}
	base, err := blob.Open(ctx, job.Base, get)
	if err != nil {
		return err
	}
	momentum, err := blob.Open(ctx, job.Momentum, get)
	if err != nil {
		return err
	}
	drop := func(context.Context, domain.Digest, []byte) error { return nil } // hashed, as a store would have it
	next, mem := blob.NewWriter(ctx, drop), blob.NewWriter(ctx, drop)
	m := merge.Job{Base: base, BaseDigest: job.Base, Momentum: momentum, Eta: 0.7, Mu: 0.9, NextBase: next, NextMomentum: mem}
	for i := range mergedDeltas {
		delta, err := blob.Open(ctx, job.Delta, get)
		if err != nil {
			return err
		}
		m.Inputs = append(m.Inputs, merge.Input{Delta: delta, Codec: job.Codec, Samples: int64(1000 + i)})
	}
	if _, err := merge.Merge(m); err != nil {
		return err
	}
	for _, w := range []*blob.Writer{next, mem} {
		if _, err := w.Close(); err != nil {
			return err
		}
	}
	return nil
}
