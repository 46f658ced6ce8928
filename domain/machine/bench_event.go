package machine

import (
	"strings"
)

// The names of the facts of benchmarks.
const (
	NameBenchAsked  = "bench.asked"
	NameBenchmarked = "machine.benchmarked"
	NameSlow        = "machine.slow"
	NameRecovered   = "machine.recovered"
)

type (
	// BenchAsked means that the machine shall be measured once more, when it has nothing else to do.
	BenchAsked struct {
		Number int    `msgpack:"number"`
		Reason string `msgpack:"reason"`
		Anew   bool   `msgpack:"anew,omitempty"` // earlier measurements do not count any more
	}
	// Benchmarked is what the machine measured of itself. Short are the figures far below what is usual for it.
	Benchmarked struct {
		Number int         `msgpack:"number"`
		Reason string      `msgpack:"reason"`
		Score  Score       `msgpack:"score"`
		Short  []Shortfall `msgpack:"short,omitempty"`
	}
	// BecameSlow means that some figures are 30 % or more below what the machine usually does, other ones than before.
	BecameSlow struct {
		Short []Shortfall `msgpack:"short"`
	}
	// Recovered means that no figure is, any more.
	Recovered struct{}
)

func (BenchAsked) EventName() string  { return NameBenchAsked }
func (Benchmarked) EventName() string { return NameBenchmarked }
func (BecameSlow) EventName() string  { return NameSlow }
func (Recovered) EventName() string   { return NameRecovered }

// Line renders the fact.
func (e BenchAsked) Line() string {
	s := "shall be measured: " + e.Reason
	if e.Anew {
		s += "; what it did before does not count any more"
	}
	return s
}

// Line renders the fact.
func (e Benchmarked) Line() string {
	var words []string
	for _, d := range e.Score.Devices {
		if d.Flops > 0 {
			name := d.Name
			if name == "" {
				name = "a processor"
			}
			words = append(words, amount(Matrix, d.Flops)+" on "+name)
		}
	}
	var link []string
	if e.Score.Up > 0 {
		link = append(link, amount(Up, e.Score.Up)+" up")
	}
	if e.Score.Down > 0 {
		link = append(link, amount(Down, e.Score.Down)+" down")
	}
	if len(link) > 0 {
		words = append(words, "link "+strings.Join(link, ", "))
	}
	if len(words) == 0 {
		words = []string{"nothing could be measured"}
	}
	return "measured (" + e.Reason + "): " + strings.Join(words, ", ")
}

// Line renders the fact.
func (e BecameSlow) Line() string {
	words := make([]string, len(e.Short))
	for i, f := range e.Short {
		words[i] = f.Said()
	}
	return "slow: " + strings.Join(words, "; ")
}

// Line renders the fact.
func (Recovered) Line() string { return "as fast as usual again" }
