package goodput

import (
	"fmt"
	"slices"

	"tensorturn/domain/run"
)

// Kind is what became of a slot's second.
type Kind string

// The kinds. The first three are training that has not been lost.
const (
	Counted      Kind = "counted"      // trained, and counted by the ledger
	Held         Kind = "held"         // trained, and not counted yet: of a run under way
	Underway     Kind = "underway"     // a chunk that is being trained, or its report is on its way: of a run under way
	Discarded    Kind = "discarded"    // trained, and thrown away
	Torn         Kind = "torn"         // a chunk begun, or its base being fetched, when the trainer, the machine or the round ended
	Between      Kind = "between"      // between two chunks
	Sending      Kind = "sending"      // a delta is made, sent, inspected
	Turning      Kind = "turning"      // after a delta, to the next chunk
	Stragglers   Kind = "stragglers"   // done, waiting for the others of the round
	Merging      Kind = "merging"      // the round is closed, waiting for its merge
	Opening      Kind = "opening"      // merged, waiting for the next round
	Preparing    Kind = "preparing"    // fetching base and data, loading them
	Restarting   Kind = "restarting"   // after a failure: trainer, base
	Silent       Kind = "silent"       // the hub did not hear of the machine
	Idle         Kind = "idle"         // a round is open, and there is no work for the slot
	Initialising Kind = "initialising" // before the first round: the first base is made
	Evaluating   Kind = "evaluating"   // measuring a model on held-out data
	Finishing    Kind = "finishing"    // all is counted and merged, the run has not ended
	Paused       Kind = "paused"       // the run is paused
	HubAway      Kind = "hub_away"     // an observer says so; the log cannot
	Unheard      Kind = "unheard"      // the hub is back, and the slot that had work has not spoken
)

// away is the kind of no second: the slot could not have worked.
const away Kind = ""

// Kinds lists all kinds in their order.
func Kinds() []Kind {
	return []Kind{Counted, Held, Underway, Discarded, Torn, Between, Sending, Turning, Stragglers, Merging, Opening, Preparing, Restarting, Silent,
		Idle, Initialising, Evaluating, Finishing, Paused, HubAway, Unheard}
}

// Lost reports whether time of the kind trained nothing that counts, or may yet count.
func (k Kind) Lost() bool { return k != Counted && k != Held && k != Underway }

// waits reports whether a slot waits for others meanwhile: it loses nothing by being silent.
func (k Kind) waits() bool {
	return slices.Contains([]Kind{Stragglers, Merging, Opening, Initialising, Finishing, Paused}, k)
}

// work reports whether a slot with chunks to train may have been training one.
func (k Kind) work() bool { return k == Between || k == Preparing }

// Words says the kind for people.
func (k Kind) Words() string {
	return map[Kind]string{
		Counted:      "trained, counted",
		Held:         "trained, not counted yet",
		Underway:     "a chunk under way",
		Discarded:    "trained, thrown away",
		Torn:         "a chunk begun and broken off",
		Between:      "between two chunks",
		Sending:      "delta: made, sent, inspected",
		Turning:      "after a delta, to the next chunk",
		Stragglers:   "done, waiting for the others of the round",
		Merging:      "waiting for the merge",
		Opening:      "merged, waiting for the next round",
		Preparing:    "fetching the base, loading it",
		Restarting:   "after a failure: trainer, base",
		Silent:       "the hub did not hear of the machine",
		Idle:         "without work while a round is open",
		Initialising: "before the first round: making the first base",
		Evaluating:   "measuring a model on held-out data",
		Finishing:    "all is merged, waiting for the run's end",
		Paused:       "the run is paused",
		HubAway:      "the hub is away",
		Unheard:      "the hub is back, the slot has not spoken",
	}[k]
}

// Advice says what would make less of the kind, empty where nothing is known to. The spec is the run's, resolved.
func (k Kind) Advice(s run.Spec) string {
	switch k {
	case Discarded:
		return "chunks are trained twice, or their delta never counts: look for refused, cut and late ones with run replay --brief, and let each delta hold less (max_chunks_per_contribution)"
	case Torn:
		return fmt.Sprintf("smaller chunks lose less when a trainer or a machine ends in the midst of one (chunk, now %d samples), and smaller deltas lose less of what is trained "+
			"(max_chunks_per_contribution); machine drain before a machine is switched off loses nothing", s.Chunk)
	case Between:
		return fmt.Sprintf("larger chunks have fewer gaps between them (chunk, now %d samples); a script that reads its data ahead has shorter ones", s.Chunk)
	case Sending:
		return fmt.Sprintf("fewer bits a parameter (codec, now %s), or longer rounds, which send less often (round.chunks, now %d)", s.Codec, s.Round.Chunks)
	case Turning:
		if s.MaxChunksPerContribution > 0 {
			return fmt.Sprintf("larger deltas begin anew less often (max_chunks_per_contribution, now %d)", s.MaxChunksPerContribution)
		}
		return fmt.Sprintf("longer rounds begin anew less often (round.chunks, now %d)", s.Round.Chunks)
	case Stragglers:
		return fmt.Sprintf("longer rounds wait less often (round.chunks, now %d), and smaller chunks end closer to each other (chunk, now %d samples)", s.Round.Chunks, s.Chunk)
	case Merging, Opening:
		return fmt.Sprintf("longer rounds merge less often (round.chunks, now %d)", s.Round.Chunks)
	case Preparing:
		return fmt.Sprintf("longer rounds fetch a base less often (round.chunks, now %d), and a coded way down makes it smaller (codec_down: int8 or e3m0)", s.Round.Chunks)
	case Restarting:
		return "look for why trainers and agents end: run logs, and run replay --brief"
	case Silent:
		return "a machine that is drained before it is switched off or leaves the network is not waited for (machine drain); for a poor link see doctor on that machine"
	case Idle:
		return fmt.Sprintf("more chunks in a round are work for more slots (round.chunks, now %d; chunk, now %d samples); run explain says who may take part", s.Round.Chunks, s.Chunk)
	case Initialising:
		return "a longer run pays for its start once (epochs)"
	case Evaluating, Finishing:
		return "fewer evaluations, or fewer held-out samples, take less (evaluate_every)"
	case Paused:
		return "run resume lets it go on"
	}
	return ""
}
