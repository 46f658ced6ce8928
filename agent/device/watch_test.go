package device

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tensorturn/domain/machine"
)

// TestMain is the prober of the tests: this binary under HelperWord, with the hardware that TELL names.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == HelperWord {
		over := make(chan struct{})
		os.Exit(serve(os.Stdout, over, hardware(os.Getenv("TELL")), 20*time.Millisecond))
	}
	goleak.VerifyTestMain(m)
}

// script is a source made by hand, for what no mock of a library shows.
type script func(reading int) Reading

type scripted struct {
	script script
	n      int
}

func (s *scripted) read() Reading { s.n++; return s.script(s.n) }
func (s *scripted) close()        {}

// hang is a driver that never answers. A bare select would be found out by the runtime, which ends the process.
func hang() Reading {
	<-time.After(time.Hour)
	return Reading{}
}

// plain are the sources that need no library.
func plain(name string) source {
	switch name {
	case "hangs at once":
		return &scripted{script: func(int) Reading { return hang() }}
	case "hangs later":
		return &scripted{script: func(n int) Reading {
			if n > 2 {
				return hang()
			}
			return Reading{GPUs: gpus("GPU-a", "GPU-b")}
		}}
	case "crashes":
		return &scripted{script: func(int) Reading { os.Exit(127); panic("") }}
	case "not loaded":
		return &scripted{script: func(int) Reading { return Reading{Trouble: "not loaded", Absent: true} }}
	case "loses one":
		return &scripted{script: func(n int) Reading {
			if n > 2 {
				return Reading{GPUs: gpus("GPU-a", "GPU-b")[1:]}
			}
			return Reading{GPUs: gpus("GPU-a", "GPU-b")}
		}}
	case "comes late": // the driver is loaded while the agent runs: its marker tells how many probers there were
		return &scripted{script: func(int) Reading {
			f, _ := os.OpenFile(os.Getenv("MARK"), os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
			_, _ = f.WriteString("x")
			if at, _ := f.Stat(); at.Size() < 3 {
				return Reading{Trouble: "not loaded", Absent: true}
			}
			return Reading{GPUs: gpus("GPU-a")}
		}}
	case "babbles":
		fmt.Println("Segmentation fault")
		return &scripted{script: func(int) Reading { return Reading{} }}
	}
	return &scripted{script: func(int) Reading { return Reading{Trouble: "none"} }}
}

func watching(t *testing.T, tell string) *Machine {
	t.Helper()
	t.Setenv("TELL", tell)
	m := NewMachine(Options{Command: []string{os.Args[0], HelperWord}, Interval: 20 * time.Millisecond, Limit: 2 * time.Second,
		Quick: 10 * time.Millisecond, Slow: 30 * time.Millisecond, Hint: func() bool { return true }}, t.TempDir())
	m.Start()
	t.Cleanup(m.Stop)
	return m
}

// eventually waits for what the prober brings, and shows that asking never waits: each answer comes within a small part of an agent's
// interval, whatever the driver does.
func eventually(t *testing.T, m *Machine, what string, ok func(*machine.Vitals) bool) *machine.Vitals {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for last := uint64(0); ; {
		began := time.Now()
		v, serial := m.Vitals()
		if took := time.Since(began); took > Interval/4 {
			t.Fatalf("the answer took %v", took)
		}
		if serial != last && ok(v) {
			return v
		}
		last = serial
		select {
		case <-deadline:
			t.Fatalf("never %s: %+v", what, v)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestWatcher(t *testing.T) {
	for _, c := range []struct {
		tell, what string
		ok         func(*machine.Vitals) bool
	}{
		{"hangs at once", "said to hang", func(v *machine.Vitals) bool {
			return strings.Contains(v.Trouble, "does not answer") && len(v.GPUs) == 0
		}},
		{"hangs later", "both listed", func(v *machine.Vitals) bool { return len(v.GPUs) == 2 && v.GPUs[0].Gone == "" }},
		{"crashes", "said to fail", func(v *machine.Vitals) bool { return strings.Contains(v.Trouble, "3 times in a row") }},
		{"babbles", "said to fail", func(v *machine.Vitals) bool { return strings.Contains(v.Trouble, "does not answer") }},
		{"not loaded", "said to be absent", func(v *machine.Vitals) bool { return v.Trouble == "not loaded" }},
		{"loses one", "short of one", func(v *machine.Vitals) bool {
			return len(v.GPUs) == 2 && v.GPUs[0].Gone != "" && v.GPUs[0].UUID == "GPU-a" && v.GPUs[1].Gone == ""
		}},
	} {
		t.Run(c.tell, func(t *testing.T) {
			m := watching(t, c.tell)
			eventually(t, m, c.what, c.ok)
		})
	}
}

func TestADriverMayComeLate(t *testing.T) {
	t.Setenv("MARK", t.TempDir()+"/mark")
	m := watching(t, "comes late")
	eventually(t, m, "absent", func(v *machine.Vitals) bool { return v.Trouble == "not loaded" })
	eventually(t, m, "there", func(v *machine.Vitals) bool { return len(v.GPUs) == 1 && v.Trouble == "" && v.GPUs[0].Gone == "" })
}

func TestOnlyTheSlotOfALostGPUIsAbsent(t *testing.T) {
	m := watching(t, "loses one")
	m.Give([]string{"GPU-a", "GPU-b", ""})
	eventually(t, m, "short of one", func(v *machine.Vitals) bool { return len(v.GPUs) == 2 && v.GPUs[0].Gone != "" })
	for slot, absent := range []bool{true, false, false} {
		if why := m.Absent(slot); (why != "") != absent {
			t.Errorf("slot %d: %q", slot, why)
		}
	}
}

func TestNoProberWithoutATraceOfADriver(t *testing.T) {
	w := NewWatcher(Options{Command: []string{"/no/such/program"}, Hint: func() bool { return false }})
	w.Start()
	defer w.Stop()
	<-w.First()
	if r, _ := w.Latest(); r.Trouble != "no NVIDIA driver was found" {
		t.Errorf("%+v", r)
	}
}
