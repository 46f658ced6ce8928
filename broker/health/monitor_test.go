package health_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker/health"
	"tensorturn/domain"
)

// disk is a store whose room and faults the test sets.
type disk struct {
	mu       sync.Mutex
	free     int64
	broken   string
	readOnly error
	fails    int // recycles that fail before one succeeds
	recycles []time.Time
	healed   int
}

func (d *disk) monitor() *health.Monitor {
	return health.New(health.Config{MinFree: 100, Logger: zerolog.Nop(),
		Space: func(string) (int64, int64, error) {
			defer d.lock()()
			return d.free, 1000, nil
		},
		Usage: func(context.Context) ([]health.Share, error) { return nil, nil },
		Broken: func() string {
			defer d.lock()()
			return d.broken
		},
		Recycle: func(context.Context) error {
			defer d.lock()()
			d.recycles = append(d.recycles, time.Now())
			if d.fails > 0 {
				d.fails--
				return errors.New("still no room")
			}
			d.broken = ""
			return nil
		},
		Healed: func() {
			defer d.lock()()
			d.healed++
		}, ReadOnly: func() error { return d.readOnly }})
}

func (d *disk) lock() (unlock func()) {
	d.mu.Lock()
	return d.mu.Unlock
}

// set changes the disk between two looks.
func (d *disk) set(free int64, fails int) {
	defer d.lock()()
	d.free, d.fails = free, fails
}

func (d *disk) counts() (recycles, healed int) {
	defer d.lock()()
	return len(d.recycles), d.healed
}

// Room is refused in two steps, bytes later than new work, and given back with a word to those who wait.
func TestRoomComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{free: 500}
		m := d.monitor()
		if s := m.Room().State; s != health.Starting {
			t.Errorf("before the first look it is %s", s)
		}
		m.Start()
		defer m.Stop()
		for _, c := range []struct {
			free         int64
			state        health.State
			work, bytes  bool
			healedBefore int
		}{
			{500, health.Ready, true, true, 0}, {99, health.Low, false, true, 0}, {10, health.Full, false, false, 0},
			{26, health.Full, false, false, 0}, {50, health.Low, false, true, 1}, {500, health.Ready, true, true, 1},
		} {
			d.set(c.free, 0)
			time.Sleep(1100 * time.Millisecond) // of the bubble's clock: one look
			r := m.Room()
			_, healed := d.counts()
			if r.State != c.state || (m.NewWork() == nil) != c.work || (m.Bytes() == nil) != c.bytes || m.Full() == c.bytes || healed != c.healedBefore {
				t.Errorf("with %d free: %+v, new work %v, bytes %v, healed %d", c.free, r, m.NewWork(), m.Bytes(), healed)
			}
			for _, err := range []error{m.NewWork(), m.Bytes()} {
				if err != nil && (domain.KindOf(err) != domain.KindUnavailable || domain.NextOf(err) == "") {
					t.Errorf("the refusal is %v", err)
				}
			}
		}
	})
}

// A store that has given up is recycled once there is room for it, and within 10 s after the cause has ended however often
// it was tried before.
func TestRecycledWithinTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{free: 5, broken: "no space left on device"}
		m := d.monitor()
		m.Start()
		defer m.Stop()
		time.Sleep(time.Minute)
		if n, _ := d.counts(); n != 0 {
			t.Fatalf("recycled %d times without room: it would only fail again", n)
		}
		d.set(500, 1<<30)
		time.Sleep(10 * time.Minute)
		if n, _ := d.counts(); n < 100 || n > 700 {
			t.Errorf("%d attempts in ten minutes: want one every few seconds", n)
		}
		if s := m.Room().State; s != health.Full {
			t.Errorf("a store that takes no writes is %s", s)
		}
		d.set(500, 0)
		began := time.Now()
		for m.Room().State != health.Ready && time.Since(began) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		_, healed := d.counts()
		if took := time.Since(began); took > 10*time.Second || healed != 1 || m.Room().Healed != 1 {
			t.Errorf("ready %s after the cause had ended, told %d times, recycled %d times", took, healed, m.Room().Healed)
		}
	})
}

// A log that is not to be trusted is more than a full disk.
func TestReadOnlyWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{free: 5, readOnly: errors.New("first bad sequence 7")}
		m := d.monitor()
		m.Start()
		defer m.Stop()
		if r := m.Room(); r.State != health.ReadOnly || r.Why != "first bad sequence 7" {
			t.Errorf("%+v", r)
		}
	})
}
