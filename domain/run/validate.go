package run

import (
	"cmp"
	"fmt"
	"math"
	"unicode"
	"unicode/utf8"

	"tensorturn/domain"
)

// Limits of a spec: beyond them a figure is a typing error, and sums of what is below them cannot overflow.
const (
	MaxEpochs      = 1 << 20
	MaxSamples     = 1<<31 - 1 // × MaxEpochs stays within an int64
	MaxBatch       = 1 << 20
	MaxFeatures    = 1 << 20
	MaxClasses     = 1 << 16
	MaxHiddenLayer = 32
	MaxHiddenWidth = 1 << 16
	MaxContext     = 1 << 12 // bytes; a segment of packed text holds it several times
	MaxEmbedding   = 1 << 12
	// MaxNamedColumns bounds data.categories and data.ignore.
	MaxNamedColumns = 256
	MaxPathLength   = 4096
	MaxRate         = 1e3 // learning rates, and the gradient norm of clip
	MaxHoldout      = 0.9
	MaxKeepEvery    = 1 << 20
	MaxDeadline     = 30 * 24 * 3600.0 // seconds
)

const opSpec = "check spec"

// bad refuses one field of a spec: it names the field, the value and what is allowed.
func bad(field string, value any, allowed string) error {
	text := domain.Clip(fmt.Sprint(value), domain.MaxNameLength)
	return domain.Invalid(opSpec, fmt.Sprintf("%s is %s", field, text), fmt.Sprintf("set %s to %s", field, allowed))
}

// within refuses a number outside [lo, hi]; NaN is outside of everything.
func within[T int | float64](field string, v, lo, hi T) error {
	if v >= lo && v <= hi {
		return nil
	}
	return bad(field, v, fmt.Sprintf("%v to %v", lo, hi))
}

// oneOf refuses a word that is not among the allowed ones.
func oneOf[T ~string](field string, v T, allowed ...T) error {
	list := ""
	for i, a := range allowed {
		if v == a {
			return nil
		}
		if i > 0 {
			list += " or "
		}
		list += fmt.Sprintf("%q", string(a))
	}
	return bad(field, fmt.Sprintf("%q", string(v)), list)
}

// first is the first error of the list.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkSpec checks every field of a filled spec by itself.
func checkSpec(s *Spec) error {
	err := first(
		checkText("name", s.Name, domain.MaxNameLength),
		oneOf("mode", s.Mode, ModeFused, ModeEnsemble),
		oneOf("trainer", s.Trainer, Builtin, Process),
		checkTrainer(s),
		within("batch", s.Batch, 1, MaxBatch),
		within("epochs", s.Epochs, 1, MaxEpochs),
		checkChunk(s),
		checkRequirements(s),
	)
	if err != nil {
		return err
	}
	if s.Mode == ModeEnsemble {
		return checkEnsemble(s)
	}
	return first(
		checkNoEnsemble(s),
		checkRound(s),
		checkOuter(&s.Outer),
		oneOf("codec", s.Codec, CodecE3M0, CodecInt8, CodecTwoBit, CodecFP32),
		oneOf("codec_down", cmp.Or(s.CodecDown, CodecFP32), CodecFP32, CodecInt8, CodecE3M0),
		within("evaluate_every", s.EvaluateEvery, 0, MaxChunks),
		within("keep_every", s.KeepEvery, 1, MaxKeepEvery),
	)
}

// checkTrainer checks what belongs to one trainer alone.
func checkTrainer(s *Spec) error {
	if s.Trainer == Process {
		return checkProcess(s)
	}
	return first(
		checkText("data.path", s.Data.Path, MaxPathLength),
		checkText("data.label", s.Data.Label, domain.MaxNameLength),
		above("data.holdout", s.Data.Holdout, MaxHoldout),
		checkTable(&s.Data),
		checkModel(&s.Model),
		checkTextModel(s),
		checkOptimizer(&s.Optimizer),
		checkSchedule(&s.Schedule),
		checkNoProcess(s),
	)
}

// above refuses a number that is not in (0, hi].
func above(field string, v, hi float64) error {
	if v > 0 && v <= hi {
		return nil
	}
	return bad(field, v, fmt.Sprintf("a number above 0, up to %v", hi))
}

func checkText(field, v string, limit int) error {
	if len(v) > limit {
		return bad(field, fmt.Sprintf("%d bytes long", len(v)), fmt.Sprintf("at most %d bytes", limit))
	}
	if !utf8.ValidString(v) {
		return bad(field, fmt.Sprintf("%q", v), "valid UTF-8 text")
	}
	for _, r := range v {
		if unicode.IsControl(r) {
			return bad(field, fmt.Sprintf("%q", v), "text without control characters")
		}
	}
	return nil
}

