package pool

import (
	"fmt"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// MaxCounts is how many digests of one minute one command may carry: as many as an atomic batch.
const MaxCounts = domain.MaxBatchEvents

// InferenceCounted says what one key asked of one version of a model in one minute: a digest, so that the log does not
// grow by a record with every prediction.
type InferenceCounted struct {
	Key      domain.KeyID   `msgpack:"key"`
	Model    domain.ModelID `msgpack:"model"`
	Version  int            `msgpack:"version"`
	Run      domain.RunID   `msgpack:"run"`      // that made the version
	Minute   int64          `msgpack:"minute"`   // its beginning, unix microseconds on the hub's clock
	Requests int64          `msgpack:"requests"` // answered, well or not
	Rows     int64          `msgpack:"rows"`     // predicted
	Errors   int64          `msgpack:"errors"`   // of the requests, those that were refused or failed
}

func (InferenceCounted) EventName() string { return NameInferenceCounted }

// Line renders the fact.
func (e InferenceCounted) Line() string {
	line := fmt.Sprintf("key %s asked model %s version %d %s for %s in the minute of %s", e.Key, e.Model, e.Version, times(e.Requests), rows(e.Rows), day(e.Minute))
	if e.Errors > 0 {
		line += fmt.Sprintf(", %d failed", e.Errors)
	}
	return line
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func rows(n int64) string {
	if n == 1 {
		return "1 row"
	}
	return fmt.Sprintf("%d rows", n)
}

// CountInference records digests. The hub's front makes them; nothing is decided by them.
type CountInference struct{ Counts []InferenceCounted }

func (CountInference) isCommand() {}

func decideCount(c CountInference) ([]event.Data, error) {
	const op = "count inference"
	if len(c.Counts) > MaxCounts {
		return nil, domain.Invalid(op, fmt.Sprintf("%d digests in one command, at most %d are written as one", len(c.Counts), MaxCounts), "")
	}
	out := make([]event.Data, 0, len(c.Counts))
	for _, n := range c.Counts {
		switch {
		case !domain.ValidID(string(n.Key)) || !domain.ValidID(string(n.Model)) || n.Version < 1:
			return nil, domain.Invalid(op, "a digest names no key, model or version", "")
		case n.Requests < 1 || n.Rows < 0 || n.Errors < 0 || n.Errors > n.Requests:
			return nil, domain.Invalid(op, "a digest's figures do not fit", "")
		case time.UnixMicro(n.Minute).Truncate(time.Minute).UnixMicro() != n.Minute:
			return nil, domain.Invalid(op, "a digest does not begin at a whole minute", "")
		}
		out = append(out, &n)
	}
	return out, nil
}
