package main

import (
	"context"
	"time"

	"tensorturn/broker"
	"tensorturn/broker/metrics"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// timedLog is a log whose appends are measured.
type timedLog struct {
	broker.Log
	metrics *metrics.Metrics
}

// Append implements broker.Log.
func (l timedLog) Append(ctx context.Context, expect uint64, recs []broker.Record) (uint64, error) {
	began := wallClock()
	defer func() { l.metrics.Appended(time.Since(began)) }()
	return l.Log.Append(ctx, expect, recs)
}

// gauges reads for one scrape what the views know.
func (h *hubProcess) gauges() metrics.Gauges {
	g := metrics.Gauges{Machines: map[machine.Standing]int{}, Slots: map[string]int{}, Runs: map[run.Phase]int{}, Log: h.source.Position(),
		Verified: h.service.Verified(), Seen: map[string]uint64{}}
	g.Seen["feed"], _ = h.publisher.Status()
	room := h.health.Room()
	g.State, g.StoreFree, g.StoreUsed, g.StoreLimit = string(room.State), room.Free, map[string]int64{}, map[string]int64{}
	for _, s := range room.Shares {
		g.StoreUsed[s.Stream], g.StoreLimit[s.Stream] = s.Bytes, s.Limit
	}
	h.views.Engine.Read(func(position uint64) {
		for _, name := range h.views.Engine.Names() {
			g.Seen[name] = position
		}
		for _, m := range h.views.Fleet.List() {
			g.Machines[m.Standing]++
			if m.Standing == machine.Revoked {
				continue
			}
			said, _ := h.service.Telemetry(m.ID)
			g.Hardware = append(g.Hardware, metrics.Hardware{Machine: m.ID, Name: m.Name, Vitals: said.Vitals})
			for _, s := range m.Slots {
				if s.Unit == "" {
					g.Slots["idle"]++
				} else {
					g.Slots[string(s.Unit)]++
				}
			}
		}
		for _, r := range h.views.Runs.List() {
			g.Runs[r.Phase]++
		}
		for _, o := range h.views.Observers.List() {
			if o.Live(wallClock()) {
				g.Observers++
			}
		}
	})
	return g
}
