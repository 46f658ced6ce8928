package merge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/safetensors"
)

// Expect is what a delta must be.
type Expect struct {
	Codec  Codec
	Base   domain.Digest // blob id of the base weights
	Layout domain.Digest // of the base weights
}

// faultError is a delta that cannot be used, now or ever.
type faultError struct {
	why  Fault
	note string
}

func (e *faultError) Error() string { return string(e.why) + ": " + e.note }

func fault(why Fault, format string, args ...any) error {
	return &faultError{why, domain.Clip(fmt.Sprintf(format, args...), domain.MaxReasonLength)}
}

// judged turns an error of the stream into a fault if reading it again cannot help, and leaves it otherwise.
func judged(err error) error {
	switch domain.KindOf(err) {
	case domain.KindInvalid, domain.KindIntegrity, domain.KindNotFound:
		return fault(FaultUnreadable, "%v", err)
	}
	return err
}

// delta walks one delta beside its base.
type delta struct {
	codec Codec
	gates gates
	file  *safetensors.Reader
	data  io.Reader // of the present tensor
	name  string
	coded bool   // the present tensor holds codes, not values
	at    int64  // values of the present tensor read so far
	raw   []byte // the tile read last
}

// openDelta reads the header of a delta for weights of the given layout and checks what it says of itself.
func openDelta(src io.Reader, want Expect, base []safetensors.Tensor, g gates) (*delta, error) {
	file, err := safetensors.NewReader(src)
	if err != nil {
		return nil, judged(err)
	}
	says := func(key string) string { return domain.Clip(file.Metadata()[key], 64) }
	if says(metaCodec) != string(want.Codec) {
		return nil, fault(FaultUnreadable, "its codec is %q, wanted %q", says(metaCodec), want.Codec)
	}
	if g.base && says(metaBase) != string(want.Base) {
		return nil, fault(FaultBase, "it was made from base %q, wanted %q", says(metaBase), want.Base)
	}
	if g.layout {
		if says(metaLayout) != string(want.Layout) {
			return nil, fault(FaultLayout, "its weights have layout %q, wanted %q", says(metaLayout), want.Layout)
		}
		tensors, err := deltaTensors(want.Codec, base)
		if err != nil {
			return nil, err
		}
		if err := safetensors.Compare(tensors, file.Tensors()); err != nil {
			return nil, fault(FaultLayout, "%v", err)
		}
	}
	return &delta{codec: want.Codec, gates: g, file: file}, nil
}

// next goes to the following tensor. Behind the last one it makes sure that the file ends, and gives io.EOF.
func (d *delta) next() error {
	t, data, err := d.file.Next()
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if err != nil {
		return judged(err)
	}
	d.data, d.name, d.at = data, t.Name, 0
	d.coded = d.codec != CodecFP32 && t.DType == safetensors.U8
	return nil
}

// read takes the next n values of the tensor into the raw tile and checks them. All tiles of a tensor but its last
// hold whole blocks.
func (d *delta) read(n int, scratch []byte) error {
	size := 4 * n
	if d.coded {
		size = int(codeBytes(d.codec, int64(n)))
	}
	d.raw = scratch[:size]
	if _, err := io.ReadFull(d.data, d.raw); err != nil {
		return judged(cut(err, d.name))
	}
	var err error
	if d.coded {
		err = d.checkBlocks(n)
	} else {
		err = d.checkValues()
	}
	d.at += int64(n)
	return err
}

// checkValues checks plain values: all finite, and no variance below zero.
func (d *delta) checkValues() error {
	if j := firstNotFinite(d.raw); j >= 0 && d.gates.finite {
		return fault(FaultNotFinite, "tensor %q is not finite at value %d", domain.Clip(d.name, 60), d.at+int64(j))
	}
	if strings.HasSuffix(d.name, runningVar) && ClassOf(safetensors.Tensor{Name: d.name, DType: safetensors.F32}) == Statistic {
		for j := 0; j < len(d.raw); j += 4 {
			if math.Float32frombits(binary.LittleEndian.Uint32(d.raw[j:])) < 0 {
				return fault(FaultUnreadable, "tensor %q has a negative variance at value %d", domain.Clip(d.name, 60), d.at+int64(j/4))
			}
		}
	}
	return nil
}

