// Package projections folds the log into views that people and the API read. A view decides nothing: drop it, replay the
// log, and it is the same again. The engine holds position and order; each view is a package of its own.
//
// It imports domain alone and is fed by the hub's Service (after each commit) or by a reader of stored records.
package projections

import (
	"fmt"
	"sync"

	"tensorturn/domain/event"
	"tensorturn/domain/freeze"
)

// View is one fold. Apply must be total: events it does not know change nothing.
type View interface {
	// Name names the view in errors and metrics.
	Name() string
	Apply(e event.Envelope)
	// Part names what the view holds, so that it can begin from a snapshot: all variables that Apply reads or writes.
	// A variable that follows from the others is made again in the part's Restored instead.
	Part() freeze.Part
}

// Engine applies each event once, in order, to every view, and remembers how far it is. It is safe for one feeder and
// many readers.
type Engine struct {
	mu       sync.RWMutex
	views    []View
	position uint64
	moved    chan struct{} // closed and replaced at each advance
}

// NewEngine returns an engine at position 0 with views that hold nothing.
func NewEngine(views ...View) *Engine {
	return &Engine{views: views, moved: make(chan struct{})}
}

// Apply folds events that follow the position. Those at or below it are skipped, since delivery is at least once; a gap
// is an error, since a view that missed an event would lie for ever.
func (e *Engine) Apply(events ...event.Envelope) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.position
	for _, ev := range events {
		if ev.Seq <= e.position {
			continue
		}
		if ev.Seq != e.position+1 {
			return fmt.Errorf("projections at %d were given event %d: the ones between are missing", e.position, ev.Seq)
		}
		for _, v := range e.views {
			v.Apply(ev)
		}
		e.position = ev.Seq
	}
	if e.position != before {
		close(e.moved)
		e.moved = make(chan struct{})
	}
	return nil
}

// Parts names what the views hold, in a fixed order. It is read between two calls of Apply, by their caller.
func (e *Engine) Parts() []freeze.Part {
	parts := make([]freeze.Part, 0, len(e.views))
	for _, v := range e.views {
		p := v.Part()
		p.Name = "view " + p.Name
		parts = append(parts, p)
	}
	return parts
}

// Resume goes on behind position: the parts have been set to what they were there.
func (e *Engine) Resume(position uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.position = position
	close(e.moved)
	e.moved = make(chan struct{})
}

// Names lists the views.
func (e *Engine) Names() []string {
	names := make([]string, 0, len(e.views))
	for _, v := range e.views {
		names = append(names, v.Name())
	}
	return names
}

// Position is the sequence of the last event applied.
func (e *Engine) Position() uint64 {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.position
}

// Read calls f while no event is applied; f must copy what it wants to keep.
func (e *Engine) Read(f func(position uint64)) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	f(e.position)
}

// Moved returns a channel that closes at the next advance beyond position; it is closed already when the engine is
// beyond it now.
func (e *Engine) Moved(position uint64) <-chan struct{} {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.position > position {
		done := make(chan struct{})
		close(done)
		return done
	}
	return e.moved
}
