package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"tensorturn/projections/replay"
)

// A run can be looked at as it stood at any place of its log, and two places can be compared, from events alone.
func TestRunAtAnyPoint(t *testing.T) {
	t.Parallel()
	p, _ := pool(t, "a")
	id := p.Submit(epochs(t, 2))
	r := p.AwaitEnd(id)
	at := func(seq uint64, more ...string) (out replay.Point) {
		text := p.Must(append([]string{"run", "replay", string(id), "--at", fmt.Sprint(seq), "--json"}, more...)...)
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		return out
	}
	first, last := at(r.FirstSeq), at(r.LastSeq)
	if first.Phase != "submitted" || first.Counted != 0 || last.Phase != "completed" || last.Counted != r.Ledger.Counted || last.Base != r.Model {
		t.Errorf("first %+v, last %+v", first, last)
	}
	if before := at(1); before.Phase != replay.NotSubmitted {
		t.Errorf("before it was submitted: %+v", before)
	}
	diff := p.Must("run", "replay", string(id), "--at", fmt.Sprint(r.FirstSeq), "--diff", fmt.Sprint(r.LastSeq))
	if !strings.Contains(diff, "submitted -> completed") || !strings.Contains(diff, "samples counted") {
		t.Errorf("difference:\n%s", diff)
	}
	if s := p.Run("run", "replay", string(id), "--at", "999999"); s.Code != 3 {
		t.Errorf("behind the end: exit code %d, %s", s.Code, s.Err)
	}
	if s := p.Run("run", "replay", string(id), "--diff", "5"); s.Code != 2 {
		t.Errorf("--diff alone: exit code %d, %s", s.Code, s.Err)
	}
}
