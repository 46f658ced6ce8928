package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

// The demo shows in one command what the product promises. Its time is logged and not judged: other tests run beside it.
func TestDemo(t *testing.T) {
	t.Parallel()
	p := kit.NewPool(t, binary, lease)
	began := time.Now()
	s := p.RunFor(4*time.Minute, "demo", "--json")
	if s.Code != 0 {
		t.Fatalf("exit code %d\n%s%s", s.Code, s.Out, s.Err)
	}
	var d struct {
		Accuracy         float64     `json:"accuracy"`
		Expected         int64       `json:"samples_expected"`
		Counted          int64       `json:"samples_counted"`
		Rounds           int         `json:"rounds"`
		Steals           int         `json:"steals"`
		Slots            []runs.Slot `json:"slots"`
		Replay           string      `json:"replay"`
		RoundsRecomputed int         `json:"rounds_recomputed"`
		Seconds          float64     `json:"seconds"`
	}
	if err := json.Unmarshal([]byte(s.Out), &d); err != nil {
		t.Fatalf("%v in %s", err, s.Out)
	}
	answered := 0 // chunks of the killed machine that were queued again or given to others
	for _, s := range d.Slots {
		if strings.HasPrefix(string(s.Slot), "laptop-") {
			answered += s.Requeued + s.Copied
		}
	}
	if d.Accuracy < 0.95 || d.Counted != d.Expected || d.Counted == 0 || d.Rounds == 0 || d.Steals < 1 || answered < 1 ||
		d.Replay != "bit-exact" || d.RoundsRecomputed != d.Rounds || d.Seconds <= 0 || d.Seconds > time.Since(began).Seconds()+1 {
		t.Errorf("the demo shows %+v", d)
	}
	t.Logf("%+v", d)
}

// The ensemble demo: members vote although a machine was killed for good, and the vote is deployed and asked with a key.
func TestDemoEnsemble(t *testing.T) {
	t.Parallel()
	p := kit.NewPool(t, binary, lease)
	s := p.RunFor(4*time.Minute, "demo", "--mode", "ensemble", "--json")
	if s.Code != 0 {
		t.Fatalf("exit code %d\n%s%s", s.Code, s.Out, s.Err)
	}
	var d struct {
		Voted        int     `json:"members_voted"`
		Accuracy     float64 `json:"accuracy_vote"`
		Mean         float64 `json:"accuracy_mean_single"`
		NLL          float64 `json:"nll_vote"`
		MeanNLL      float64 `json:"nll_mean_single"`
		Disagreement float64 `json:"disagreement"`
		Seconds      float64 `json:"seconds"`
		Replay       string  `json:"replay"`
		Prediction   bool    `json:"prediction_ok"`
		WrongKey     int     `json:"wrong_key_status"`
	}
	if err := json.Unmarshal([]byte(s.Out), &d); err != nil {
		t.Fatalf("%v in %s", err, s.Out)
	}
	if d.Voted < 4 || d.Accuracy <= d.Mean || d.NLL >= d.MeanNLL || d.Disagreement <= 0 || d.Seconds <= 0 || d.Replay != "bit-exact" || !d.Prediction || d.WrongKey != 401 {
		t.Errorf("the demo shows %+v", d)
	}
	t.Logf("%+v", d)
}
