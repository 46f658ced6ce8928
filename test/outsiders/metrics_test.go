package outsiders

import (
	"bytes"
	"flag"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"tensorturn/test/kit"
)

// promtool judges a scrape as operators do.
var promtool = flag.String("promtool", "", "Prometheus' promtool")

// scraped is what a hub that has trained must tell, by the names that boards use.
var scraped = []string{
	"tensorturn_build_info{", `tensorturn_agents{state="online"} 1`, `tensorturn_units{state="idle"} 1`, `tensorturn_runs{phase="completed"} 1`, "tensorturn_samples_counted_total 1", `tensorturn_unit_duration_seconds_count{unit="train"} `,
	"tensorturn_steals_total ", "tensorturn_leases_expired_total ", "tensorturn_round_duration_seconds_count ", "tensorturn_merge_bytes_total ",
	"tensorturn_events_appended_total ", "tensorturn_event_append_seconds_count ", "tensorturn_log_verified_sequence ", "tensorturn_store_free_bytes ",
	`tensorturn_auth_failures_total{reason="`, "tensorturn_infer_duration_seconds_count ", "tensorturn_vote_disagreement_ratio ", "tensorturn_view_lag_events{",
}

// TestPrometheusScrapes reads /metrics as Prometheus does, with the operator's key, and not without it. Then each event of a
// fused run and of an ensemble is held against its schema.
func TestPrometheusScrapes(t *testing.T) {
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	p.StartAgent("a")
	p.AwaitEnd(p.Submit(spec(t, 1)))
	checkMetrics(t, p)
	p.AwaitEnd(p.Submit(strings.Replace(spec(t, 1), "round: {chunks: 24}", "mode: ensemble\nensemble: {members: 3}", 1)))
	types := validate(t, p)
	for _, want := range []string{"round.merged", "contribution.accepted", "member.trained", "member.predicted", "ensemble.voted", "run.completed"} {
		if types["tensorturn."+want+".v1"] == 0 {
			t.Errorf("no event of type %s was checked", want)
		}
	}
}

// checkMetrics holds the scrape of a hub that has trained and refused somebody against what Prometheus' own tools say.
func checkMetrics(t *testing.T, p *kit.Pool) {
	t.Helper()
	client, _ := operator(t, p)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	refused, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if refused.Body.Close(); refused.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a key: %s", refused.Status)
	}
	resp := api(t, p, "/metrics", nil)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("scrape: %s, %v", resp.Status, err)
	}
	for _, want := range scraped {
		if !bytes.Contains(text, []byte("\n"+want)) {
			t.Errorf("the scrape has no %s", want)
		}
	}
	if bytes.Contains(text, []byte("\ntensorturn_merge_bytes_total 0\n")) {
		t.Error("merges read nothing")
	}
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	for _, f := range problems {
		t.Errorf("promlint: %s: %s", f.Metric, f.Text)
	}
	if err != nil {
		t.Error(err)
	}
	if *promtool == "" {
		t.Log("without promtool: its library alone has judged")
		return
	}
	c := exec.CommandContext(t.Context(), *promtool, "check", "metrics")
	c.Stdin = bytes.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "" {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
