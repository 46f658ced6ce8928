package run

import (
	"tensorturn/domain"
	"tensorturn/domain/merge"
)

// Mode is how the machines of a run work together.
type Mode string

// ModeFused averages weights now and then into one model. ModeEnsemble is the other one.
const ModeFused Mode = "fused"

// Codec names how a delta is written. It is the tag in contributions and blobs.
type Codec string

// The delta codecs (design section 5).
const (
	CodecFP32   Codec = "fp32" // local weights, exact
	CodecInt8   Codec = "int8" // 8.125 bits a parameter; as all coded ones, block 256 with an fp32 scale
	CodecE3M0   Codec = "e3m0" // 4-bit, 4.125 bits a parameter
	CodecTwoBit Codec = "2bit" // 2.125 bits a parameter; what it loses of a delta a slot adds to its next one
)

// Known reports whether there is such a codec.
func (c Codec) Known() bool { return merge.Codec(c).Known() }

// Feedback reports whether a slot keeps what the code loses for its next delta.
func (c Codec) Feedback() bool { return c == CodecTwoBit }

// Spec is what a run's owner asks for. The same names stand in YAML, JSON and the log. Zero fields take the defaults
// of Resolve; a resolved spec has every default in force written out. Recorded specs are read for ever: a new field
// needs omitempty in its msgpack tag.
type Spec struct {
	Name      string    `yaml:"name" json:"name" msgpack:"name"`
	Mode      Mode      `yaml:"mode" json:"mode" msgpack:"mode"`
	Seed      uint64    `yaml:"seed" json:"seed" msgpack:"seed"`
	Data      Data      `yaml:"data" json:"data" msgpack:"data"`
	Trainer   string    `yaml:"trainer" json:"trainer" msgpack:"trainer"` // "builtin" or "process"
	Model     Model     `yaml:"model" json:"model" msgpack:"model"`
	Optimizer Optimizer `yaml:"optimizer" json:"optimizer" msgpack:"optimizer"`
	Schedule  Schedule  `yaml:"schedule" json:"schedule" msgpack:"schedule"`
	Batch     int       `yaml:"batch" json:"batch" msgpack:"batch"`    // samples per optimizer step
	Epochs    int       `yaml:"epochs" json:"epochs" msgpack:"epochs"` // passes over the training part
	Chunk     int       `yaml:"chunk" json:"chunk" msgpack:"chunk"`    // samples per chunk, a multiple of batch
	Round     Round     `yaml:"round" json:"round" msgpack:"round"`
	Outer     Outer     `yaml:"outer" json:"outer" msgpack:"outer"`
	Codec     Codec     `yaml:"codec" json:"codec" msgpack:"codec"`
	// CodecDown is how the next base reaches machines that hold the one before: as an increment in int8 or e3m0, or whole
	// (fp32, the default: the one that a resolved spec leaves empty, so that specs recorded before it are resolved ones). What
	// the code loses the hub adds again at the next merge.
	CodecDown Codec `yaml:"codec_down" json:"codec_down,omitempty" msgpack:"codec_down,omitempty"`
	// MaxChunksPerContribution limits how many chunks one delta may hold; 0 is unlimited.
	MaxChunksPerContribution int `yaml:"max_chunks_per_contribution" json:"max_chunks_per_contribution" msgpack:"max_chunks"`
	// EvaluateEvery is the number of rounds between evaluations; 0 evaluates the final model only.
	EvaluateEvery int `yaml:"evaluate_every" json:"evaluate_every" msgpack:"evaluate_every"`
	// KeepEvery keeps base and momentum of every k-th round and of the last three; 1 keeps all.
	KeepEvery int `yaml:"keep_every" json:"keep_every" msgpack:"keep_every"`
	// Command starts the trainer of a process run in the folder of its code. A first word "python" stands for each
	// machine's own interpreter.
	Command []string `yaml:"command" json:"command,omitempty" msgpack:"command,omitempty"`
	// Python is the interpreter of machines that name none of their own, a path or a name.
	Python string `yaml:"python" json:"python,omitempty" msgpack:"python,omitempty"`
	// Code is the folder that is packed for a process run, as the owner named it, for people.
	Code string `yaml:"code" json:"code,omitempty" msgpack:"code,omitempty"`
	// Network lets the program of a process run open sockets where machines keep programs in a sandbox.
	Network bool `yaml:"network" json:"network,omitempty" msgpack:"network,omitempty"`
	// Container is the image that the program runs in, with docker or podman; machines with neither refuse the run.
	Container string `yaml:"container" json:"container,omitempty" msgpack:"container,omitempty"`
	// Output is the weights file that a program writes into its output folder when it is a member without the helper. Left
	// out, a program that ends well without a word is looked for under DefaultOutput.
	Output string `yaml:"output" json:"output,omitempty" msgpack:"output,omitempty"`
	// Predict is the command that predicts for a program without the helper: safetensors in and out, see PROTOCOL.md.
	Predict []string `yaml:"predict" json:"predict,omitempty" msgpack:"predict,omitempty"`
	// Ensemble is what mode: ensemble asks for, nil in fused runs.
	Ensemble *Ensemble `yaml:"ensemble" json:"ensemble,omitempty" msgpack:"ensemble,omitempty"`
	// Requirements says what machines must have to take part, nil for nothing.
	Requirements *Requirements `yaml:"requirements" json:"requirements,omitempty" msgpack:"requirements,omitempty"`
	// Machines are the names or ids of those that alone may take part; empty for all.
	Machines []string `yaml:"machines" json:"machines,omitempty" msgpack:"machines,omitempty"`
	// Priority orders runs: a higher one is served first, equal ones by submission.
	Priority int `yaml:"priority" json:"priority,omitempty" msgpack:"priority,omitempty"`
}

