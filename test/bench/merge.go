package main

import (
	"bytes"
	"io"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/merge"
	"tensorturn/domain/safetensors"
)

const mergedDeltas = 8

// anyBase is the base's id in a merge that reads its base from memory.
var anyBase = domain.Digest(strings.Repeat("b", 64))

// merges measures the arithmetic alone: files in memory, results into memory, beside Go's copy of as many bytes. Both by
// processor time.
func (b *bench) merges(d *bed) {
	n := 16
	if b.quick {
		n = 2
	}
	values := float64(n * matrixValues)
	base := read(d, vast(d, matrices(n, safetensors.F32), pattern(1, safetensors.F32, 0.1)))
	momentum := read(d, vast(d, matrices(n, safetensors.F64), pattern(2, safetensors.F64, 0.001)))
	local := pattern(3, safetensors.F32, 0.1)
	theta, mem := make([]byte, len(base)), make([]byte, len(momentum))
	for _, codec := range []merge.Codec{merge.CodecE3M0, merge.CodecFP32} {
		var delta bytes.Buffer
		_, err := merge.EncodeDelta(codec, bytes.NewReader(base), vast(d, matrices(n, safetensors.F32), local), anyBase, &delta)
		d.Must(err)
		seconds := best(d, func() {
			job := merge.Job{Base: bytes.NewReader(base), BaseDigest: anyBase, Momentum: bytes.NewReader(momentum), Eta: 0.7, Mu: 0.9,
				NextBase: &memory{to: theta}, NextMomentum: &memory{to: mem}}
			for i := range mergedDeltas {
				job.Inputs = append(job.Inputs, merge.Input{Delta: bytes.NewReader(delta.Bytes()), Codec: codec, Samples: int64(1000 + i)})
			}
			_, err := merge.Merge(job)
			d.Must(err)
		})
		moved := mergedDeltas*delta.Len() + 2*len(base) + 2*len(momentum) // read and written
		copied := copySeconds(d, moved/2)
		b.report.add(row{Section: "merge", What: "8 deltas " + string(codec), Value: float64(moved) / seconds / 1e9, Unit: "GB/s in and out",
			Ratio: seconds / copied, Of: "time of copy for as many bytes"},
			row{Section: "merge", What: "8 deltas " + string(codec), Value: values / seconds / 1e6, Unit: "M parameters/s"})
	}
}

func read(d *bed, r io.Reader) []byte {
	b, err := io.ReadAll(r)
	d.Must(err)
	return b
}

// copySeconds is what Go's copy needs for n bytes, in pieces beyond a core's own cache.
func copySeconds(d *bed, n int) float64 {
	const piece = 64 << 20
	from, to := make([]byte, piece), make([]byte, piece)
	copy(to, from) // both are touched before the clock runs
	return best(d, func() {
		for left := n; left > 0; left -= piece {
			copy(to, from[:min(left, piece)])
		}
	})
}

// memory is a writer into a buffer of the right length.
type memory struct {
	to []byte
	at int
}

func (m *memory) Write(p []byte) (int, error) {
	n := copy(m.to[m.at:], p)
	m.at += n
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}