func checkModel(m *Model) error {
	if err := oneOf("model.kind", m.Kind, ModelMLP, ModelCNN, ModelLayers, ModelTransformer); err != nil {
		return err
	}
	if m.Kind != ModelMLP {
		return checkOtherModel(m)
	}
	if len(m.Layers) > 0 {
		return domain.Invalid(opSpec, "model.layers is set, but model.kind is mlp", "set model.kind to layers, or leave it out")
	}
	if len(m.Hidden) == 0 {
		return domain.Invalid(opSpec, "model.hidden is an empty list", fmt.Sprintf("give the widths of at least one hidden layer, for example [%d], or leave it out", DefaultHidden))
	}
	if len(m.Hidden) > MaxHiddenLayer {
		return bad("model.hidden", fmt.Sprintf("%d layers long", len(m.Hidden)), fmt.Sprintf("at most %d layers", MaxHiddenLayer))
	}
	var err error
	for i, w := range m.Hidden {
		err = first(err, within(fmt.Sprintf("model.hidden[%d]", i), w, 1, MaxHiddenWidth))
	}
	return err
}

// checkOtherModel checks a model that is no multilayer perceptron.
func checkOtherModel(m *Model) error {
	switch {
	case m.Hidden != nil:
		return domain.Invalid(opSpec, "model.hidden is set, but model.kind is "+m.Kind, "remove model.hidden")
	case m.Kind == ModelTransformer && len(m.Layers) > 0:
		return domain.Invalid(opSpec, "model.layers is set, but model.kind is transformer", "remove model.layers; model.blocks says how deep it is")
	case m.Kind != ModelTransformer && len(m.Layers) == 0:
		return domain.Invalid(opSpec, "model.layers is empty", `give it lines, for example ["conv 16", "relu", "maxpool 2", "linear 64", "relu"]`)
	}
	return checkLayers(m)
}

// checkTextModel checks what only a model of text has.
func checkTextModel(s *Spec) error {
	m := &s.Model
	text := s.Data.Format == FormatText
	if m.Kind == ModelTransformer {
		if !text {
			return domain.Invalid(opSpec, "model.kind is transformer, but the data is no text", "set data.format to text, or choose another model")
		}
		if m.Heads > 0 && m.Embedding%m.Heads != 0 {
			return bad("model.embedding", m.Embedding, fmt.Sprintf("a multiple of model.heads (%d)", m.Heads))
		}
		if err := first(within("model.blocks", m.Blocks, 1, MaxBlocks), within("model.heads", m.Heads, 1, MaxHeads)); err != nil {
			return err
		}
	} else if m.Blocks != 0 || m.Heads != 0 {
		return bad("model.blocks, heads", fmt.Sprintf("%d, %d", m.Blocks, m.Heads), "nothing unless model.kind is transformer")
	}
	switch {
	case text && m.Kind != ModelTransformer && m.Kind != ModelMLP:
		return bad("model.kind", fmt.Sprintf("%q", m.Kind), `"mlp" or "transformer" for text`)
	case text:
		return first(within("model.context", m.Context, 1, MaxContext), within("model.embedding", m.Embedding, 1, MaxEmbedding))
	case m.Context != 0 || m.Embedding != 0:
		return bad("model.context, embedding", fmt.Sprintf("%d, %d", m.Context, m.Embedding), "nothing unless data.format is text")
	}
	return nil
}

// checkTable checks how the data is to be read.
func checkTable(d *Data) error {
	err := first(
		oneOf("data.format", d.Format, "", FormatCSV, FormatText, FormatIDX),
		oneOf("data.task", d.Task, "", TaskRegression),
		oneOf("data.missing", d.Missing, "", MissingMean),
		checkText("data.labels", d.Labels, MaxPathLength),
	)
	for _, f := range []struct {
		name string
		list []string
	}{{"data.categories", d.Categories}, {"data.ignore", d.Ignore}} {
		if err == nil && len(f.list) > MaxNamedColumns {
			err = bad(f.name, fmt.Sprintf("%d names long", len(f.list)), fmt.Sprintf("at most %d names", MaxNamedColumns))
		}
		for _, name := range f.list {
			err = first(err, checkText(f.name, name, domain.MaxNameLength))
		}
	}
	if err == nil && d.Shape != nil && len(d.Shape) != 2 && len(d.Shape) != 3 {
		err = bad("data.shape", fmt.Sprint(d.Shape), "[height, width] or [channels, height, width]")
	}
	for _, n := range d.Shape {
		err = first(err, within("data.shape", n, 1, MaxPictureSide))
	}
	if err != nil || d.Format == "" || d.Format == FormatCSV {
		if err == nil && d.Labels != "" {
			err = domain.Invalid(opSpec, "data.labels is set, but the data is a table", "remove it; data.label names the column")
		}
		return err
	}
	if d.Format == FormatText && d.Label != "" && d.Label != DefaultLabel {
		return domain.Invalid(opSpec, fmt.Sprintf("data.label is %q, but the data is text, which has no column of labels", domain.Clip(d.Label, domain.MaxNameLength)), "remove data.label, or name a CSV file in data.path")
	}
	if d.Task != "" || d.Missing != "" || len(d.Categories) > 0 || len(d.Ignore) > 0 || d.Shape != nil || d.Format == FormatText && d.Labels != "" {
		return domain.Invalid(opSpec, "data has settings of tables, but data.format is "+d.Format, "remove task, missing, categories, ignore, shape and labels")
	}
	return nil
}

