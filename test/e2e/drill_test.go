package e2e

import (
	"encoding/json"
	"testing"
	"time"

	"tensorturn/test/kit"
)

// A drill trains twice and says what the failures cost; both trials are exact. Its times are not judged: others run beside it.
func TestDrill(t *testing.T) {
	t.Parallel()
	p := kit.NewPool(t, binary, lease)
	s := p.RunFor(4*time.Minute, "drill", "demo", "--epochs", "16", "--every", "2s", "--json")
	if s.Code != 0 {
		t.Fatalf("exit code %d\n%s%s", s.Code, s.Out, s.Err)
	}
	type side struct {
		Expected int64   `json:"samples_expected"`
		Counted  int64   `json:"samples_counted"`
		Accuracy float64 `json:"accuracy"`
		Present  float64 `json:"slot_seconds"`
		Replay   string  `json:"replay"`
	}
	var d struct {
		Calm       side `json:"fault_free"`
		Drilled    side `json:"drilled"`
		Faults     []struct{ Kind, Machine string }
		Efficiency float64
	}
	if err := json.Unmarshal([]byte(s.Out), &d); err != nil {
		t.Fatalf("%v in %s", err, s.Out)
	}
	for _, x := range []side{d.Calm, d.Drilled} {
		if x.Expected == 0 || x.Counted != x.Expected || x.Replay != "bit-exact" || x.Accuracy < 0.85 || x.Present <= 0 {
			t.Errorf("a trial shows %+v", x)
		}
	}
	if len(d.Faults) == 0 || d.Efficiency <= 0 {
		t.Errorf("%d failures, efficiency %f", len(d.Faults), d.Efficiency)
	}
	if s := p.Run("drill", "demo", "--faults", "earthquake"); s.Code != 2 {
		t.Errorf("a failure that is none: exit code %d, %s", s.Code, s.Err)
	}
}
