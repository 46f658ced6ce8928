package hub

import (
	"tensorturn/domain/event"
	"tensorturn/domain/freeze"
)

// Follower folds the log into state of its own and can begin from a snapshot: views, metrics, the feed's position. All its
// methods are called on one goroutine, the loop's; Note must be quick.
type Follower interface {
	// Note takes events that are durable, in order: at the start those behind the snapshot, or all.
	Note(es []event.Envelope)
	// Parts names what it holds. It is read between two calls of Note.
	Parts() []freeze.Part
	// Resume says that the parts were set to what they were behind the record at seq; Note goes on with the next one.
	Resume(seq uint64)
}

// Follow registers a follower. It must be called before Start.
func (s *Service) Follow(f Follower) {
	s.followers = append(s.followers, f)
	s.listeners = append(s.listeners, f.Note)
}

// OnCommitted registers a listener for every event of the log: first all that Start reads, then each durable batch, in
// order, on one goroutine. It must be called before Start, and the listener must be quick. One that must see the log from
// its beginning keeps the Service from starting at a snapshot: what can, Follows.
func (s *Service) OnCommitted(f func([]event.Envelope)) {
	s.whole = true
	s.listeners = append(s.listeners, f)
}

// roster is the Service's own follower: who is who on the link, and positions to sign.
type roster struct{ s *Service }

// Note implements Follower.
func (r roster) Note(es []event.Envelope) { r.s.learn(es) }

// Parts implements Follower.
func (r roster) Parts() []freeze.Part {
	return []freeze.Part{{Name: "service", Values: []any{&r.s.accounts, &r.s.owners, &r.s.heads.digests}}}
}

// Resume implements Follower.
func (r roster) Resume(uint64) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.heads.sign()
}
