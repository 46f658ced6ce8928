package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tensorturn/domain"
	"tensorturn/domain/machine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wireTo is a link of a known speed.
type wireTo struct {
	trip     time.Duration
	up, down float64 // bytes a second
	fails    int     // requests that are refused before one works
	moved    []int
}

func (l *wireTo) wait(ctx context.Context, d time.Duration) error {
	if l.fails > 0 {
		l.fails--
		return domain.Unavailable("reach the hub", "others measure now", "", nil)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
func (l *wireTo) Trip(ctx context.Context) error { return l.wait(ctx, l.trip) }
func (l *wireTo) Send(ctx context.Context, n int) error {
	l.moved = append(l.moved, n)
	return l.wait(ctx, l.trip+time.Duration(float64(n)/l.up*1e9))
}
func (l *wireTo) Fetch(ctx context.Context, n int) error {
	l.moved = append(l.moved, n)
	return l.wait(ctx, l.trip+time.Duration(float64(n)/l.down*1e9))
}

func vitals() (*machine.Vitals, uint64) {
	return &machine.Vitals{CPU: "a cpu", Driver: "550.1", Memory: machine.Space{Total: 1 << 30, Free: 1 << 30}, Disk: machine.Space{Total: 1 << 40, Free: 1 << 40},
		GPUs: []machine.GPU{{UUID: "GPU-a", Name: "RTX 3090"}, {Index: 1, UUID: "GPU-b", Name: "RTX 4060"}}}, 1
}

func idle(context.Context) float64 { return 0 }

// interpreter is a Python that answers as torch would.
func interpreter(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMeasure(t *testing.T) {
	python := interpreter(t, `echo "$CUDA_VISIBLE_DEVICES" >"$(dirname "$0")/seen"; echo '{"flops": 2e13, "memory": 8e11}'; echo '{"error": "CUDA out of memory"}'`)
	b := New(Options{Dir: t.TempDir(), Slots: []string{"GPU-b", "GPU-a", "GPU-b"}, Python: python, Throttle: 0.5, Vitals: vitals, Load: idle,
		Link: &wireTo{trip: 4 * time.Millisecond, up: 2e6, down: 8e6}})
	s, err := b.Measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Devices) != 3 || s.Devices[0].Name != "a cpu" || !(s.Devices[0].Flops > 1e8) || !(s.Devices[0].Memory > 1e8) || !(s.Disk > 1e5) || s.Driver != "550.1" {
		t.Errorf("%+v", s)
	}
	if g := s.Devices[1]; g.Device != "GPU-b" || g.Name != "RTX 4060" || g.Flops != 1e13 || g.Memory != 8e11 {
		t.Errorf("a throttled GPU: %+v", g)
	}
	if g := s.Devices[2]; g.Device != "GPU-a" || g.Flops != 0 || !slices.Contains(s.Left, "GPU-a: CUDA out of memory") {
		t.Errorf("%+v %v", g, s.Left)
	}
	if seen, _ := os.ReadFile(filepath.Join(filepath.Dir(python), "seen")); strings.TrimSpace(string(seen)) != "GPU-b,GPU-a" {
		t.Errorf("torch saw %q", seen)
	}
	if !slices.Equal(s.Slots, []string{"GPU-b", "GPU-a", "GPU-b"}) {
		t.Errorf("%v", s.Slots)
	}
	if limit := 20.0; s.Seconds <= 0 || s.Seconds > limit {
		t.Errorf("it took %v s, at most %v", s.Seconds, limit)
	}
}

// The link's figures are right within a tenth, for a modem and for a loopback, and a slow one is not held for minutes.
func TestDirection(t *testing.T) { synctest.Test(t, testDirection) }

func testDirection(t *testing.T) {
	for _, c := range []struct {
		name string
		rate float64
	}{{"0.5 Mbit/s", 62_500}, {"10 Mbit/s", 1.25e6}, {"1 Gbit/s", 1.25e8}} {
		l := &wireTo{trip: 20 * time.Millisecond, up: c.rate}
		began := time.Now()
		got, err := direction(t.Context(), l.trip.Seconds(), l.Send)
		if err != nil || got < 0.8*c.rate || got > 1.2*c.rate {
			t.Errorf("%s: %v of %v, %v after %v", c.name, got, c.rate, err, l.moved)
		}
		if took := time.Since(began); took > linkTime+linkTime {
			t.Errorf("%s: %v", c.name, took)
		}
		if slices.Max(l.moved) > linkMost {
			t.Errorf("%s: %v", c.name, l.moved)
		}
	}
}

// What fails for now is tried again without doing the rest anew; what fails three times is left out with its reason.
func TestFailedPartsAreTriedAgain(t *testing.T) { synctest.Test(t, testFailedParts) }

func testFailedParts(t *testing.T) {
	l := &wireTo{up: 1e9, down: 1e9, fails: 2}
	b := New(Options{Dir: t.TempDir(), Vitals: vitals, Load: idle, Link: l})
	count := map[string]int{}
	for name, f := range b.part {
		b.part[name] = func(ctx context.Context, s *machine.Score) error {
			count[name]++
			if name == "cpu" || name == "memory" || name == "disk" {
				return nil
			}
			return f(ctx, s)
		}
	}
	for range 2 {
		if _, err := b.Measure(t.Context()); domain.KindOf(err) != domain.KindUnavailable {
			t.Fatal(err)
		}
	}
	if s, err := b.Measure(t.Context()); err != nil || s.Up == 0 || len(s.Left) != 0 {
		t.Fatalf("%+v %v", s, err)
	}
	if count["cpu"] != 1 || count["link"] != 3 {
		t.Errorf("%v", count)
	}
	l.fails = 99
	for range 2 {
		if _, err := b.Measure(t.Context()); err == nil {
			t.Fatal("nothing failed")
		}
	}
	if s, err := b.Measure(t.Context()); err != nil || s.Up != 0 || len(s.Left) != 1 || !strings.Contains(s.Left[0], "others measure now") {
		t.Fatalf("%+v %v", s, err)
	}
}

// A lease ends every part at once, and what was done before it is kept.
func TestEveryPartStopsAtOnce(t *testing.T) {
	python := interpreter(t, "exec sleep 60")
	for _, name := range order {
		b := New(Options{Dir: t.TempDir(), Slots: []string{"GPU-a"}, Python: python, Vitals: vitals, Load: idle, Link: &wireTo{trip: time.Hour}})
		ctx, cancel := context.WithCancel(t.Context())
		for other, f := range b.part {
			b.part[other] = func(ctx context.Context, s *machine.Score) error {
				if other != name {
					return nil
				}
				time.AfterFunc(20*time.Millisecond, cancel)
				return f(ctx, s)
			}
		}
		began := time.Now()
		_, err := b.Measure(ctx)
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(began); took > 30*time.Second { // a link's trip takes an hour here, torch a minute
			t.Errorf("%s went on for %v", name, took)
		}
		if n := slices.Index(order[:], name); len(b.done) != n {
			t.Errorf("%s: %v are done", name, b.done)
		}
	}
}

// TestLoopsEndWithTheirContext: between two passes, not at the end of their time.
func TestLoopsEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	passes := 0
	best(ctx, time.Hour, func() float64 {
		if passes++; passes == 3 {
			cancel()
		}
		return 1
	})
	if passes != 3 {
		t.Errorf("%d passes, the third of which ended it", passes)
	}
}

func TestPythonWithoutTorchIsSaid(t *testing.T) {
	for script, want := range map[string]string{
		`echo "Traceback" >&2; echo "ModuleNotFoundError: No module named 'torch'" >&2; exit 1`: "No module named 'torch'",
		`echo hello`: "is no JSON",
		`exit 0`:     "is no JSON",
	} {
		b := New(Options{Slots: []string{"GPU-a"}, Python: interpreter(t, script), Vitals: vitals, Load: idle})
		s := b.blank()
		if err := b.gpus(t.Context(), &s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", script, err)
		}
	}
	b := New(Options{Slots: []string{"GPU-a"}, Python: "/no/such/python", Vitals: vitals, Load: idle})
	s := b.blank()
	if err := b.gpus(t.Context(), &s); err == nil || !strings.Contains(err.Error(), "no Python") {
		t.Error(err)
	}
}

func TestALittleDiskIsLeftAlone(t *testing.T) {
	little := func() (*machine.Vitals, uint64) {
		return &machine.Vitals{Disk: machine.Space{Total: 1 << 40, Free: diskSpare - 1}}, 1
	}
	dir := t.TempDir()
	b := New(Options{Dir: dir, Vitals: little, Load: idle})
	s := b.blank()
	if err := b.disk(t.Context(), &s); err == nil || s.Disk != 0 {
		t.Errorf("%v %v", err, s.Disk)
	}
	b.opts.Vitals = vitals
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := b.disk(ctx, &s); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%v stays", left)
	}
}

