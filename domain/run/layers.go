package run

import (
	"fmt"
	"strconv"
	"strings"

	"tensorturn/domain"
)

// Kinds of built-in models beside ModelMLP.
const (
	ModelCNN         = "cnn"         // DefaultCNN, or model.layers
	ModelLayers      = "layers"      // model.layers
	ModelTransformer = "transformer" // of text
)

// Words that begin a line of model.layers.
const (
	LayerConv      = "conv"
	LayerMaxPool   = "maxpool"
	LayerAvgPool   = "avgpool"
	LayerLinear    = "linear"
	LayerReLU      = "relu"
	LayerNorm      = "layernorm"
	LayerBatchNorm = "batchnorm"
)

// Limits of a model's layers.
const (
	MaxLayers      = 64
	MaxKernel      = 15
	MaxPictureSide = 1 << 12
	MaxBlocks      = 48 // of a transformer
	MaxHeads       = 64
)

// DefaultCNN is a small network for small pictures.
func DefaultCNN() []string {
	return []string{"conv 16", "relu", "conv 32", "relu", "maxpool 2", "linear 64", "relu"}
}

// Layer is one line of model.layers, read.
type Layer struct {
	Kind   string
	Width  int // channels of a convolution, width of a linear layer
	Kernel int // side of a convolution's or pool's window
	Stride int // of a convolution
}

// Picture is what a layer takes or gives: one row's values, as channels of height × width. A plain row of columns is
// Channels alone.
type Picture struct{ Channels, Height, Width int }

// Size is the number of values.
func (p Picture) Size() int { return p.Channels * p.Height * p.Width }

// Flat reports a plain row.
func (p Picture) Flat() bool { return p.Height == 1 && p.Width == 1 }

// PictureOf is the shape of a row: [height, width], [channels, height, width], or nothing for plain columns.
func PictureOf(shape []int, features int) Picture {
	switch len(shape) {
	case 2:
		return Picture{1, shape[0], shape[1]}
	case 3:
		return Picture{shape[0], shape[1], shape[2]}
	}
	return Picture{features, 1, 1}
}

// ParseLayer reads one line: "conv CHANNELS [KERNEL [STRIDE]]" (3 and 1 unless said), "maxpool SIDE", "avgpool SIDE",
// "linear WIDTH", "relu", "layernorm", "batchnorm".
func ParseLayer(line string) (Layer, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return Layer{}, domain.Invalid(opSpec, "a line of model.layers is empty", "remove it")
	}
	l := Layer{Kind: words[0]}
	var into []*int
	least := 0
	switch l.Kind {
	case LayerConv:
		l.Kernel, l.Stride = 3, 1
		into, least = []*int{&l.Width, &l.Kernel, &l.Stride}, 1
	case LayerMaxPool, LayerAvgPool:
		into, least = []*int{&l.Kernel}, 1
	case LayerLinear:
		into, least = []*int{&l.Width}, 1
	case LayerReLU, LayerNorm, LayerBatchNorm:
	default:
		return l, domain.Invalid(opSpec, fmt.Sprintf("model.layers has %q", domain.Clip(line, 40)),
			`begin a line with "conv", "maxpool", "avgpool", "linear", "relu", "layernorm" or "batchnorm"`)
	}
	if n := len(words) - 1; n < least || n > len(into) {
		return l, domain.Invalid(opSpec, fmt.Sprintf("model.layers has %q with %d numbers", domain.Clip(line, 40), n), layerHelp(l.Kind))
	}
	for i, w := range words[1:] {
		v, err := strconv.Atoi(w)
		if err != nil || v < 1 || v > MaxHiddenWidth {
			return l, domain.Invalid(opSpec, fmt.Sprintf("model.layers has %q: %q is no number from 1 to %d", domain.Clip(line, 40), domain.Clip(w, 20), MaxHiddenWidth), layerHelp(l.Kind))
		}
		*into[i] = v
	}
	if l.Kernel > MaxKernel || l.Stride > MaxKernel || l.Kind == LayerConv && l.Kernel%2 == 0 {
		return l, domain.Invalid(opSpec, fmt.Sprintf("model.layers has %q: a window of %d, moved by %d", domain.Clip(line, 40), l.Kernel, l.Stride),
			fmt.Sprintf("windows are up to %d wide, and of a convolution odd", MaxKernel))
	}
	return l, nil
}

func layerHelp(kind string) string {
	switch kind {
	case LayerConv:
		return `write "conv CHANNELS", "conv CHANNELS KERNEL" or "conv CHANNELS KERNEL STRIDE"`
	case LayerMaxPool, LayerAvgPool:
		return fmt.Sprintf(`write "%s SIDE"`, kind)
	case LayerLinear:
		return `write "linear WIDTH"`
	}
	return fmt.Sprintf("write %q alone", kind)
}

// After gives what comes out of the layer. Convolutions pad with zeros, so that a stride of 1 keeps height and width; pools
// step by their side and leave out a rest that fills no window; a linear layer flattens.
func (l Layer) After(in Picture) (Picture, error) {
	refuse := func(why, next string) (Picture, error) { return in, domain.Invalid(opSpec, why, next) }
	switch l.Kind {
	case LayerConv:
		if in.Flat() {
			return refuse("model.layers has a convolution where there is no picture", "set data.shape to [height, width] of a row, and put convolutions before linear layers")
		}
		return Picture{l.Width, (in.Height + l.Stride - 1) / l.Stride, (in.Width + l.Stride - 1) / l.Stride}, nil
	case LayerMaxPool, LayerAvgPool:
		if in.Height < l.Kernel || in.Width < l.Kernel {
			return refuse(fmt.Sprintf("model.layers pools windows of %d in a picture of %d × %d", l.Kernel, in.Height, in.Width), "pool less")
		}
		return Picture{in.Channels, in.Height / l.Kernel, in.Width / l.Kernel}, nil
	case LayerLinear:
		return Picture{l.Width, 1, 1}, nil
	}
	return in, nil
}

// checkLayers reads every line; the shapes wait for the data.
func checkLayers(m *Model) error {
	if len(m.Layers) > MaxLayers {
		return bad("model.layers", fmt.Sprintf("%d lines long", len(m.Layers)), fmt.Sprintf("at most %d lines", MaxLayers))
	}
	for _, line := range m.Layers {
		if _, err := ParseLayer(line); err != nil {
			return err
		}
	}
	return nil
}

// Shapes follows a row through the layers: one picture a layer, what comes out of it.
func (m *Model) Shapes(in Picture) ([]Layer, []Picture, error) {
	var layers []Layer
	var shapes []Picture
	for i, line := range m.Layers {
		l, err := ParseLayer(line)
		if err == nil {
			in, err = l.After(in)
		}
		if err == nil && float64(in.Channels)*float64(in.Height)*float64(in.Width) > MaxFeatures {
			err = domain.Invalid(opSpec, fmt.Sprintf("model.layers, line %d: more than %d values a row", i+1, MaxFeatures), "use fewer channels, or pool before")
		}
		if err != nil {
			return nil, nil, err
		}
		layers, shapes = append(layers, l), append(shapes, in)
	}
	return layers, shapes, nil
}
