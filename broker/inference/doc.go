// Package inference answers for deployed models: it loads each model once, checks what it loads against the digests of
// the log, puts requests that come at the same time into one batch, and lets ensembles vote.
//
// It never serves weights whose digest is not the deployed one, never holds more models or bytes than its limits, and
// knows neither keys nor HTTP: broker/gateway/v2 calls it. How a model is built from weights is a Loader's business, which
// cmd makes of the built-in trainer. DESIGN.md has the path of one request.
package inference

import (
	"context"
	"io"

	"tensorturn/domain"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
	"tensorturn/domain/vote"
)

// Version is one version of a deployed model with all that is needed to answer for it. It never changes.
type Version struct {
	Model  domain.ModelID
	Number int
	Run    domain.RunID
	Spec   run.Spec    // the run's, not a member's
	Data   run.Dataset // its statistics standardise inputs

	Weights domain.Digest // manifest of the weights, of a single model
	Layout  domain.Digest // of the tensors, of a single model
	Members []Member      // of an ensemble, by number; a single model has none
	Vote    vote.Combiner // of an ensemble, with one weight for each of Members
	Copies  int           // machines that hold each model, of a version on agents; 0 for placement.Copies
}

// Member is one model of an ensemble.
type Member struct {
	Number  int
	Weights domain.Digest
	Layout  domain.Digest
}

// Facts describe what goes in and what comes out.
type Facts struct {
	Columns []string      // names of the inputs of one row, in order
	Classes []string      // labels, in the order of the probabilities
	Form    *dataset.Form // how a row of the table that was trained on becomes a row of inputs; nil where there was none
}

// Answer is what a version says of some rows.
type Answer struct {
	Facts         Facts
	Probabilities []float32 // [rows, classes]
	Class         []int     // [rows], the class that is named

	// Of an ensemble, nil and 0 otherwise.
	Votes     []int     // [rows, classes]: members that named the class
	Agreement []float64 // [rows]: fraction of the members used that named Class
	Used      int       // members that answered
}

// Backend answers for versions, wherever the models are: Engine in this process; agents are another.
type Backend interface {
	// Describe makes the version ready to answer and says what goes in and out.
	Describe(ctx context.Context, v *Version) (Facts, error)
	// Check fails when anything that the version is made of is missing or damaged, or cannot run there: what a deployment asks
	// before it is recorded.
	Check(ctx context.Context, v *Version) error
	// Predict answers for rows of raw features [rows, columns], as they stand in the table that the run was trained on.
	// The features must not be changed before it returns. Errors: domain.KindInvalid for values no model can take,
	// KindUnavailable when time may help, KindIntegrity when the stored weights are damaged.
	Predict(ctx context.Context, v *Version, features []float32) (Answer, error)
}

// Held is how a version stands on the machines of a Backend that asks machines.
type Held struct {
	Machines []domain.MachineID // that can be counted on and have a model of it ready, in order
	Ready    int                // models of it that some machine has ready
	Models   int                // that it has: 1, or the members of an ensemble
	Able     int                // machines that can be counted on and may hold models
}

// Predictor is one loaded model. It is used by one goroutine at a time. One with a method Broken() bool is asked after an error
// whether it may only be closed.
type Predictor interface {
	// Facts says what goes in and out.
	Facts() Facts
	// Layout describes the tensors it was loaded with.
	Layout() []safetensors.Tensor
	// Predict gives class probabilities [rows, classes] for raw features [rows, columns], in memory that it does not use again.
	Predict(ctx context.Context, features []float32) ([]float32, error)
	Close() error
}

// Source is what a Loader builds a model from. The readers check every part they read against its digest.
type Source struct {
	Run     domain.RunID
	Spec    run.Spec // the run's
	Member  int      // of an ensemble, from 1; 0 for a fused run's model
	Dataset run.Dataset
	Data    SizedReaderAt // the packed data set
	Weights io.Reader     // safetensors
}

// SizedReaderAt reads a blob at random.
type SizedReaderAt interface {
	io.ReaderAt
	Size() int64
}

// Loader builds a model. The readers are good until it returns.
type Loader func(ctx context.Context, s Source) (Predictor, error)
