// Package vote makes one answer of several members' answers and measures both: which rule combines them, with which
// weights, at which temperature, and how good members and vote are on data none of them saw.
//
// Compute does all of it from the members' outputs on the held-out rows (files of WriteOutputs). Combiner is the same
// rule at work on one row, for whoever serves an ensemble. Regress is the vote of members that predict numbers.
//
// The same bits on every machine, now and in years: float64, sums in row order and member order, every product wrapped
// in a conversion so that no compiler fuses it, and exponential and logarithm of its own (math.Exp uses fused
// instructions where a processor has them). It never reads stores, never averages weights of models and starts no goroutine.
//
// Agents call WriteOutputs; the hub's vote worker and run replay --verify call ReadOutputs and Compute; serving calls
// Combiner. DESIGN.md has the rules, the split of the rows and the reasons.
package vote

// Rule names how members' answers become one. The names are recorded.
type Rule string

// The rules.
const (
	Mean     Rule = "mean"     // mean of the probabilities: the default (Lakshminarayanan et al. 2017, deep ensembles)
	Majority Rule = "majority" // the class most members name; ties go to the class with more probability, then the lower
	LogOdds  Rule = "log_odds" // mean weighted by each member's log odds of being right
	Stacking Rule = "stacking" // non-negative weights on log-probabilities, fitted
	Greedy   Rule = "greedy"   // mean of members picked one after another, with replacement (Caruana et al. 2004)
	Auto     Rule = "auto"     // stacking up to GreedyAbove members, greedy above; equal weights when neither is a gain
)

// Rules lists every rule a spec may ask for.
func Rules() []Rule { return []Rule{Mean, Majority, LogOdds, Stacking, Greedy, Auto} }

// Limits of a vote.
const (
	// MaxMembers bounds the members of one vote: their pairs must fit an event.
	MaxMembers = 256
	// MaxValues bounds members × rows × classes in memory: 64 MiB of float32. Beyond it every n-th row is used (Stride).
	MaxValues = 1 << 24
	// MinFitRows is the least a part must have before anything is fitted on it. Below it, all rows are test rows, weights
	// are equal and the temperature is 1.
	MinFitRows = 10
	// GreedyAbove is the number of members above which Auto selects instead of stacking: with many members their weights
	// are fitted to noise.
	GreedyAbove = 8
	// MinProbability is the least probability a logarithm sees, 2^-40: float32 softmax gives exact zeros, and one of them
	// must not make a log loss infinite.
	MinProbability = 1.0 / (1 << 40)
	// Bins of the expected calibration error.
	Bins = 15
)

// Input is what a vote is computed from. All rows were held out: no member saw them.
type Input struct {
	Classes int
	Labels  []int32     // [rows], 0 to Classes−1
	Members [][]float32 // for each member [rows, Classes] probabilities, in the order of the rows
	Single  []float32   // the same of a model that is compared and has no vote; may be nil
}

// Result is a vote: how to combine the members, and how good all of it is on the test part.
type Result struct {
	Asked Rule `json:"asked" msgpack:"asked"`
	// Rule is the rule in force: Auto is resolved, and a fitted rule that was no gain has become Mean.
	Rule     Rule   `json:"rule" msgpack:"rule"`
	Fallback string `json:"fallback,omitempty" msgpack:"fallback,omitempty"` // why Rule is not what was asked
	// Weights are the members', in their order. They sum to 1 but for Stacking, whose sum sharpens or flattens.
	Weights     []float64 `json:"weights" msgpack:"weights"`
	Temperature float64   `json:"temperature" msgpack:"temperature"` // applied to the combined probabilities

	Rows     int `json:"rows" msgpack:"rows"`           // rows used, all parts
	FitRows  int `json:"fit_rows" msgpack:"fit_rows"`   // rows that weights and temperatures were fitted on
	TestRows int `json:"test_rows" msgpack:"test_rows"` // rows that everything below is measured on

	Members []Score `json:"members" msgpack:"members"`
	Mean    Score   `json:"mean_single" msgpack:"mean_single"` // mean of the members' scores
	Vote    Score   `json:"vote" msgpack:"vote"`
	Single  *Score  `json:"single,omitempty" msgpack:"single,omitempty"`
	// Best is the member that did best on the fitting part: what one would have picked without the test part.
	Best int `json:"best" msgpack:"best"`
	// Pairs are test rows on which two members name different classes: (0,1), (0,2), …, (1,2), …
	Pairs []int `json:"pairs,omitempty" msgpack:"pairs,omitempty"`
	// Disagreement is the mean over pairs of the fraction of such rows; 0 for a single member.
	Disagreement float64 `json:"disagreement" msgpack:"disagreement"`
}

// Score is one model measured on the test part.
type Score struct {
	Accuracy float64 `json:"accuracy" msgpack:"accuracy"` // fraction
	NLL      float64 `json:"nll" msgpack:"nll"`           // mean negative log-likelihood, nats
	Brier    float64 `json:"brier" msgpack:"brier"`       // mean squared distance from the truth, 0 to 2
	ECE      float64 `json:"ece" msgpack:"ece"`           // expected calibration error, 15 bins of equal width

	// The same at the temperature that was fitted for this model on the fitting part. Accuracy is the same.
	Temperature float64 `json:"temperature" msgpack:"temperature"`
	ScaledNLL   float64 `json:"scaled_nll" msgpack:"scaled_nll"`
	ScaledBrier float64 `json:"scaled_brier" msgpack:"scaled_brier"`
	ScaledECE   float64 `json:"scaled_ece" msgpack:"scaled_ece"`
}