func checkOptimizer(o *Optimizer) error {
	err := first(
		oneOf("optimizer.kind", o.Kind, OptimizerAdamW, OptimizerSGD),
		above("optimizer.lr", o.LR, MaxRate),
		within("optimizer.weight_decay", o.WeightDecay, 0, 1),
	)
	if err == nil && !(math.Abs(o.Clip) <= MaxRate) {
		err = bad("optimizer.clip", o.Clip, fmt.Sprintf("a gradient norm up to %v, or a negative number for no clipping", MaxRate))
	}
	if o.Kind == OptimizerSGD {
		return first(err, noBeta("optimizer.beta1", o.Beta1), noBeta("optimizer.beta2", o.Beta2))
	}
	return first(err, beta("optimizer.beta1", o.Beta1), beta("optimizer.beta2", o.Beta2))
}

// noBeta refuses a decay that plain gradient descent has no use for.
func noBeta(field string, v float64) error {
	if v == 0 {
		return nil
	}
	return domain.Invalid(opSpec, fmt.Sprintf("%s is %v, and optimizer.kind is sgd, which has none", field, v), "remove "+field+", or set optimizer.kind to adamw")
}

// beta refuses a decay that is not in [0, 1).
func beta(field string, v float64) error {
	if v >= 0 && v < 1 {
		return nil
	}
	return bad(field, v, "a number from 0 to below 1")
}

func checkSchedule(s *Schedule) error {
	err := oneOf("schedule.kind", s.Kind, ScheduleCosine, ScheduleConstant)
	if err == nil && !(s.Warmup <= 1 && s.Warmup >= -1) {
		err = bad("schedule.warmup", s.Warmup, "a fraction of the run up to 1, or -1 for no warm-up")
	}
	if err == nil && !(s.Floor <= 1 && s.Floor >= -1) {
		err = bad("schedule.floor", s.Floor, "a fraction of the peak up to 1, or -1 to end at zero")
	}
	return err
}

// WarmupFraction is the part of the run that warms up, 0 when it is switched off.
func (s Schedule) WarmupFraction() float64 { return max(s.Warmup, 0) }

// FloorFraction is the part of the peak rate that is left at the end, 0 when it is switched off.
func (s Schedule) FloorFraction() float64 { return max(s.Floor, 0) }

func checkChunk(s *Spec) error {
	if s.Chunk >= s.Batch && s.Chunk%s.Batch == 0 && s.Chunk <= MaxSamples {
		return nil
	}
	return bad("chunk", s.Chunk, fmt.Sprintf("a multiple of batch (%d): a chunk is a whole number of steps", s.Batch))
}

func checkRound(s *Spec) error {
	r, most := &s.Round, s.MaxChunksPerContribution
	err := first(
		within("round.chunks", r.Chunks, 0, MaxRoundChunks),
		within("round.deadline_seconds", r.Deadline, 0, MaxDeadline),
		within("max_chunks_per_contribution", most, 0, MaxRoundChunks),
	)
	if err == nil && most > 0 && r.Chunks > most*MaxContributions/2 { // carried chunks may come on top
		err = bad("max_chunks_per_contribution", most, fmt.Sprintf("%d or more, since a round has %d chunks and holds %d contributions",
			(2*r.Chunks+MaxContributions-1)/MaxContributions, r.Chunks, MaxContributions))
	}
	return err
}

func checkOuter(o *Outer) error {
	var err error
	if o.LR != nil {
		err = above("outer.lr", *o.LR, 2)
	}
	if o.Momentum != nil {
		err = first(err, beta("outer.momentum", *o.Momentum))
	}
	return err
}
