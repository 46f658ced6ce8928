package agent

import (
	"tensorturn/broker/wire"
	"tensorturn/domain"
)

// Logs is what owners' programs printed on this machine, by run and attempt.
type Logs interface {
	// List gives the logs of a run, oldest first.
	List(run domain.RunID) []wire.LogFile
	// Read gives at most n bytes of an attempt's log from a position on, and where they begin: later than asked when older
	// bytes are gone. A negative position counts from the end.
	Read(run domain.RunID, attempt int, from int64, n int) (data []byte, at int64, err error)
}

// read answers the hub's wishes; the pieces go with the next sync. The hub is not believed either: sizes are bounded
// here again, and all it can name is a run and an attempt.
func (a *Agent) read(wishes []wire.LogWish) (pieces []wire.LogPiece) {
	for _, w := range wishes[:min(len(wishes), wire.MaxLogWishes)] {
		p := wire.LogPiece{ID: w.ID}
		if a.cfg.Logs != nil {
			a.fill(&p, w)
		}
		pieces = append(pieces, p)
	}
	return pieces
}

func (a *Agent) fill(p *wire.LogPiece, w wire.LogWish) {
	files := a.cfg.Logs.List(w.Run)
	for _, f := range files {
		p.Others = append(p.Others, f)
		if (w.Attempt == wire.AnyAttempt || w.Attempt == f.Attempt) && (w.Member == wire.AnyMember || w.Member == f.Member) {
			p.Found, p.Log = true, f // the newest that fits
		}
	}
	p.Others = p.Others[max(0, len(p.Others)-wire.MaxLogFiles):]
	if !p.Found {
		return
	}
	data, at, err := a.cfg.Logs.Read(w.Run, p.Log.Attempt, w.From, min(max(w.Bytes, 1), wire.MaxLogPiece))
	if err != nil {
		p.Problem = domain.Clip(err.Error(), wire.MaxText)
		return
	}
	p.Data, p.From = data, at
}
