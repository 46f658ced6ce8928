package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker"
	"tensorturn/broker/gateway"
	"tensorturn/broker/hub"
	"tensorturn/broker/identity"
	"tensorturn/broker/metrics"
	"tensorturn/broker/snapshot"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/freeze"
)

// Goals for a log of a million events (issue 7).
const (
	startEvents   = 1_000_000
	startAtMost   = 10.0                        // seconds, from a snapshot
	replayPerTime = 1.0 / 100_000 * startEvents // seconds for the whole log, at 100,000 events a second
)

// started is what a child process that starts a hub tells.
type started struct {
	Seconds float64       `json:"seconds"` // to read log or snapshot, fold, and take requests
	PeakMiB float64       `json:"peak_mib"`
	Resumed uint64        `json:"resumed"` // sequence of the snapshot, 0: the whole log was read
	Last    uint64        `json:"last"`
	Views   domain.Digest `json:"views"` // of all state, frozen
	Bytes   int           `json:"bytes"` // of it
	CPU     float64       `json:"cpu"`   // seconds of processor until it took requests, JetStream's own included
}

// starts measures a hub's start on a log of a million events: whole replay, then from a snapshot, each in a process of its
// own, and holds the views against each other.
func (b *bench) starts(d *bed) {
	n := startEvents
	if b.quick {
		n = 5000
	}
	dir := d.TempDir()
	began := time.Now()
	d.Must(inBed(b.talk, func(d *bed) { // its own: the server must be gone before the next one starts
		c := broker.NewCommitter(openStoreIn(d, dir).Log, registry())
		d.Must(c.Open(b.ctx, func(event.Envelope) error { return nil }))
		writePast(d, b, c, n)
	}))
	b.report.note("start: %d events decided and stored in %.0f s", n, time.Since(began).Seconds())
	whole := b.startChild(d, dir)
	again := b.startChild(d, dir)
	if whole.Resumed != 0 || again.Resumed != again.Last || again.Last < uint64(n) {
		d.Fatalf("the first start resumed at %d, the second at %d of %d", whole.Resumed, again.Resumed, again.Last)
	}
	if whole.Views != again.Views {
		d.Fatalf("the state from the snapshot is not that of the whole log")
	}
	at := fmt.Sprintf("%d events", whole.Last)
	b.report.add(
		row{Section: "start", What: "whole replay of " + at, Value: float64(whole.Last) / whole.Seconds, Unit: "events/s", Ratio: whole.Seconds, Of: "seconds", Limit: replayPerTime},
		row{Section: "start", What: "the same", Value: float64(whole.Last) / whole.CPU, Unit: "events per second of processor"},
		row{Section: "start", What: "from a snapshot at " + at, Value: again.Seconds, Unit: "s", Limit: startAtMost},
		row{Section: "start", What: "the same", Value: whole.Seconds / again.Seconds, Unit: "times as fast as the whole replay"},
		row{Section: "start", What: "peak memory, whole replay", Value: whole.PeakMiB, Unit: "MiB"},
		row{Section: "start", What: "peak memory, from the snapshot", Value: again.PeakMiB, Unit: "MiB", Ratio: again.PeakMiB / whole.PeakMiB, Of: "whole replay"},
		row{Section: "start", What: "the snapshot", Value: float64(again.Bytes) / (1 << 20), Unit: "MiB"},
	)
}

// startChild starts a hub's service on the folder in a process of its own.
func (b *bench) startChild(d *bed, dir string) started {
	exe, err := os.Executable()
	d.Must(err)
	child := exec.CommandContext(b.ctx, exe, "--start-child", dir)
	child.Stderr = b.talk
	out, err := child.Output()
	d.Must(err)
	var s started
	d.Must(json.Unmarshal(out, &s))
	return s
}

// startIn is the child: it starts, tells, and stops, which writes a snapshot.
func startIn(dir string, stdout, stderr io.Writer) int {
	err := inBed(stderr, func(d *bed) {
		s := openStoreIn(d, dir)
		keys, err := identity.Open(filepath.Join(dir, "keys"), identity.Options{PublicURL: "https://127.0.0.1:7443", Now: time.Now()})
		d.Must(err)
		snaps, err := snapshot.Open(filepath.Join(dir, "snapshots"), keys.Snapshots())
		d.Must(err)
		service := hub.NewService(hub.ServiceConfig{Core: hub.Config{Timing: domain.TimingOf(domain.DefaultLease), Process: "bench"}, Log: s.Log,
			Registry: registry(), Blobs: s.Blobs, Heads: keys.Heads(), Snapshots: snaps, Version: "bench", Logger: zerolog.Nop()})
		v := &viewsOfStart{Views: gateway.NewViews()}
		service.Follow(v)
		service.Follow(metrics.New("bench", nil))
		began, cpuBefore := time.Now(), cpu(d)
		d.Must(service.Start(context.Background()))
		took, used := time.Since(began).Seconds(), (cpu(d) - cpuBefore).Seconds()
		d.Must(service.ReadOnly())
		last, err := s.Log.Last(context.Background())
		d.Must(err)
		t := started{Seconds: took, PeakMiB: peakMiB(d), Resumed: v.resumed, Last: last, CPU: used}
		t.Views, t.Bytes = v.digest(d, service)
		service.Stop()
		d.Must(json.NewEncoder(stdout).Encode(t))
	})
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// viewsOfStart follows as the hub's views do.
type viewsOfStart struct {
	gateway.Views
	resumed uint64
}

// Note implements hub.Follower.
func (v *viewsOfStart) Note(es []event.Envelope) {
	domain.Assert(v.Engine.Apply(es...) == nil, "the service gives events in order")
}

// Parts implements hub.Follower.
func (v *viewsOfStart) Parts() []freeze.Part { return v.Engine.Parts() }

// Resume implements hub.Follower.
func (v *viewsOfStart) Resume(seq uint64) {
	v.Engine.Resume(seq)
	v.resumed = seq
}

// digest is the digest of all state, Core's fold included.
func (v *viewsOfStart) digest(d *bed, s *hub.Service) (domain.Digest, int) {
	var all []byte
	d.Must(s.Read(context.Background(), func(c *hub.Core) {
		_, b, _, err := c.Freeze()
		d.Must(err)
		all = append(all, b...)
	}))
	for _, p := range v.Engine.Parts() {
		b, err := freeze.Freeze(p)
		d.Must(err)
		all = append(all, b...)
	}
	return event.Digest(all), len(all)
}

func peakMiB(d *bed) float64 {
	kib, err := strconv.ParseFloat(strings.TrimSuffix(field("/proc/self/status", "VmHWM"), " kB"), 64)
	d.Must(err)
	return kib / 1024
}
