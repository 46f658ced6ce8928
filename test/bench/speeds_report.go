package main

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// reportSpeeds compares the story with the ideal and with equal shards, and says where each slot's time went.
func (b *bench) reportSpeeds(s *pooled, solo map[string]*soloSpeed) {
	const section = "speeds"
	sum, own, slowest := 0.0, 0.0, 0.0
	for _, m := range speedsPool {
		x := solo[m.name].mean()
		sum += x
		if slowest == 0 || x < slowest {
			slowest = x
		}
	}
	for _, l := range s.slots {
		own += float64(l.samples) / l.training
	}
	ideal, took := float64(s.samples)/sum, s.seconds()
	static := float64(s.samples) / float64(len(speedsPool)) / slowest
	b.report.add(
		row{Section: section, What: "run on slots of 1:2:4:8", Value: took, Unit: "s", Ratio: took / ideal, Of: "ideal by solo speeds", Limit: speedsLimit},
		row{Section: section, What: "the same", Value: took, Unit: "s", Ratio: took / (float64(s.samples) / own), Of: "ideal by speeds within the run"},
		row{Section: section, What: "static equal shards (computed)", Value: static, Unit: "s", Ratio: static / ideal, Of: "ideal by solo speeds"},
	)
	b.report.note("speeds: %d samples in %d chunks and %d rounds, %d steals; close to merge %.0f ms a round, merge to next round %.0f ms; hub and agents used %.2f cores",
		s.samples, s.chunks, s.rounds, s.steals, s.closing.Seconds()*1000/float64(s.rounds), s.opening.Seconds()*1000/float64(max(1, s.rounds-1)), s.cpu.Seconds()/took)
	for _, l := range s.slots {
		name := s.names[l.slot.Machine()]
		b.report.note("  slot %-5s alone %6.0f samples/s before and %6.0f after, in the pool %6.0f; at least %3d chunks a round; trained %.1f %% of the time, of the rest in ms a round: to begin %.0f, between chunks %.0f, delta and upload %.0f, for the others %.0f",
			name, solo[name].each[0], solo[name].each[1], float64(l.samples)/l.training, l.fewest, 100*l.training/took, perRound(l.begin, s.story), perRound(l.between, s.story), perRound(l.sending, s.story), perRound(l.waiting, s.story))
	}
}

func perRound(seconds float64, s *story) float64 { return 1000 * seconds / float64(s.rounds) }

// cpuOf is the processor time that the processes started here have used, 0 where the system does not say.
func cpuOf() time.Duration {
	const tick = 10 * time.Millisecond // of the kernel's accounts, on every Linux that Go supports
	total := time.Duration(0)
	for _, pid := range children() {
		b, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			continue
		}
		_, rest, ok := strings.Cut(string(b), ") ") // behind the name, which may hold anything
		f := strings.Fields(rest)
		if !ok || len(f) < 13 {
			continue
		}
		for _, s := range f[11:13] { // user and system time
			n, _ := strconv.ParseInt(s, 10, 64)
			total += time.Duration(n) * tick
		}
	}
	return total
}

// children lists the processes that this one has started.
func children() []string {
	var pids []string
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, t := range tasks {
		b, err := os.ReadFile("/proc/self/task/" + t.Name() + "/children")
		if err == nil {
			pids = append(pids, strings.Fields(string(b))...)
		}
	}
	return pids
}
