package agent

import (
	"sync"
	"time"

	"tensorturn/agent/trainer"
	"tensorturn/domain"
)

// reportEvery is how often progress reaches Core; the hub hears of it at the sync interval anyway.
const reportEvery = 200 * time.Millisecond

// meter collects the progress of one effect and passes it on now and then. Safe for concurrent use.
type meter struct {
	slot  int
	epoch domain.Epoch
	clock func() time.Duration
	post  func(Input)

	mu    sync.Mutex
	last  time.Duration // of the newest report
	bytes int64
	steps Stepped
}

func newMeter(slot int, epoch domain.Epoch, clock func() time.Duration, post func(Input)) *meter {
	return &meter{slot: slot, epoch: epoch, clock: clock, post: post, last: clock(), steps: Stepped{Slot: slot, Epoch: epoch}}
}

// moved counts bytes.
func (m *meter) moved(n int64) { m.report(func() { m.bytes += n }, false) }

// stepped counts a step of the trainer.
func (m *meter) stepped(p trainer.Progress) {
	m.report(func() {
		m.steps.Steps++
		m.steps.Samples += p.Samples
		m.steps.Loss = p.Loss
	}, false)
}

// flush passes on what is left.
func (m *meter) flush() { m.report(func() {}, true) }

func (m *meter) report(count func(), now bool) {
	m.mu.Lock()
	count()
	t := m.clock()
	passed := t - m.last
	if !now && passed < reportEvery {
		m.mu.Unlock()
		return
	}
	bytes, steps := m.bytes, m.steps
	steps.Seconds = passed.Seconds()
	m.last, m.bytes, m.steps = t, 0, Stepped{Slot: m.slot, Epoch: m.epoch}
	m.mu.Unlock()
	if bytes > 0 {
		m.post(Moved{Slot: m.slot, Epoch: m.epoch, Bytes: bytes})
	}
	if steps.Steps > 0 {
		m.post(steps)
	}
}
