package main

import (
	"testing"

	"tensorturn/domain"
	"tensorturn/projections/runs"
)

// The demo starts its victim again when the pool has answered the death, and not at copies that are made in any run.
func TestLost(t *testing.T) {
	slot, other := domain.Slot("desktop-1", 0), domain.Slot("laptop-1", 0)
	before := runs.Slot{Slot: slot, Expired: 1, Requeued: 3, Copied: 2}
	for name, c := range map[string]struct {
		now  runs.Slot
		want string
	}{
		"nothing yet":     {before, ""},
		"others' copies":  {runs.Slot{Slot: other, Expired: 9, Requeued: 9, Copied: 9}, ""},
		"its copies":      {runs.Slot{Slot: slot, Expired: 1, Requeued: 3, Copied: 4}, "others were given copies of its last 2 chunks"},
		"its lease":       {runs.Slot{Slot: slot, Expired: 2, Requeued: 4, Copied: 2}, "its lease has expired, 1 chunk is back in the queue"},
		"copies, expired": {runs.Slot{Slot: slot, Expired: 2, Requeued: 5, Copied: 4}, "its lease has expired, 2 chunks are back in the queue"},
	} {
		if got := lost(before, runs.Run{Slots: []*runs.Slot{&c.now}, Totals: runs.Totals{Copied: 20, Expired: 20}}); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