// checkBlocks checks every scale, that unused bits are zero, and that no code stands there that is never written.
func (d *delta) checkBlocks(n int) error {
	size := blockBytesOf(d.codec)
	for b := 0; b*BlockValues < n; b++ {
		_, finite, plain := scaleOf(d.raw[b*size:])
		at := d.at + int64(b)*BlockValues
		if !finite && d.gates.finite {
			return fault(FaultNotFinite, "tensor %q has a scale that is not finite at value %d", domain.Clip(d.name, 60), at)
		}
		if finite && !plain {
			return fault(FaultUnreadable, "tensor %q has a negative scale at value %d", domain.Clip(d.name, 60), at)
		}
		if d.codec == CodecInt8 {
			raw, k := d.block(b, n)
			if j := bytes.IndexByte(raw[scaleBytes:][:k], 0x80); j >= 0 {
				return fault(FaultUnreadable, "tensor %q has the code −128, which means nothing, at value %d", domain.Clip(d.name, 60), at+int64(j))
			}
		}
	}
	if used := int64(n%BlockValues) * bitsOf(d.codec) % 8; used > 0 && d.raw[len(d.raw)-1]>>used != 0 {
		return fault(FaultUnreadable, "tensor %q has something in the unused bits of its last byte", domain.Clip(d.name, 60))
	}
	return nil
}

// block gives the place of block b of the tile and its number of values.
func (d *delta) block(b, n int) (raw []byte, values int) {
	return d.raw[b*blockBytesOf(d.codec):], min(BlockValues, n-b*BlockValues)
}

// accumulate adds weight times the local weights of the tile to sum: sum[j] += weight·L[j]. theta is the base.
func (d *delta) accumulate(sum, theta []float64, weight float64) {
	if !d.coded {
		accumulateValues(sum, weight, d.raw)
		return
	}
	for b := 0; b*BlockValues < len(sum); b++ {
		raw, n := d.block(b, len(sum))
		s, t := sum[b*BlockValues:][:n], theta[b*BlockValues:][:n]
		if d.codec == CodecE3M0 {
			scale, _, _ := scaleOf(raw)
			table := levels(scale)
			accumulateBlock(s, t, weight, raw[scaleBytes:], &table)
			continue
		}
		var values [BlockValues]float64
		decodeCode(d.codec, values[:n], raw)
		for j := range s {
			s[j] += float64(weight * (t[j] - values[j]))
		}
	}
}

// accumulateValues adds weight·L for little-endian float32 values, four at a time: the pointers to arrays spare the
// checks of bounds, which take half of the time.
func accumulateValues(sum []float64, weight float64, raw []byte) {
	raw = raw[:4*len(sum)]
	for len(sum) >= 4 {
		s, r := (*[4]float64)(sum), (*[16]byte)(raw)
		s[0] += float64(weight * float64(math.Float32frombits(binary.LittleEndian.Uint32(r[0:]))))
		s[1] += float64(weight * float64(math.Float32frombits(binary.LittleEndian.Uint32(r[4:]))))
		s[2] += float64(weight * float64(math.Float32frombits(binary.LittleEndian.Uint32(r[8:]))))
		s[3] += float64(weight * float64(math.Float32frombits(binary.LittleEndian.Uint32(r[12:]))))
		sum, raw = sum[4:], raw[16:]
	}
	for j := range sum {
		sum[j] += float64(weight * float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*j:]))))
	}
}

// accumulateBlock adds weight·(theta − D) for one block.
func accumulateBlock(sum, theta []float64, weight float64, code []byte, table *[16]float64) {
	theta = theta[:len(sum)]
	for len(sum) >= 8 {
		s, t, c := (*[8]float64)(sum), (*[8]float64)(theta), binary.LittleEndian.Uint32(code)
		s[0] += float64(weight * (t[0] - table[c&15]))
		s[1] += float64(weight * (t[1] - table[c>>4&15]))
		s[2] += float64(weight * (t[2] - table[c>>8&15]))
		s[3] += float64(weight * (t[3] - table[c>>12&15]))
		s[4] += float64(weight * (t[4] - table[c>>16&15]))
		s[5] += float64(weight * (t[5] - table[c>>20&15]))
		s[6] += float64(weight * (t[6] - table[c>>24&15]))
		s[7] += float64(weight * (t[7] - table[c>>28]))
		sum, theta, code = sum[8:], theta[8:], code[4:]
	}
	for j := range sum {
		sum[j] += float64(weight * (theta[j] - table[code[j/2]>>(4*(j%2))&15]))
	}
}

// values gives D = base − local of the tile.
func (d *delta) values(dst, theta []float64) {
	if !d.coded {
		for j := range dst {
			dst[j] = theta[j] - float64(math.Float32frombits(binary.LittleEndian.Uint32(d.raw[4*j:])))
		}
		return
	}
	for b := 0; b*BlockValues < len(dst); b++ {
		raw, n := d.block(b, len(dst))
		decodeCode(d.codec, dst[b*BlockValues:][:n], raw)
	}
}

// squares adds the squares of d to sum, one after another: the sum does not depend on the size of tiles.
func squares(sum float64, d []float64) float64 {
	for _, x := range d {
		sum += float64(x * x)
	}
	return sum
}
