// Package metrics shows the hub to Prometheus: counters and histograms folded from the events as they happen, gauges read
// from the views when somebody asks. It decides nothing and keeps no run or machine id: the number of series is fixed, so that
// a pool of years costs what a new one does. The exception is hardware: readings carry the machine they come from, up to maxHardware. cmd feeds it, broker/gateway serves Handler.
//
// Dependency: prometheus/client_golang, the format's own library; text, escaping and histograms are easy to get wrong.
package metrics

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/freeze"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// Gauges is what is read when somebody asks.
type Gauges struct {
	Machines  map[machine.Standing]int
	Slots     map[string]int    // by what they do: idle, or the unit of their lease
	Runs      map[run.Phase]int // all there ever were
	Log       uint64            // newest sequence of the log
	Verified  uint64            // sequence up to which the whole chain was read and holds
	Seen      map[string]uint64 // by view, and "feed": the sequence it has seen
	Observers int               // live ones

	State                 string // of the hub, as /healthz says it
	StoreFree             int64  // bytes
	StoreUsed, StoreLimit map[string]int64

	Hardware []Hardware // machines that are not revoked, oldest first
}

// Metrics counts from GoLive on: what the hub reads at its start happened before.
type Metrics struct {
	registry *prometheus.Registry
	read     func() Gauges

	events, steals, stolen, expired, samples, merged prometheus.Counter
	refused, authFailed, infers                      *prometheus.CounterVec
	inferred                                         prometheus.Histogram
	rounds, appends                                  prometheus.Histogram
	disagreement                                     prometheus.Gauge
	units                                            *prometheus.HistogramVec

	mu     sync.Mutex
	live   bool
	opened map[roundKey]time.Time
	leased map[domain.SlotID]lease
}

type roundKey struct {
	Run   string
	Round int
}

// lease is a unit under way.
type lease struct {
	Unit  run.Unit
	Since time.Time
}

// maxOpen bounds what is remembered of rounds and leases under way; beyond it durations are not measured.
const maxOpen = 1 << 16

// New makes the metrics; read is called at every scrape and must be quick.
func New(version string, read func() Gauges) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), read: read, opened: map[roundKey]time.Time{}, leased: map[domain.SlotID]lease{}}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "tensorturn", Name: name, Help: help})
		m.registry.MustRegister(c)
		return c
	}
	m.events = counter("events_appended_total", "Events stored since the hub started.")
	m.steals = counter("steals_total", "Steals between slots.")
	m.stolen = counter("stolen_chunks_total", "Chunks that were stolen.")
	m.expired = counter("leases_expired_total", "Leases that ended because their holder was silent or made no progress.")
	m.samples = counter("samples_counted_total", "Samples that the ledger counted.")
	m.merged = counter("merge_bytes_total", "Bytes of the contributions that merges read.")
	m.appends = prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "tensorturn", Name: "event_append_seconds", Help: "From handing a batch of events to the log to its acknowledgement, synced.",
		Buckets: prometheus.ExponentialBuckets(250e-6, 2, 16)})
	m.disagreement = prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "tensorturn", Name: "vote_disagreement_ratio",
		Help: "Held-out rows on which two members of the newest ensemble disagree, mean over all pairs."})
	m.refused = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tensorturn", Name: "contributions_refused_total", Help: "Contributions that failed a gate."}, []string{"reason"})
	m.authFailed = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tensorturn", Name: "auth_failures_total", Help: "Callers that were refused, by what was wrong with their key."}, []string{"reason"})
	m.infers = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tensorturn", Name: "infer_requests_total", Help: "Requests for predictions, by deployed model and HTTP status."}, []string{"model", "code"})
	m.inferred = prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "tensorturn", Name: "infer_duration_seconds", Help: "From a request for predictions to its answer.",
		Buckets: prometheus.ExponentialBuckets(50e-6, 2, 18)})
	m.rounds = prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "tensorturn", Name: "round_duration_seconds", Help: "From a round's opening to its merge.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 16)})
	m.units = prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "tensorturn", Name: "unit_duration_seconds", Help: "From a lease's grant to its end.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 16)}, []string{"unit"})
	info := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "tensorturn", Name: "build_info", Help: "The hub's version.", ConstLabels: prometheus.Labels{"version": version}})
	info.Set(1)
	m.registry.MustRegister(m.refused, m.authFailed, m.infers, m.inferred, m.rounds, m.appends, m.disagreement, m.units, info, m,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})) // memory, descriptors, goroutines of the hub
	return m
}

