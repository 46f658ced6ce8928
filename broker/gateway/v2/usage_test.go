package v2_test

import (
	"errors"
	"testing"
	"time"

	"tensorturn/domain/pool"
)

const oneRow = `{"inputs":[{"name":"input","shape":[2,3],"datatype":"FP32","data":[1,2,3,1,2,3]}]}`

// Usage is one digest for each key, version and minute, recorded at the latest when the API stops; what the hub does not
// take stays.
func TestUsage(t *testing.T) {
	w := newWorld(t)
	w.infer(oneRow)
	w.infer(oneRow)
	w.infer("{}")
	w.send("POST", "/v2/models/digits/versions/2/infer", digitsKey, oneRow)
	w.send("POST", "/v2/models/digits/infer", slowKey, oneRow)
	w.send("POST", "/v2/models/digits/infer", "wrong", oneRow)    // counts for nobody
	w.send("POST", "/v2/models/digits/infer", lettersKey, oneRow) // nor does this
	w.later(time.Minute)
	w.infer(oneRow)
	w.mu.Lock()
	w.sick = errors.New("the log cannot be written")
	w.mu.Unlock()
	w.api.RecordNow()
	w.mu.Lock()
	w.sick = nil
	w.mu.Unlock()
	w.api.RecordNow() // the first minute: the second has not passed
	if len(w.recorded) != 3 {
		t.Fatalf("recorded %+v", w.recorded)
	}
	w.api.RecordNow()
	w.api.Stop()
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).UnixMicro()
	want := []pool.InferenceCounted{
		{Key: "k-digits", Model: "digits", Version: 2, Run: "r-1", Minute: noon, Requests: 1, Rows: 2},
		{Key: "k-digits", Model: "digits", Version: 3, Run: "r-1", Minute: noon, Requests: 3, Rows: 4, Errors: 1},
		{Key: "k-slow", Model: "digits", Version: 3, Run: "r-1", Minute: noon, Requests: 1, Rows: 2},
		{Key: "k-digits", Model: "digits", Version: 3, Run: "r-1", Minute: noon + time.Minute.Microseconds(), Requests: 1, Rows: 2},
	}
	if len(w.recorded) != len(want) {
		t.Fatalf("recorded %+v", w.recorded)
	}
	for i := range want {
		if w.recorded[i] != want[i] {
			t.Errorf("digest %d: %+v, want %+v", i, w.recorded[i], want[i])
		}
	}
}

// Started, the API records the minutes that have passed by itself.
func TestUsageIsRecordedInTime(t *testing.T) {
	w := newWorld(t, func(c *v2Config) { c.Every = time.Millisecond })
	w.api.Start()
	w.infer(oneRow)
	w.later(time.Minute)
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		w.mu.Lock()
		n := len(w.recorded)
		w.mu.Unlock()
		if n == 1 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("nothing was recorded")
		}
	}
}
