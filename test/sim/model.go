package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/merge"
	"tensorturn/domain/permute"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

// modelSize is the number of weights. Eight are enough to tell every history of training apart.
const modelSize = 8

// Tags of the draws of a run's seed.
const (
	drawBase uint64 = iota + 1
	drawChunk
)

// weights is the whole model. Training chunk c maps it to a value that depends on c and on what was there: the order
// of chunks shows.
type weights [modelSize]float32

func firstWeights(seed uint64) weights {
	var w weights
	r := permute.NewSource(seed, drawBase)
	for i := range w {
		w[i] = float32(r.Float64() - 0.5)
	}
	return w
}

// wide is the first of the weights whose size depends on the newest chunk alone, over 60 binary orders: sums of them are
// never exact, so that the order of a merge's inputs shows in its bits.
const wide = modelSize - 2

// train is the real arithmetic of one chunk.
func (w weights) train(seed uint64, c domain.ChunkID) weights {
	r := permute.NewSource(seed, drawChunk, uint64(c))
	for i := range w {
		draw := 0.1 * (r.Float64() - 0.5)
		if i >= wide {
			w[i] = float32(math.Ldexp(draw, -(13*int(c)+7*i)%60))
			continue
		}
		w[i] = float32(w[i]*0.999) + float32(draw)
	}
	return w
}

func (w weights) finite() bool {
	for _, v := range w {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return false
		}
	}
	return true
}

func layout(name string) []safetensors.Tensor {
	return []safetensors.Tensor{{Name: name, DType: safetensors.F32, Shape: []int64{modelSize}}}
}

const tensorName = "w"

// encode writes the weights as a safetensors file with one tensor of the name.
func (w weights) encode(name string) []byte {
	var b bytes.Buffer
	out, err := safetensors.NewWriter(&b, layout(name), nil)
	if err == nil {
		err = binary.Write(out, binary.LittleEndian, w)
	}
	if err == nil {
		err = out.Close()
	}
	must(err)
	return b.Bytes()
}

// decodeWeights reads what encode wrote.
func decodeWeights(r io.Reader) (weights, error) {
	var w weights
	f, err := safetensors.NewReader(r)
	if err != nil {
		return w, err
	}
	t, data, err := f.Next()
	if err != nil {
		return w, err
	}
	if t.Name != tensorName || t.DType != safetensors.F32 || len(t.Shape) != 1 || t.Shape[0] != modelSize {
		return w, fmt.Errorf("tensor %s %s %v is not the model's", t.Name, t.DType, t.Shape)
	}
	return w, binary.Read(data, binary.LittleEndian, &w)
}

// object is a stored part or manifest.
type object struct {
	id   domain.Digest
	data []byte
}

// pack turns bytes into a blob: its id and its objects, the manifest last.
func packBlob(data []byte) (domain.Digest, []object) {
	var objs []object
	w := blob.NewWriter(context.Background(), func(_ context.Context, d domain.Digest, b []byte) error {
		objs = append(objs, object{d, bytes.Clone(b)})
		return nil
	})
	_, err := w.Write(data)
	must(err)
	id, err := w.Close()
	must(err)
	return id, objs
}

// encodeDelta is the delta of honest work.
func encodeDelta(codec run.Codec, base, local weights, baseID domain.Digest) []byte {
	var b bytes.Buffer
	_, err := merge.EncodeDelta(merge.Codec(codec), bytes.NewReader(base.encode(tensorName)), bytes.NewReader(local.encode(tensorName)), baseID, &b)
	must(err)
	return b.Bytes()
}

// poison is what a bad machine sends instead of its delta.
type poison string

const (
	poisonNaN       poison = "nan"
	poisonTruncated poison = "truncated"
	poisonLayout    poison = "layout"
	poisonBase      poison = "base"
	poisonRubbish   poison = "rubbish"
	poisonNorm      poison = "norm" // well formed: the norm gate refuses it once it is in force
)

var poisons = []poison{poisonNaN, poisonTruncated, poisonLayout, poisonBase, poisonRubbish}

// poisonedDelta spoils a delta in one way. Every one of them but the last must be refused.
func poisonedDelta(p poison, codec run.Codec, base, local weights, baseID domain.Digest) []byte {
	good := encodeDelta(codec, base, local, baseID)
	switch p {
	case poisonNaN:
		if codec == run.CodecFP32 {
			binary.LittleEndian.PutUint32(good[len(good)-4:], math.Float32bits(float32(math.NaN())))
			return good
		}
		return good[:len(good)-1]
	case poisonTruncated:
		return good[:len(good)-3]
	case poisonLayout:
		var b bytes.Buffer
		_, err := merge.EncodeDelta(merge.Codec(codec), bytes.NewReader(base.encode("v")), bytes.NewReader(local.encode("v")), baseID, &b)
		must(err)
		return b.Bytes()
	case poisonNorm:
		for i := range local {
			local[i] = base[i] + 1e4*(local[i]-base[i])
		}
		return encodeDelta(codec, base, local, baseID)
	case poisonBase:
		return encodeDelta(codec, base, local, blob.Sum([]byte("another base")))
	}
	return []byte("no delta at all")
}

// must is for what cannot fail in this world.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
