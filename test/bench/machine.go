package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// machineFacts say what the figures were measured on. What the system does not tell is left empty.
type machineFacts struct {
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"`
	Memory  int64  `json:"memory_mib,omitempty"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Go      string `json:"go"`
	GOAMD64 string `json:"goamd64,omitempty"`
}

func thisMachine() machineFacts {
	m := machineFacts{CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version()}
	if kib, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64); err == nil {
		m.Memory = kib >> 10
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "GOAMD64" {
				m.GOAMD64 = s.Value
			}
		}
	}
	return m
}

// field reads the first line "name : value" of a file of the system, "" when there is none.
func field(file, name string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		k, v, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(k) == name {
			return strings.Join(strings.Fields(v), " ")
		}
	}
	return ""
}

// load is the number of processes that wanted a processor in the last minute, on the average; 0 where the system does
// not say. Above the number of cores, figures of time are too low.
func load() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	x, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return x
}
