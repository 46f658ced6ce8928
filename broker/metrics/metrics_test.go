package metrics_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"tensorturn/broker/metrics"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
	"tensorturn/domain/vote"
)

func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func example() *metrics.Metrics {
	return metrics.New("v1", func() metrics.Gauges {
		return metrics.Gauges{Machines: map[machine.Standing]int{machine.Online: 2, machine.Lost: 1}, Slots: map[string]int{"idle": 1, "train": 2},
			Runs: map[run.Phase]int{run.PhaseCompleted: 3}, State: "ready", StoreFree: 7, StoreUsed: map[string]int64{"EVENTS": 3}, StoreLimit: map[string]int64{"EVENTS": 5}, Log: 12, Verified: 11, Seen: map[string]uint64{"runs": 12, "feed": 10}, Observers: 1}
	})
}

// story is a round of one slot, one second an event.
func story() []event.Envelope {
	var es []event.Envelope
	for i, d := range []event.Data{
		&run.RoundOpened{Round: 1}, &run.LeaseGranted{Slot: "m/0", Unit: run.UnitTrain}, &run.ChunksStolen{Chunks: []domain.ChunkID{1, 2}},
		&run.ContributionRefused{Why: run.RefusedNorm}, &run.ContributionAccepted{Samples: 640}, &run.LeaseReleased{Slot: "m/0"},
		&run.LeaseGranted{Slot: "m/0", Unit: run.UnitTrain}, &run.LeaseExpired{Slot: "m/0"}, &run.RoundMerged{Round: 1, InputBytes: 2048},
		&run.LeaseGranted{Slot: "m/0", Unit: run.UnitEvaluate}, &run.EvaluationFailed{Slot: "m/0"}, &run.Voted{Result: vote.Result{Disagreement: 0.25}},
	} {
		es = append(es, event.Envelope{Seq: uint64(i + 1), Kind: event.KindRun, Agg: "r-1", Time: time.Unix(int64(i), 0), Data: d})
	}
	return es
}

func TestMetricsCountWhatHappens(t *testing.T) {
	m := example()
	m.Note(story()[:2]) // the log's past: not counted, but under way
	m.GoLive()
	m.Note(story()[2:])
	m.AuthFailed("unknown")
	m.Inferred("digits", 200, 30*time.Microsecond)
	m.Inferred("digits", 429, time.Microsecond)
	m.Appended(time.Millisecond)
	m.Appended(time.Second)
	got := scrape(t, m)
	for _, want := range []string{
		`tensorturn_events_appended_total 10`, `tensorturn_steals_total 1`, `tensorturn_stolen_chunks_total 2`, `tensorturn_leases_expired_total 1`,
		`tensorturn_samples_counted_total 640`, `tensorturn_contributions_refused_total{reason="norm"} 1`, `tensorturn_round_duration_seconds_sum 8`,
		`tensorturn_auth_failures_total{reason="unknown"} 1`, `tensorturn_infer_requests_total{code="200",model="digits"} 1`,
		`tensorturn_infer_requests_total{code="429",model="digits"} 1`, `tensorturn_infer_duration_seconds_count 2`,
		`tensorturn_unit_duration_seconds_sum{unit="train"} 5`, `tensorturn_unit_duration_seconds_sum{unit="evaluate"} 1`,
		`tensorturn_merge_bytes_total 2048`, `tensorturn_vote_disagreement_ratio 0.25`, `tensorturn_event_append_seconds_sum 1.001`, `tensorturn_agents{state="online"} 2`, `tensorturn_units{state="idle"} 1`,
		`tensorturn_runs{phase="completed"} 3`, `tensorturn_log_verified_sequence 11`, `tensorturn_log_sequence 12`, `tensorturn_view_lag_events{view="feed"} 2`,
		`tensorturn_view_lag_events{view="runs"} 0`, `tensorturn_build_info{version="v1"} 1`, `tensorturn_observers 1`,
		`tensorturn_hub_state{state="ready"} 1`, `tensorturn_store_free_bytes 7`, `tensorturn_store_used_bytes{stream="EVENTS"} 3`, `tensorturn_store_limit_bytes{stream="EVENTS"} 5`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

// TestMetricsAreClean is what promtool check metrics says.
func TestMetricsAreClean(t *testing.T) {
	m := example()
	m.GoLive()
	m.Note(story())
	problems, err := promlint.New(strings.NewReader(scrape(t, m))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestSeriesAreBounded: a thousand runs and machines make no more series than one.
func TestSeriesAreBounded(t *testing.T) {
	m := example()
	m.GoLive()
	m.Note(story())
	m.AuthFailed("unknown")
	m.Inferred("digits", 200, time.Microsecond)
	one := strings.Count(scrape(t, m), "\n")
	for i := range 1000 {
		for _, e := range story() {
			e.Agg = "r-" + time.Duration(i).String()
			m.Note([]event.Envelope{e})
		}
	}
	if many := strings.Count(scrape(t, m), "\n"); many != one {
		t.Errorf("%d lines for a thousand runs, %d for one", many, one)
	}
}
