package machine_test

import (
	"testing"
	"time"

	"tensorturn/domain/machine"
)

func TestHours(t *testing.T) {
	for text, want := range map[string]string{
		"08:00-18:00": "08:00-18:00", "mon-fri 08:00-18:00": "mon-fri 08:00-18:00", "SAT,SUN 22:30-07:00": "sat,sun 22:30-07:00",
		"fri-mon 00:00-24:00": "mon,fri-sun 00:00-24:00", "mon-sun 01:00-02:00": "01:00-02:00", "wed 09:00-09:01": "wed 09:00-09:01",
	} {
		h, err := machine.ParseHours(text)
		if err != nil || h.String() != want {
			t.Errorf("%q: %q, %v", text, h, err)
		}
		if again, err := machine.ParseHours(h.String()); err != nil || again != h {
			t.Errorf("%q is read as %v, %v", h, again, err)
		}
	}
	for _, text := range []string{"", "8-18", "08:00", "08:00-08:00", "24:00-01:00", "08:00-24:01", "08:60-09:00", "mon", "mon-xyz 08:00-09:00", "mon 08:00-09:00 x", "0x:00-09:00", "-", ": -:"} {
		if h, err := machine.ParseHours(text); err == nil {
			t.Errorf("%q is taken as %v", text, h)
		}
	}
}

func TestQuiet(t *testing.T) {
	night, _ := machine.ParseHours("fri 22:00-07:00")
	for _, c := range []struct {
		day    time.Weekday
		minute int
		quiet  bool
	}{
		{time.Friday, 22*60 - 1, false}, {time.Friday, 22 * 60, true}, {time.Friday, 24*60 - 1, true}, {time.Saturday, 0, true},
		{time.Saturday, 7*60 - 1, true}, {time.Saturday, 7 * 60, false}, {time.Saturday, 23 * 60, false}, {time.Friday, 60, false}, {time.Sunday, 60, false},
	} {
		if night.Quiet(c.day, c.minute) != c.quiet {
			t.Errorf("%s %02d:%02d: quiet is %v", c.day, c.minute/60, c.minute%60, !c.quiet)
		}
	}
	day, _ := machine.ParseHours("00:00-24:00")
	if !day.Quiet(time.Sunday, 0) || !day.Quiet(time.Sunday, 24*60-1) {
		t.Error("the whole day has a gap")
	}
}

func FuzzHours(f *testing.F) {
	f.Add("mon-fri,sun 22:00-07:00")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := machine.ParseHours(text)
		if err != nil {
			return
		}
		if again, err := machine.ParseHours(h.String()); err != nil || again != h {
			t.Errorf("%q: %q: %v", text, h, err)
		}
	})
}