// Handler serves the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// GoLive begins to count.
func (m *Metrics) GoLive() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live = true
}

// AuthFailed counts a refused caller.
func (m *Metrics) AuthFailed(reason string) { m.authFailed.WithLabelValues(reason).Inc() }

// Inferred counts a request for predictions that was answered with the HTTP status code after the given time. model is
// the name of a deployed model: never text of a caller.
func (m *Metrics) Inferred(model domain.ModelID, code int, took time.Duration) {
	m.infers.WithLabelValues(string(model), strconv.Itoa(code)).Inc()
	m.inferred.Observe(took.Seconds())
}

// Appended measures one append to the log, one that failed too: a store in trouble is slow before it is dead.
func (m *Metrics) Appended(took time.Duration) { m.appends.Observe(took.Seconds()) }

// Parts implements hub.Follower: what is under way.
func (m *Metrics) Parts() []freeze.Part {
	return []freeze.Part{{Name: "metrics", Values: []any{&m.opened, &m.leased}}}
}

// Resume implements hub.Follower.
func (m *Metrics) Resume(uint64) {}

// Note takes events in order, as a listener of the hub's Service. Those of the log's past only tell what is under way.
func (m *Metrics) Note(es []event.Envelope) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range es {
		if m.live {
			m.events.Inc()
			m.count(e)
		}
		m.follow(e)
	}
}

func (m *Metrics) count(e event.Envelope) {
	switch d := e.Data.(type) {
	case *run.ChunksStolen:
		m.steals.Inc()
		m.stolen.Add(float64(len(d.Chunks)))
	case *run.LeaseExpired:
		m.expired.Inc()
	case *run.RoundMerged:
		m.merged.Add(float64(d.InputBytes))
	case *run.Voted:
		m.disagreement.Set(d.Result.Disagreement)
	case *run.ContributionAccepted:
		m.samples.Add(float64(d.Samples))
	case *run.ContributionRefused:
		m.refused.WithLabelValues(string(d.Why)).Inc()
	}
}

// follow measures durations by the events' own times.
func (m *Metrics) follow(e event.Envelope) {
	switch d := e.Data.(type) {
	case *run.RoundOpened:
		if len(m.opened) < maxOpen {
			m.opened[roundKey{e.Agg, d.Round}] = e.Time
		}
	case *run.RoundMerged:
		k := roundKey{e.Agg, d.Round}
		if at, ok := m.opened[k]; ok && m.live {
			m.rounds.Observe(e.Time.Sub(at).Seconds())
		}
		delete(m.opened, k)
	case *run.LeaseGranted:
		if len(m.leased) < maxOpen {
			m.leased[d.Slot] = lease{d.Unit, e.Time}
		}
	case *run.LeaseReleased:
		m.ended(d.Slot, e.Time)
	case *run.LeaseExpired:
		m.ended(d.Slot, e.Time)
	case *run.TaskFailed:
		m.ended(d.Slot, e.Time)
	case *run.EvaluationFailed:
		m.ended(d.Slot, e.Time)
	case *run.Failed, *run.Cancelled, *run.Completed:
		for k := range m.opened {
			if k.Run == e.Agg {
				delete(m.opened, k)
			}
		}
	}
}

func (m *Metrics) ended(slot domain.SlotID, at time.Time) {
	if l, ok := m.leased[slot]; ok && m.live {
		m.units.WithLabelValues(string(l.Unit)).Observe(at.Sub(l.Since).Seconds())
	}
	delete(m.leased, slot)
}
