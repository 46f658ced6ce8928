package hub

import (
	"testing"
	"time"

	"tensorturn/domain"
)

// TestFullStoreStopsClocks: a machine is not silent for what the hub could not take; when there is room again it counts from then.
func TestFullStoreStopsClocks(t *testing.T) {
	at := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	for _, full := range []bool{true, false} {
		k := &contact{last: at}
		c := &Core{fold: &fold{}, mem: &liveness{contacts: map[domain.MachineID]*contact{"m-1": k}}}
		(&batch{c: c, now: at.Add(time.Hour)}).silence(full)
		if moved := k.last.After(at); moved != full {
			t.Errorf("full %v: the clock moved: %v", full, moved)
		}
	}
}
