package main

import (
	"strings"
	"testing"

	"tensorturn/domain/machine"
	"tensorturn/projections/fleet"
)

func TestTopRows(t *testing.T) {
	x := func(v float64) *float64 { return &v }
	ms := []fleet.Machine{
		{Name: "den", Standing: machine.Online, Slots: []fleet.Slot{{Run: "r-1", Unit: "train"}, {}}, Vitals: &machine.Vitals{Load: x(0.25),
			Memory: machine.Space{Total: 32 << 30, Free: 24 << 30}, SlotGPUs: []string{"GPU-b", "GPU-a"}, GPUs: []machine.GPU{
				{UUID: "GPU-a", Name: "RTX 3090", Gone: "lost"}, {Index: 1, UUID: "GPU-b", Name: "RTX 4060", Busy: x(0.875), Celsius: x(64.4), Watts: x(301.5), XID: 79, Errors: 1}}}},
		{Name: "old", Standing: machine.Lost, Slots: []fleet.Slot{{}}},
		{Name: "gone", Standing: machine.Revoked},
	}
	var got []string
	for _, r := range topRows(ms) {
		got = append(got, strings.Join(r, "|"))
	}
	want := []string{
		"den|online|cpu|25%|8.0/32.0 GiB|-|-|-|",
		"||gpu 0 RTX 3090|-|-|-|-|-|idle; gone: lost",
		"||gpu 1 RTX 4060|88%|-|64 C|302 W|-|train r-1; xid 79",
		"old|lost|-|-|-|-|-|-|idle",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if rows := vitalsOf(ms[0]); len(rows) != 8 || !strings.Contains(rows[6][1], "xid 79") {
		t.Errorf("%v", rows)
	}
}

func TestSlotCount(t *testing.T) {
	var s slotCount
	for text, want := range map[string]slotCount{"auto": 0, "1": 1, "64": 64} {
		if err := s.Set(text); err != nil || s != want || s.String() != text {
			t.Errorf("%s: %d %v", text, s, err)
		}
	}
	for _, text := range []string{"0", "65", "-1", "many", ""} {
		if s.Set(text) == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