// What others use is not measured: it waits for a better time, and is left out with the reason when none comes.
func TestABusyMachineIsMeasuredLater(t *testing.T) {
	busy := 0.93
	others := func() (*machine.Vitals, uint64) {
		v, n := vitals()
		v.GPUs[0].Others = busy > mostLoad
		return v, n
	}
	python := interpreter(t, `echo '{"flops": 2e13, "memory": 8e11}'`)
	b := New(Options{Dir: t.TempDir(), Slots: []string{"GPU-a"}, Python: python, Vitals: others, Link: &wireTo{up: 1e9, down: 1e9}, Load: func(context.Context) float64 { return busy }})
	b.part["link"] = func(context.Context, *machine.Score) error { return nil }
	b.part["disk"] = b.part["link"]
	for range maxTries - 1 {
		if _, err := b.Measure(t.Context()); domain.KindOf(err) != domain.KindUnavailable {
			t.Fatal(err)
		}
	}
	s, err := b.Measure(t.Context())
	if err != nil || s.Devices[0].Flops != 0 || s.Devices[1].Flops != 0 || len(s.Left) != 3 || s.Left[0] != "cpu: other programs use 93 % of the CPU" {
		t.Fatalf("%+v %v", s, err)
	}
	busy = mostLoad
	if s, err = b.Measure(t.Context()); err != nil || s.Devices[0].Flops == 0 || s.Devices[1].Flops != 2e13 || len(s.Left) != 0 {
		t.Fatalf("%+v %v", s, err)
	}
}

// What a killed agent has left of its benchmark is overwritten and goes with the next one's end.
func TestDiskLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, diskFile), []byte("of a killed agent"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := New(Options{Dir: dir, Vitals: vitals, Load: idle})
	var s machine.Score
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.disk(ctx, &s); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
