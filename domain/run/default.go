package run

import (
	"strings"

	"tensorturn/domain/merge"
)

// What a spec's zero fields become. Each is written once, with its reason.
const (
	DefaultSeed         = 1       // a run without a word about chance is repeatable
	DefaultLabel        = "last"  // most tables have their label in the last column
	DefaultHoldout      = 0.2     // the usual fifth: accuracy on a few hundred rows is known to about two points
	DefaultBatch        = 32      // small enough for small data, large enough for a steady gradient
	DefaultEpochs       = 20      // small tables converge within it
	DefaultHidden       = 64      // width of the one hidden layer
	DefaultTextHidden   = 128     // of a model of text: the pilot's (algorithms.md 4)
	DefaultContext      = 8       // bytes that a small model of text sees: enough for the word at hand
	DefaultEmbedding    = 16      // values that stand for one of 256 bytes
	DefaultWindow       = 64      // bytes that a transformer sees
	DefaultModelWidth   = 64      // of a transformer: a laptop trains it
	DefaultBlocks       = 2       // of a transformer
	DefaultHeads        = 4       // of a transformer
	DefaultAdamWRate    = 3e-3    // small networks on standardised columns take it well
	DefaultSGDRate      = 0.1     // plain gradient descent needs a larger step for the same ground
	DefaultBeta1        = 0.9     // AdamW's paper
	DefaultBeta2        = 0.999   // AdamW's paper
	DefaultClip         = 1.0     // one bad batch cannot throw the weights away
	DefaultWarmup       = 0.03    // optimizer statistics settle before the full rate
	DefaultFloor        = 0.05    // the last rounds still learn
	DefaultChunkBatches = 4       // chunk = 4 × batch: short enough to steal, long enough to matter
	DefaultRounds       = 20      // outer momentum needs rounds; fewer only where there are fewer chunks
	DefaultKeepEvery    = 10      // design section 3: base and momentum every ten rounds, and the last three
	DefaultTrainer      = Builtin // needs nothing on the machine
)

// Names of what is built in.
const (
	Builtin          = "builtin"
	Process          = "process" // the owner's own program; see agent/trainer/PROTOCOL.md
	ModelMLP         = "mlp"
	OptimizerAdamW   = "adamw"
	OptimizerSGD     = "sgd"
	ScheduleCosine   = "cosine"
	ScheduleConstant = "constant"
	FormatCSV        = "csv"
	FormatText       = "text"
	FormatIDX        = "idx"
	TaskRegression   = "regression"
	MissingMean      = "mean"
)

// Defaults fills the fields that do not depend on the data and checks them. It is what a client calls before it packs
// the data, since holdout, label and seed decide the packing. It may be repeated.
func Defaults(s Spec) (Spec, error) {
	fill(&s)
	if err := checkSpec(&s); err != nil {
		return Spec{}, err
	}
	return s, nil
}

// Resolve fills every zero field and checks the whole against the data. A resolved spec resolves to itself.
func Resolve(s Spec, d Dataset) (Spec, error) {
	s, err := Defaults(s)
	if err != nil {
		return Spec{}, err
	}
	if err := checkData(&s, &d); err != nil {
		return Spec{}, err
	}
	if s.IsEnsemble() {
		return s, checkMemberSizes(&s, &d)
	}
	if s.Round.Chunks == 0 && chunkCount(&s, &d) <= MaxChunks {
		s.Round.Chunks = min(max(TotalChunks(s, d)/DefaultRounds, 1), MaxRoundChunks)
	}
	if err := first(checkSize(&s, &d), checkRound(&s)); err != nil {
		return Spec{}, err
	}
	lr, momentum := merge.OuterDefaults(Planned(s, d))
	if s.Outer.LR == nil {
		s.Outer.LR = &lr
	}
	if s.Outer.Momentum == nil {
		s.Outer.Momentum = &momentum
	}
	return s, nil
}

// fill sets the zero fields that do not depend on the data.
func fill(s *Spec) {
	or(&s.Trainer, DefaultTrainer)
	if s.Trainer == Process {
		fillProcess(s)
	} else {
		fillBuiltin(s)
	}
	or(&s.Mode, ModeFused)
	or(&s.Seed, DefaultSeed)
	or(&s.Batch, DefaultBatch)
	or(&s.Epochs, DefaultEpochs)
	fillRequirements(s)
	or(&s.Chunk, DefaultChunkBatches*s.Batch)
	if s.Mode == ModeEnsemble {
		fillEnsemble(s)
		return
	}
	or(&s.Codec, CodecE3M0)
	or(&s.KeepEvery, DefaultKeepEvery)
}

// fillBuiltin sets what the built-in trainer needs to know of model, data and optimizer.
func fillBuiltin(s *Spec) {
	or(&s.Name, nameOf(s.Data.Path))
	or(&s.Data.Label, DefaultLabel)
	or(&s.Data.Holdout, DefaultHoldout)
	fillModel(&s.Model, s.Data.Format)
	fillOptimizer(&s.Optimizer)
	or(&s.Schedule.Kind, ScheduleCosine)
	if s.Schedule.Kind == ScheduleCosine {
		or(&s.Schedule.Warmup, DefaultWarmup)
		or(&s.Schedule.Floor, DefaultFloor)
	}
}

func fillModel(m *Model, format string) {
	switch {
	case m.Kind == "" && len(m.Layers) > 0:
		m.Kind = ModelLayers
	case m.Kind == "":
		m.Kind = ModelMLP
	}
	switch m.Kind {
	case ModelTransformer:
		or(&m.Context, DefaultWindow)
		or(&m.Embedding, DefaultModelWidth)
		or(&m.Blocks, DefaultBlocks)
		or(&m.Heads, DefaultHeads)
		return
	case ModelCNN:
		if m.Layers == nil {
			m.Layers = DefaultCNN()
		}
		return
	case ModelLayers:
		return
	}
	width := DefaultHidden
	if format == FormatText {
		width = DefaultTextHidden
		or(&m.Context, DefaultContext)
		or(&m.Embedding, DefaultEmbedding)
	}
	if m.Hidden == nil { // an empty list is no wish for the default: it is refused
		m.Hidden = []int{width}
	}
}

func fillOptimizer(o *Optimizer) {
	or(&o.Kind, OptimizerAdamW)
	or(&o.Clip, DefaultClip)
	if o.Kind != OptimizerAdamW {
		or(&o.LR, DefaultSGDRate)
		return
	}
	or(&o.LR, DefaultAdamWRate)
	or(&o.Beta1, DefaultBeta1)
	or(&o.Beta2, DefaultBeta2)
}

// or sets *field to value when it is zero.
func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// nameOf names a run after its data file, without folder and extension.
func nameOf(path string) string {
	path = path[strings.LastIndexAny(path, `/\`)+1:]
	name, _, _ := strings.Cut(path, ".")
	if name == "" {
		return "run"
	}
	return name
}
