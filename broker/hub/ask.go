package hub

import (
	"context"

	"tensorturn/broker/wire"
	"tensorturn/domain"
)

// Do decides a command of the API and returns when it is durable, or why it is refused. When ctx ends first the command
// may still be decided: asking again with the same command id tells.
func (s *Service) Do(ctx context.Context, d Do) error {
	a, err := s.ask(ctx, d)
	if err != nil {
		return err
	}
	return a.Err
}

// Sync takes an agent's request without a link: for agents within the process and for tests.
func (s *Service) Sync(ctx context.Context, m domain.MachineID, r wire.SyncRequest) (*wire.SyncReply, error) {
	a, err := s.ask(ctx, Sync{Machine: m, Request: r})
	if err != nil {
		return nil, err
	}
	return a.Reply, nil
}

// Read lets f ask Core between two steps. f must be quick, must not keep what it is given, and copies what it needs.
func (s *Service) Read(ctx context.Context, f func(*Core)) error {
	done := make(chan struct{})
	if err := s.put(task{read: func(c *Core) { f(c); close(done) }}); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		// f may still run: the caller's variables are its own until done, so wait for the loop, which never blocks
		<-done
		return nil
	}
}

// ReadOnly is why the hub takes no commands, nil when it does.
func (s *Service) ReadOnly() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readOnly
}

// Retry says that the store may work again: a log that could not be written is tried by the next step. It does not wait.
func (s *Service) Retry() {
	_ = s.put(task{read: (*Core).Retry}) // a full queue has a step before it that tries anyway
}

// Alive is nil when the loop answers before ctx ends: the hub decides, however slowly.
func (s *Service) Alive(ctx context.Context) error {
	done := make(chan struct{})
	if err := s.put(task{read: func(*Core) { close(done) }}); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return domain.Unavailable("hub", "its loop has not answered", "", ctx.Err())
	}
}

// ask puts an input and waits for its answer.
func (s *Service) ask(ctx context.Context, in Input) (Answer, error) {
	got := make(chan Answer, 1)
	if err := s.put(task{in: in, answer: func(a Answer) { got <- a }}); err != nil {
		return Answer{}, err
	}
	select {
	case a := <-got:
		return a, nil
	case <-ctx.Done():
		return Answer{}, domain.Unavailable("hub", "the answer did not come in time; the command may have been decided", "ask again with the same command id", ctx.Err())
	}
}

// put queues a task without waiting.
func (s *Service) put(t task) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != stateRunning {
		return domain.Unavailable("hub", "the hub is not running", "try again in a few seconds", nil)
	}
	select {
	case s.queue <- t:
		return nil
	default:
		return domain.Unavailable("hub", "the hub has more requests waiting than it takes", "try again in a few seconds", nil)
	}
}
