package health

import (
	"strings"
	"testing"
)

const mib = 1 << 20

// The marks, at their limits.
func TestJudge(t *testing.T) {
	const min = 100 * mib
	share := func(used int64) []Share { return []Share{{Stream: "EVENTS", Bytes: used, Limit: 320}} }
	for _, c := range []struct {
		name   string
		look   look
		before State
		want   State
		why    string
	}{
		{"room", look{free: min, minFree: min}, Ready, Ready, ""},
		{"a byte below the mark", look{free: min - 1, minFree: min}, Ready, Low, "100 MiB are free on its disk, --min-free is 100 MiB"},
		{"the reserve", look{free: min / 4, minFree: min}, Ready, Low, "25 MiB are free"},
		{"a byte below the reserve", look{free: min/4 - 1, minFree: min}, Ready, Full, "25 MiB are kept for the log"},
		{"back at the mark, still low", look{free: min, minFree: min}, Low, Low, "100 MiB"},
		{"a tenth above it", look{free: min + min/10, minFree: min}, Low, Ready, ""},
		{"back at the reserve, still full", look{free: min / 4, minFree: min}, Full, Full, "25 MiB"},
		{"a share below its mark", look{free: min, minFree: min, shares: share(299)}, Ready, Ready, ""},
		{"a share at its mark", look{free: min, minFree: min, shares: share(300)}, Ready, Low, "300 bytes of the 320 bytes that --max-store leaves for EVENTS are used"},
		{"a share at its end", look{free: min, minFree: min, shares: share(310)}, Ready, Full, "310 bytes"},
		{"a stream without a limit", look{free: min, minFree: min, shares: []Share{{Stream: "X", Bytes: 9}}}, Ready, Ready, ""},
		{"writes fail", look{free: min, minFree: min, broken: "Critical write error: EIO"}, Ready, Full, "it takes no writes: Critical write error: EIO"},
		{"the worst is told", look{free: min - 1, minFree: min, shares: share(310)}, Ready, Full, "EVENTS"},
		{"switched off", look{free: 0, minFree: 0}, Ready, Ready, ""},
	} {
		got, why := judge(c.look, c.before)
		if got != c.want || !strings.Contains(why, c.why) || (c.why == "") != (why == "") {
			t.Errorf("%s: %s %q, want %s %q", c.name, got, why, c.want, c.why)
		}
	}
}
