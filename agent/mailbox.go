package agent

import (
	"context"
	"sync"
)

// mailbox hands jobs from the loop to one worker without ever making the loop wait. Core bounds what lies in it: a
// slot has one effect under way, and clean-ups are merged.
type mailbox[T any] struct {
	mu     sync.Mutex
	jobs   []T
	signal chan struct{} // holds one token when there may be jobs
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{signal: make(chan struct{}, 1)} }

// push adds a job behind the others.
func (m *mailbox[T]) push(job T) {
	m.mu.Lock()
	m.jobs = append(m.jobs, job)
	m.mu.Unlock()
	m.ring()
}

// remove takes out the jobs that match.
func (m *mailbox[T]) remove(match func(T) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.jobs[:0]
	for _, j := range m.jobs {
		if !match(j) {
			kept = append(kept, j)
		}
	}
	clear(m.jobs[len(kept):])
	m.jobs = kept
}

// pop waits for the next job; false when ctx has ended.
func (m *mailbox[T]) pop(ctx context.Context) (job T, ok bool) {
	for ctx.Err() == nil {
		m.mu.Lock()
		if len(m.jobs) > 0 {
			job = m.jobs[0]
			m.jobs = append([]T(nil), m.jobs[1:]...)
			m.mu.Unlock()
			return job, true
		}
		m.mu.Unlock()
		select {
		case <-m.signal:
		case <-ctx.Done():
		}
	}
	return job, false
}

func (m *mailbox[T]) ring() {
	select {
	case m.signal <- struct{}{}:
	default:
	}
}
