package hub

import (
	"context"
	"fmt"

	"tensorturn/broker/wire"
	"tensorturn/domain"
)

// maxLogWishes bounds the wishes for logs that wait for machines, all together: each is one reader's request.
const maxLogWishes = 64

// wishes are the pieces of logs that readers wait for. They are the hub's memory, not the log's: a restart forgets them and readers
// ask again. A wish is told in every reply to its machine until the piece has come or its reader has gone. The
// Service's mutex guards them.
type wishes struct {
	last    uint64 // id of the newest
	waiting []*logWish
}

type logWish struct {
	machine domain.MachineID
	wish    wire.LogWish
	piece   chan wire.LogPiece // holds one
}

// of gives what a reply to the machine says.
func (w *wishes) of(m domain.MachineID) (out []wire.LogWish) {
	for _, l := range w.waiting {
		if l.machine == m && len(out) < wire.MaxLogWishes {
			out = append(out, l.wish)
		}
	}
	return out
}

// granted hands pieces to those who wait for them. A machine can only answer its own wishes; others' and old ones are dropped.
func (w *wishes) granted(m domain.MachineID, pieces []wire.LogPiece) {
	for _, p := range pieces {
		for i, l := range w.waiting {
			if l.machine == m && l.wish.ID == p.ID {
				l.piece <- p
				w.waiting = append(w.waiting[:i], w.waiting[i+1:]...)
				break
			}
		}
	}
}

func (w *wishes) drop(l *logWish) {
	for i, other := range w.waiting {
		if other == l {
			w.waiting = append(w.waiting[:i], w.waiting[i+1:]...)
			return
		}
	}
}

// ReadLog asks a machine for a piece of a log and waits for it, at most as long as ctx. The wish's ID is set here. A
// machine that does not answer in time is domain.KindUnavailable.
func (s *Service) ReadLog(ctx context.Context, m domain.MachineID, w wire.LogWish) (wire.LogPiece, error) {
	const op = "read log"
	l := &logWish{machine: m, wish: w, piece: make(chan wire.LogPiece, 1)}
	s.mu.Lock()
	if len(s.wishes.waiting) >= maxLogWishes {
		s.mu.Unlock()
		return wire.LogPiece{}, domain.Unavailable(op, fmt.Sprintf("%d readers wait for logs already", maxLogWishes), "try again in a few seconds", nil)
	}
	s.wishes.last++
	l.wish.ID = s.wishes.last
	s.wishes.waiting = append(s.wishes.waiting, l)
	s.mu.Unlock()
	s.wake(m)
	select {
	case p := <-l.piece:
		return p, nil
	case <-ctx.Done():
	case <-s.closing:
	}
	s.mu.Lock()
	s.wishes.drop(l)
	s.mu.Unlock()
	return wire.LogPiece{}, domain.Unavailable(op, fmt.Sprintf("machine %s does not answer", m), "its logs are on its own disk; try again when it is online", nil)
}

// Contested names the machines with whose key two agent processes speak.
func (s *Service) Contested(ctx context.Context) (ids []domain.MachineID, err error) {
	err = s.Read(ctx, func(c *Core) { ids = c.Contested() })
	return ids, err
}

// Telemetry is what a machine last said of itself since this hub started.
func (s *Service) Telemetry(m domain.MachineID) (wire.Telemetry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.said[m]
	return t, ok
}
