package metrics

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// gauge describes a gauge that is made at every scrape.
func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tensorturn_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector. It tells nothing: which gauges there are is known when the views can be read.
func (m *Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector: the gauges.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	g := m.read()
	send := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	each(g.Machines, gauge("agents", "Machines by standing.", "state"), send)
	each(g.Slots, gauge("units", "Slots by what they do: idle, or the unit of their lease.", "state"), send)
	each(g.Runs, gauge("runs", "Runs by phase.", "phase"), send)
	send(gauge("log_verified_sequence", "Sequence up to which the log was read from its first record since the hub's start, and holds."), float64(g.Verified))
	send(gauge("log_sequence", "Newest sequence of the log."), float64(g.Log))
	lag := gauge("view_lag_events", "Events that a view has not seen yet.", "view")
	for _, name := range slices.Sorted(maps.Keys(g.Seen)) {
		send(lag, behind(g.Log, g.Seen[name]), name)
	}
	send(gauge("store_free_bytes", "Free bytes on the disk of the store."), float64(g.StoreFree))
	each(g.StoreUsed, gauge("store_used_bytes", "Bytes of the streams that have a limit.", "stream"), send)
	each(g.StoreLimit, gauge("store_limit_bytes", "Limits of those streams.", "stream"), send)
	each(map[string]int{g.State: 1}, gauge("hub_state", "1 for the state the hub is in: ready, low, full, read-only.", "state"), send)
	send(gauge("observers", "Observers that may read events."), float64(g.Observers))
	hardware(g.Hardware, to)
}

func behind(log, seen uint64) float64 {
	if seen >= log {
		return 0
	}
	return float64(log - seen)
}

func each[K ~string, N int | int64](values map[K]N, d *prometheus.Desc, send func(*prometheus.Desc, float64, ...string)) {
	for _, k := range slices.Sorted(maps.Keys(values)) {
		send(d, float64(values[k]), string(k))
	}
}
