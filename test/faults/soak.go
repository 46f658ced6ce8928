package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tensorturn/broker/hub"
	"tensorturn/domain/pack"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
	"tensorturn/test/offline"
)

// soakEvery spaces samples and failures.
const (
	soakEvery  = 5 * time.Second
	soakFaults = 3 // samples between two failures
)

// What may grow between the second quarter of a soak and its last: what the hub remembers of the events, and noise.
const (
	soakBytes       = 24 << 20
	soakShare       = 0.15
	soakDescriptors = 8
	soakGoroutines  = 12
)

// vital is one look at a process.
type vital struct {
	at                      time.Time
	bytes, descriptors, gos float64
}

// soak lets a pool work with forced failures around a hub and a machine that are left alone, and looks at what these two hold.
func soak(o options, bin string) error {
	return kit.InBed(os.Stderr, func(b *kit.Bed) {
		w := newWorld(b, bin, false, o.seed)
		w.soaked(time.Duration(o.minutes * float64(time.Minute)))
	})
}

func (w *world) soaked(length time.Duration) {
	w.StartHub("--min-free", "1048576")
	w.witness = watch(w)
	calm := w.StartAgent("calm")
	link := w.between()
	for _, n := range []string{"b", "c"} {
		w.agents[n] = w.StartAgent(n)
	}
	w.JoinAt(link.url(), "far")
	w.agents["far"] = w.SpawnAgent("far", "--reconnect", "400ms")
	w.AwaitMachine("far", "online")
	link.set(weather{reset: 20 * time.Second})
	id := w.Submit(w.churnSpec("soak", 6, int(4*1600*length.Seconds()*3)))
	w.AwaitRun(id, "work", func(r runs.Run) bool { return len(r.Slots) == 4 })
	hubVitals, calmVitals := []vital{}, []vital{}
	faults := map[string]int{}
	far := newProgress("soak")
	tick := time.NewTicker(soakEvery)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < length; <-tick.C {
		hubVitals = append(hubVitals, w.vitalsOf(w.Hub.PID(), w.goroutines()))
		calmVitals = append(calmVitals, w.vitalsOf(calm.PID(), 0))
		last := hubVitals[len(hubVitals)-1]
		far.tell("%.0f of %.0f minutes, the hub has %.0f MiB, %.0f goroutines; failures %v", time.Since(began).Minutes(), length.Minutes(), last.bytes/(1<<20), last.gos, faults)
		if len(hubVitals)%soakFaults != 0 {
			continue
		}
		switch n := []string{"b", "c"}[w.rng.IntN(2)]; w.rng.IntN(4) {
		case 0, 1:
			w.agents[n].Kill()
			w.agents[n] = w.SpawnAgent(n)
			faults["agents killed"]++
		case 2:
			for _, pid := range children(w.agents[n].PID()) {
				_ = syscall.Kill(pid, syscall.SIGSEGV)
			}
			faults["trainers killed"]++
		case 3:
			w.freeze(w.agents[n], lease+half)
			faults["agents frozen"]++
		}
	}
	r := w.show(id)
	w.Say("run", "cancel", string(id))
	w.over(id)
	w.intact()
	w.once(id)
	w.Hub.Stop(kit.Patience)
	gos := w.beats("calm", calmVitals)
	fmt.Printf("%s: %d samples counted, %d rounds, %d leases lost, %d link resets, failures %v\n", length, r.Ledger.Counted, r.Rounds.Merged, r.Totals.Expired, link.resets.Load(), faults)
	w.flat("hub", hubVitals)
	w.flat("agent", gos)
}

// vitalsOf reads a process's memory and descriptors.
func (w *world) vitalsOf(pid int, gos float64) vital {
	v := vital{at: time.Now(), gos: gos}
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	w.Must(err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(text)[0], 64)
			w.Must(err)
			v.bytes = kib * 1024
		}
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	w.Must(err)
	v.descriptors = float64(len(fds))
	return v
}

// goroutines are those of the hub, by its own metrics.
func (w *world) goroutines() float64 {
	body, err := w.Stream("/metrics")
	if err != nil {
		return 0
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "go_goroutines "); ok {
			n, _ := strconv.ParseFloat(text, 64)
			return n
		}
	}
	return 0
}

// beats adds the goroutines that the machine reported in its heartbeats; the hub keeps those of an hour.
func (w *world) beats(name string, vs []vital) []vital {
	dir := filepath.Join(w.TempDir(), "store")
	w.Must(offline.Copy(w.HubDir(), dir))
	s, err := offline.Open(context.Background(), dir)
	w.Must(err)
	defer s.Close()
	keys := ""
	for m, beat := range s.Beats(context.Background()) {
		var h hub.Heartbeat
		if pack.Decode(beat, pack.MessageLimits(), &h) != nil || !strings.HasPrefix(m, name+"-") {
			continue
		}
		keys = m
		at := time.UnixMilli(h.Time)
		for i := range vs {
			if vs[i].at.Sub(at).Abs() < soakEvery/2 {
				vs[i].gos = float64(h.Telemetry.Goroutines)
			}
		}
	}
	if keys == "" {
		w.Errorf("no heartbeats of %s", name)
	}
	return vs
}

// flat compares the last quarter with the second one, by medians: the first is warming up.
func (w *world) flat(name string, vs []vital) {
	n := len(vs)
	if n < 8 {
		w.Fatalf("%d samples of the %s are too few", n, name)
	}
	for _, q := range []struct {
		what  string
		of    func(vital) float64
		limit func(before float64) float64
		unit  float64
	}{
		{"MiB resident", func(v vital) float64 { return v.bytes }, func(b float64) float64 { return soakBytes + soakShare*b }, 1 << 20},
		{"descriptors", func(v vital) float64 { return v.descriptors }, func(float64) float64 { return soakDescriptors }, 1},
		{"goroutines", func(v vital) float64 { return v.gos }, func(float64) float64 { return soakGoroutines }, 1},
	} {
		before, after := median(vs[n/4:n/2], q.of), median(vs[n*3/4:], q.of)
		hours := vs[n-1].at.Sub(vs[0].at).Hours() / 2
		fmt.Printf("  %-6s %-13s %8.1f then %8.1f (%+.1f an hour)\n", name, q.what, before/q.unit, after/q.unit, (after-before)/q.unit/hours)
		if after-before > q.limit(before) {
			w.Errorf("the %s grew from %.1f to %.1f %s", name, before/q.unit, after/q.unit, q.what)
		}
		if before == 0 {
			w.Errorf("no %s of the %s were seen", q.what, name)
		}
	}
}

func median(vs []vital, of func(vital) float64) float64 {
	var xs []float64
	for _, v := range vs {
		if x := of(v); x > 0 {
			xs = append(xs, x)
		}
	}
	if len(xs) == 0 {
		return 0
	}
	slices.Sort(xs)
	return xs[len(xs)/2]
}
