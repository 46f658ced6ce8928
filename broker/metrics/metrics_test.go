package metrics_test

import (
	"net/http/httptest"
	"strconv"
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

// hardware is n machines with an unlike pair of GPUs each, the second gone.
func hardware(n int) (out []metrics.Hardware) {
	x := func(v float64) *float64 { return &v }
	for i := range n {
		out = append(out, metrics.Hardware{Machine: domain.MachineID("m-" + strconv.Itoa(i)), Name: "den", Vitals: &machine.Vitals{
			Load: x(0.5), Memory: machine.Space{Total: 8, Free: 4}, Sent: 11, GPUs: []machine.GPU{
				{UUID: "GPU-a", Name: "RTX 3090", Memory: machine.Space{Total: 24 << 30, Free: 8 << 30}, Busy: x(0.87), Celsius: x(64), Watts: x(301.5), Joules: x(5), XID: 79},
				{Index: 1, UUID: "GPU-b", Name: "RTX\xff4060", Memory: machine.Space{Total: 8 << 30}, Gone: "lost"}, {Index: 2, UUID: "GPU-a"}}}})
	}
	return append(out, metrics.Hardware{Machine: "silent"})
}

// TestHardwareIsBounded: a pool beyond the limit is cut, and the cut is told.
func TestHardwareIsBounded(t *testing.T) {
	m := metrics.New("v1", func() metrics.Gauges { return metrics.Gauges{Hardware: hardware(2000)} })
	got := scrape(t, m)
	if n := strings.Count(got, "\nDCGM_FI_DEV_GPU_TEMP{"); n < 300 || n > 1024 {
		t.Errorf("%d GPUs", n)
	}
	if strings.Contains(got, "tensorturn_hardware_omitted 0\n") {
		t.Error("the cut is not told")
	}
}

func example() *metrics.Metrics {
	return metrics.New("v1", func() metrics.Gauges {
		return metrics.Gauges{Machines: map[machine.Standing]int{machine.Online: 2, machine.Lost: 1}, Slots: map[string]int{"idle": 1, "train": 2},
			Runs: map[run.Phase]int{run.PhaseCompleted: 3}, State: "ready", StoreFree: 7, StoreUsed: map[string]int64{"EVENTS": 3}, StoreLimit: map[string]int64{"EVENTS": 5}, Hardware: hardware(2), Log: 12, Verified: 11, Seen: map[string]uint64{"runs": 12, "feed": 10}, Observers: 1}
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
		`DCGM_FI_DEV_GPU_UTIL{Hostname="den",UUID="GPU-a",gpu="0",machine="m-0",model="RTX 3090"} 87`, `DCGM_FI_DEV_FB_USED{Hostname="den",UUID="GPU-a",gpu="0",machine="m-1",model="RTX 3090"} 16384`,
		`DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{Hostname="den",UUID="GPU-a",gpu="0",machine="m-0",model="RTX 3090"} 5000`, `DCGM_FI_DEV_XID_ERRORS{Hostname="den",UUID="GPU-a",gpu="0",machine="m-0",model="RTX 3090"} 79`,
		`tensorturn_gpu_up{Hostname="den",UUID="GPU-b",gpu="1",machine="m-0",model="RTX?4060"} 0`, `tensorturn_machine_cpu_ratio{hostname="den",machine="m-0"} 0.5`,
		`tensorturn_machine_network_sent_bytes_total{hostname="den",machine="m-0"} 11`, `tensorturn_hardware_omitted 0`,
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
