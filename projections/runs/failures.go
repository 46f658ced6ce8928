package runs

import (
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// MaxFailures bounds the list kept for each run: three of one slot end it.
const MaxFailures = 16

// Failure is one failure of a trainer.
type Failure struct {
	Seq   uint64        `json:"seq"`
	Time  time.Time     `json:"time"`
	Slot  domain.SlotID `json:"slot"`
	Unit  run.Unit      `json:"unit"`
	Error string        `json:"error"`
	Tail  []string      `json:"tail,omitempty"` // the last lines that its program printed
}

// failed keeps a failure.
func failed(r *Run, e event.Envelope, f Failure) {
	f.Seq, f.Time = e.Seq, e.Time
	r.Failures = append(r.Failures, f)
	if n := len(r.Failures); n > MaxFailures {
		r.Failures = r.Failures[n-MaxFailures:]
	}
}