// Down is the codec of increments, empty when machines fetch whole bases.
func (s *Spec) Down() Codec {
	if s.CodecDown == CodecFP32 {
		return ""
	}
	return s.CodecDown
}

// Data says where the samples are and what they are.
type Data struct {
	Path    string  `yaml:"path" json:"path" msgpack:"path"`          // the file as the owner named it, for people
	Label   string  `yaml:"label" json:"label" msgpack:"label"`       // column name, "first" or "last"
	Holdout float64 `yaml:"holdout" json:"holdout" msgpack:"holdout"` // fraction held out, stratified, seeded

	// Format is what the file holds: FormatCSV, FormatIDX or FormatText. A client that is told nothing looks at the file and
	// writes the answer here; empty is a table.
	Format string `yaml:"format" json:"format,omitempty" msgpack:"format,omitempty"`
	// Task is what is learnt of a table: TaskRegression, or empty for classes.
	Task string `yaml:"task" json:"task,omitempty" msgpack:"task,omitempty"`
	// Labels is the file of labels of an IDX file; left out, it is looked for beside it.
	Labels string `yaml:"labels" json:"labels,omitempty" msgpack:"labels,omitempty"`
	// Shape says that the columns of a table are a picture: [height, width] or [channels, height, width].
	Shape []int `yaml:"shape" json:"shape,omitempty" msgpack:"shape,omitempty"`
	// Missing is what becomes of a missing value of a table: MissingMean, or empty for a refusal.
	Missing string `yaml:"missing" json:"missing,omitempty" msgpack:"missing,omitempty"`
	// Categories names columns of words; each word becomes a column of 0 and 1. Ignore names columns to leave out.
	Categories []string `yaml:"categories" json:"categories,omitempty" msgpack:"categories,omitempty"`
	Ignore     []string `yaml:"ignore" json:"ignore,omitempty" msgpack:"ignore,omitempty"`

	// What the owner says of the data of a process run: the script reads them itself, so that nobody packs and counts
	// them. A trainer whose data has another number of samples is refused on its machine.
	Samples  int `yaml:"samples" json:"samples,omitempty" msgpack:"samples,omitempty"`    // N: samples of the training part
	Heldout  int `yaml:"heldout" json:"heldout,omitempty" msgpack:"heldout,omitempty"`    // samples that the script evaluates on, 0: it does not
	Features int `yaml:"features" json:"features,omitempty" msgpack:"features,omitempty"` // values of one input of predict, 0: unknown
	Classes  int `yaml:"classes" json:"classes,omitempty" msgpack:"classes,omitempty"`    // values of one output of predict, 0: unknown
}

