package plain

import (
	"fmt"
	"math"
	"math/bits"
)

// Shape of the data.
const (
	Features = 6
	Classes  = 3
)

// model is a linear classifier with momentum, on data made from their index.
type model struct {
	w, m []float32 // [classes × (features+1)], bias last
	ramp int
	full int
}

func newModel(seed uint64) *model {
	n := Classes * (Features + 1)
	t := &model{w: make([]float32, n), m: make([]float32, n)}
	s := source(seed, 9)
	for i := range t.w {
		t.w[i] = float32(int64(s.next()>>40))/float32(1<<24) - 0.5
	}
	return t
}

// random is SplitMix64.
type random uint64

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func source(seed uint64, labels ...uint64) *random {
	s := mix(seed)
	for _, l := range labels {
		s = mix(s + 0x9e3779b97f4a7c15 + mix(l))
	}
	return (*random)(&s)
}

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	return mix(uint64(*r))
}

func (r *random) below(n uint64) uint64 {
	hi, lo := bits.Mul64(r.next(), n)
	for lo < n && lo < -n%n {
		hi, lo = bits.Mul64(r.next(), n)
	}
	return hi
}

func (r *random) shuffle(v []int) {
	for i := len(v) - 1; i > 0; i-- {
		j := r.below(uint64(i) + 1)
		v[i], v[j] = v[j], v[i]
	}
}

// Order is the order of samples of an epoch.
func Order(seed uint64, epoch, n, block int) []int {
	if block < 1 || block > n {
		block = n
	}
	blocks := make([]int, (n+block-1)/block)
	for i := range blocks {
		blocks[i] = i
	}
	source(seed, uint64(epoch), 1).shuffle(blocks)
	var all []int
	for _, b := range blocks {
		var in []int
		for i := b * block; i < (b+1)*block && i < n; i++ {
			in = append(in, i)
		}
		source(seed, uint64(epoch), 2, uint64(b)).shuffle(in)
		all = append(all, in...)
	}
	return all
}

// sample makes sample i: held-out ones have negative numbers.
func sample(i int) ([]float32, int) {
	s := source(77, uint64(i))
	label := int(s.below(Classes))
	x := make([]float32, Features)
	for j := range x {
		x[j] = float32(s.next()>>40) / float32(1<<24)
		if j%Classes == label {
			x[j]++
		}
	}
	return x, label
}

func (t *model) shape() string { return fmt.Sprintf("[%d,%d]", Classes, Features+1) }

func (t *model) forward(x []float32) []float64 {
	p := make([]float64, Classes)
	sum := 0.0
	for c := range p {
		row := t.w[c*(Features+1):]
		z := row[Features]
		for j, v := range x {
			z += row[j] * v
		}
		p[c] = math.Exp(float64(z))
		sum += p[c]
	}
	for c := range p {
		p[c] /= sum
	}
	return p
}

func (t *model) step(batch []int) (loss float64) {
	g := make([]float64, len(t.w))
	for _, i := range batch {
		x, label := sample(i)
		p := t.forward(x)
		loss -= math.Log(p[label])
		for c := range p {
			d := p[c]
			if c == label {
				d--
			}
			for j, v := range x {
				g[c*(Features+1)+j] += d * float64(v)
			}
			g[c*(Features+1)+Features] += d
		}
	}
	rate := 0.1
	if t.ramp > 0 {
		rate *= float64(t.full-t.ramp+1) / float64(t.full)
		t.ramp--
	}
	for i := range t.w {
		t.m[i] = 0.9*t.m[i] + float32(g[i]/float64(len(batch)))
		t.w[i] -= float32(rate) * t.m[i]
	}
	return loss / float64(len(batch))
}
