package builtin

import (
	"fmt"

	"tensorturn/agent/trainer/builtin/tape"
	"tensorturn/domain"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
)

// transformer is a decoder over bytes: embedded bytes and places, blocks of causal attention and a feed-forward layer, each
// behind a normalisation and beside a residual (Xiong et al., "On layer normalization in the transformer architecture",
// 2020, pre-LN), and a linear layer that predicts the byte behind every place.
func transformer(spec run.Model, out int) (chain, error) {
	d, places := spec.Embedding, spec.Context
	if d < 1 || spec.Heads < 1 || d%spec.Heads != 0 {
		return nil, domain.Invalid(opOpen, fmt.Sprintf("an embedding of %d for %d heads", d, spec.Heads), "set model.embedding to a multiple of model.heads")
	}
	net := chain{embedding{dataset.Bytes, places, d}, position{places, d}}
	for range spec.Blocks {
		net = append(net, block{places: places, width: d, heads: spec.Heads})
	}
	return append(net, layerNorm{d, places * d}, linear{in: d, out: out, gain: 1, places: places}), nil
}

// position adds a learnt vector to each place.
type position struct{ places, width int }

func (p position) parameters(name func(string) string) []parameter {
	return []parameter{f32(name("weight"), embeddingSpread, p.places, p.width)}
}

func (p position) record(m *model, x *tape.Tensor, tensor func(string) *tape.Tensor) *tape.Tensor {
	return tape.Add(m.tape, x, tensor("weight"))
}

func (p position) units() int { return p.places * p.width }

// block is one block of a transformer.
type block struct{ places, width, heads int }

// expand is how many times wider the feed-forward layer is, the paper's factor.
const expand = 4

// parts are the block's layers with weights, by name.
func (b block) parts() (norm1, qkv, project, norm2, up, down layer) {
	d, n := b.width, b.places
	return layerNorm{d, n * d}, linear{in: d, out: 3 * d, gain: 1, places: n}, linear{in: d, out: d, gain: 1, places: n},
		layerNorm{d, n * d}, linear{in: d, out: expand * d, gain: 2, places: n}, linear{in: expand * d, out: d, gain: 1, places: n}
}

func (b block) parameters(name func(string) string) []parameter {
	norm1, qkv, project, norm2, up, down := b.parts()
	var list []parameter
	for _, p := range []struct {
		name string
		l    layer
	}{{"norm1", norm1}, {"qkv", qkv}, {"project", project}, {"norm2", norm2}, {"up", up}, {"down", down}} {
		list = append(list, p.l.parameters(func(short string) string { return name(p.name + "." + short) })...)
	}
	return list
}

func (b block) record(m *model, x *tape.Tensor, tensor func(string) *tape.Tensor) *tape.Tensor {
	norm1, qkv, project, norm2, up, down := b.parts()
	of := func(part string) func(string) *tape.Tensor {
		return func(short string) *tape.Tensor { return tensor(part + "." + short) }
	}
	y := qkv.record(m, norm1.record(m, x, of("norm1")), of("qkv"))
	y = tape.Attention(m.tape, y, b.places, b.heads)
	x = tape.Add(m.tape, x, project.record(m, y, of("project")))
	y = up.record(m, norm2.record(m, x, of("norm2")), of("up"))
	return tape.Add(m.tape, x, down.record(m, tape.ReLU(m.tape, y), of("down")))
}

// units counts the probabilities of the attention too.
func (b block) units() int {
	return b.places*b.width*(1+3+1+1+1+1+2*expand+1+1) + b.heads*b.places*b.places
}
