package hub

import (
	"context"

	"tensorturn/broker"
	"tensorturn/domain"
	"tensorturn/domain/freeze"
)

// maxThawed bounds the memory that one part of a snapshot may take. The state of a million chunks takes some 30 MB.
const maxThawed = 4 << 30

// foldPart is the name of Core's part.
const foldPart = "hub"

// Base is a thawed fold and the place of the log it stands at. Core makes it its own: a base is used once.
type Base struct {
	At   Position
	fold *fold
}

// Thaw makes a base of what Core.Freeze gave. Errors: domain.KindIntegrity, the bytes are not those.
func Thaw(at Position, frozen []byte) (*Base, error) {
	f := newFold()
	set, err := freeze.Thaw(f.part(), frozen, maxThawed)
	if err != nil {
		return nil, err
	}
	set()
	return &Base{At: at, fold: f}, nil
}

// part names what a fold holds. Which command ids are remembered follows from the ring.
func (f *fold) part() freeze.Part {
	return freeze.Part{Name: foldPart, Values: []any{&f.runs, &f.runOrder, &f.live, &f.machines, &f.order, &f.accounts, &f.pool,
		&f.retired, &f.worked, &f.merged, &f.decided, &f.causes.ring, &f.causes.next}, Restored: f.restored}
}

func (f *fold) restored() {
	f.causes.seen = make(map[domain.CommandID]struct{}, len(f.causes.ring))
	f.causes.keys = nil
	for _, id := range f.causes.ring {
		f.causes.seen[id] = struct{}{}
		f.causes.remember(id)
	}
}

// Freeze gives the fold and the place of the log it stands at. ok is false while it stands at none: a failed append has
// left it ahead of the log, or the log is not to be trusted. The same fold gives the same bytes.
func (c *Core) Freeze() (at Position, frozen []byte, ok bool, err error) {
	if c.stale != nil || c.readOnly != nil || c.head() == 0 {
		return Position{}, nil, false, nil
	}
	at.Seq, at.Digest = c.committer.Head()
	frozen, err = freeze.Freeze(c.fold.part())
	return at, frozen, err == nil, err
}

// begin gives the fold to replay onto and its place: a base that the log vouches for, or nothing at all.
func (c *Core) begin(ctx context.Context) (*fold, Position, error) {
	if c.cfg.Base == nil {
		return newFold(), Position{}, nil
	}
	fresh := c.fold == nil // later, what a base holds beyond what was given out would never be given out
	b := c.cfg.Base(ctx)
	if b == nil || !fresh && b.At.Seq > c.delivered {
		return newFold(), Position{}, nil
	}
	holds, err := broker.Holds(ctx, c.log, b.At.Seq, b.At.Digest)
	if err != nil {
		return nil, Position{}, err
	}
	if !holds {
		return newFold(), Position{}, nil
	}
	c.delivered = max(c.delivered, b.At.Seq)
	return b.fold, b.At, nil
}

// Part names what Core folds, with nothing in it: for the fingerprint, and for tests that hold every state against what
// can be frozen.
func Part() freeze.Part { return newFold().part() }
