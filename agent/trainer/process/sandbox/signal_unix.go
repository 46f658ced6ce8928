//go:build unix

package sandbox

import (
	"os"
	"os/signal"
	"syscall"
)

// harmless is a signal that nobody minds: programs without a window ignore it.
const harmless = syscall.SIGWINCH

func sendHarmless(pid int) error { return syscall.Kill(pid, harmless) }

// watchSignal notes the first harmless signal.
func (s *stage) watchSignal() {
	got, came, quit, done := make(chan os.Signal, 1), make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(got, harmless)
	s.heard[TrySignal] = came
	go func() {
		defer close(done)
		select {
		case <-got:
			came <- struct{}{}
		case <-quit:
		}
	}()
	s.closers = append(s.closers, func() { signal.Stop(got); close(quit); <-done })
}
