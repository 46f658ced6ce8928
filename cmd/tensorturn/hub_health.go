package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tensorturn/broker/health"
	"tensorturn/broker/notify"
)

// newMonitor makes the watch over the store's room.
func (h *hubProcess) newMonitor() *health.Monitor {
	return health.New(health.Config{Dir: filepath.Join(h.opts.dir, "store"), MinFree: h.opts.minFree, Space: health.DiskSpace, Usage: h.usage,
		Broken: h.broker.Broken, Recycle: h.broker.Recycle, Healed: h.healed, ReadOnly: func() error { return h.service.ReadOnly() }, Logger: h.opts.logger})
}

// usage translates the store's figures.
func (h *hubProcess) usage(ctx context.Context) ([]health.Share, error) {
	us, err := h.store.Usage(ctx)
	out := make([]health.Share, 0, len(us))
	for _, u := range us {
		out = append(out, health.Share{Stream: u.Stream, Bytes: u.Bytes, Limit: u.Limit})
	}
	return out, err
}

// healed lets everything that waits for the store try again at once.
func (h *hubProcess) healed() { h.service.Retry() }

// statusEvery is how often the status line is looked at, and how often the loop must answer at the least.
const statusEvery = 5 * time.Second

// tellManager tells a service manager, and the terminal, how the hub is, until the function it gives is called: that says that
// the hub stops, and waits. The watchdog is fed only while the hub's loop answers: a hub that hangs is started anew.
func (h *hubProcess) tellManager(a *app) (stop func()) {
	n := notify.FromEnvironment(os.Getenv, os.Getpid())
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	n.Ready()
	work.Go(func() { h.watchSelf(ctx, a, n) })
	return sync.OnceFunc(func() {
		n.Stopping()
		cancel()
		work.Wait()
	})
}

func (h *hubProcess) watchSelf(ctx context.Context, a *app, n notify.Notifier) {
	every := statusEvery
	if n.Watchdog > 0 {
		every = min(every, n.Watchdog/3)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	last, said := "", health.Ready
	for {
		asked, cancel := context.WithTimeout(ctx, every)
		err := h.service.Alive(asked)
		cancel()
		if err == nil && n.Watchdog > 0 {
			n.Alive()
		}
		room := h.health.Room()
		if line := statusLine(room); line != last {
			n.Status(line)
			last = line
		}
		if room.State != said && room.State != health.ReadOnly {
			said = room.State
			a.say("%s", statusLine(room))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// statusLine is the hub's state in a line for people.
func statusLine(r health.Room) string {
	switch r.State {
	case health.Ready:
		return "the hub is ready"
	case health.Low:
		return fmt.Sprintf("the hub's store is nearly full: %s; no new runs are taken, those under way go on", r.Why)
	case health.Full:
		return fmt.Sprintf("the hub's store is full: %s; what is trained waits on the machines", r.Why)
	}
	return "the hub is " + string(r.State)
}