// Model describes a built-in model.
type Model struct {
	Kind   string `yaml:"kind" json:"kind" msgpack:"kind"`       // "mlp", "cnn", "layers" or "transformer"
	Hidden []int  `yaml:"hidden" json:"hidden" msgpack:"hidden"` // widths of the hidden layers of an mlp

	// Layers are the lines of a network that is written out, without the last linear layer (see ParseLayer).
	Layers []string `yaml:"layers" json:"layers,omitempty" msgpack:"layers,omitempty"`

	// Of a model of text: the bytes that it sees before the one it predicts, and the values that stand for a byte.
	Context   int `yaml:"context" json:"context,omitempty" msgpack:"context,omitempty"`
	Embedding int `yaml:"embedding" json:"embedding,omitempty" msgpack:"embedding,omitempty"`
	// Of a transformer: blocks of attention and feed-forward layers, and heads of each attention.
	Blocks int `yaml:"blocks" json:"blocks,omitempty" msgpack:"blocks,omitempty"`
	Heads  int `yaml:"heads" json:"heads,omitempty" msgpack:"heads,omitempty"`
}

// Optimizer is the inner optimizer; its state stays on the slot.
type Optimizer struct {
	Kind        string  `yaml:"kind" json:"kind" msgpack:"kind"` // "adamw" or "sgd"
	LR          float64 `yaml:"lr" json:"lr" msgpack:"lr"`       // peak learning rate
	Beta1       float64 `yaml:"beta1" json:"beta1" msgpack:"beta1"`
	Beta2       float64 `yaml:"beta2" json:"beta2" msgpack:"beta2"`
	WeightDecay float64 `yaml:"weight_decay" json:"weight_decay" msgpack:"weight_decay"`
	Clip        float64 `yaml:"clip" json:"clip" msgpack:"clip"` // global gradient norm; negative switches it off
}

// Schedule is the inner learning rate over the run's sample clock.
type Schedule struct {
	Kind   string  `yaml:"kind" json:"kind" msgpack:"kind"`       // "cosine" or "constant"
	Warmup float64 `yaml:"warmup" json:"warmup" msgpack:"warmup"` // fraction of the run; negative switches it off
	Floor  float64 `yaml:"floor" json:"floor" msgpack:"floor"`    // fraction of the peak at the end; negative: to zero
}

// Round sizes the rounds.
type Round struct {
	Chunks   int     `yaml:"chunks" json:"chunks" msgpack:"chunks"`                               // B: chunks of a planned round
	Deadline float64 `yaml:"deadline_seconds" json:"deadline_seconds" msgpack:"deadline_seconds"` // 0: 4 × the expected time
}

// Outer is the outer Nesterov step. Nil fields choose by planned rounds: 0.7, 0.9 above 400; 0.7, 0.7 from 40 to 400;
// 1.0, 0.5 below 40 (design section 5).
type Outer struct {
	LR       *float64 `yaml:"lr" json:"lr,omitempty" msgpack:"lr"`
	Momentum *float64 `yaml:"momentum" json:"momentum,omitempty" msgpack:"momentum"`
}

// Dataset is what packing found: facts, not wishes. Of a process run it is what ProcessData makes of the spec.
type Dataset struct {
	Blob     domain.Digest `json:"blob" msgpack:"blob"`                       // the packed data set; of a process run, the packed code
	Samples  int           `json:"samples" msgpack:"samples"`                 // N: rows of the training part
	Heldout  int           `json:"heldout" msgpack:"heldout"`                 // rows held out
	Features int           `json:"features" msgpack:"features"`               // columns without the label
	Classes  int           `json:"classes" msgpack:"classes"`                 // distinct labels
	Block    int           `json:"block" msgpack:"block"`                     // samples of one shuffle block: what one blob part holds
	Bytes    int64         `json:"bytes,omitempty" msgpack:"bytes,omitempty"` // of the blob; the hub writes it down at the submission

	// Predicts is the number of bytes that a sample of text predicts; 0: the data is no text. Features is its context then.
	Predicts int `json:"predicts,omitempty" msgpack:"predicts,omitempty"`
	// Task is TaskRegression where a sample has a number instead of a class; Classes is 0 then.
	Task string `json:"task,omitempty" msgpack:"task,omitempty"`
	// Channels, Height and Width are the shape of a row that is a picture, 0 otherwise.
	Channels int `json:"channels,omitempty" msgpack:"channels,omitempty"`
	Height   int `json:"height,omitempty" msgpack:"height,omitempty"`
	Width    int `json:"width,omitempty" msgpack:"width,omitempty"`
}
