package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machineMemory is the memory of this machine, in bytes; 0 when it cannot be told.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(uint64(info.Totalram) * uint64(info.Unit))
}

// tree knows the processes of a unit: the child's group, the children of those it knows, and whatever carries the
// unit's mark in its environment, which is read once for each process.
type tree struct {
	mark  []byte
	known map[int]kin
	page  int64
}

// kin is what is known of a process of this machine, ours or not.
type kin struct {
	start uint64 // tells it from a later one of its number
	ours  bool
}

func newTree(unit string) *tree {
	return &tree{mark: []byte(unitMark + unit), known: map[int]kin{}, page: int64(os.Getpagesize())}
}

// stat is the part of /proc/PID/stat that counts.
type stat struct {
	pid, parent, group int
	start              uint64
	resident           int64 // pages
	computed           int64 // ticks
	dead               bool  // it has ended, and nobody has waited for it
}

// measure counts the unit's processes and sums up their memory. Pages that several share are counted once, which takes a closer
// look that is only made when the rough sum is above limit.
func (t *tree) measure(child int, limit int64) use {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return use{}
	}
	var u use
	var ours []int
	look := map[int]kin{}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		s, ok := readStat(pid)
		if !ok {
			continue
		}
		k, known := t.known[pid]
		if !known || k.start != s.start {
			k = kin{start: s.start, ours: t.marked(pid)}
		}
		k.ours = k.ours || pid == child || s.group == child || look[s.parent].ours
		look[pid] = k
		if k.ours && !s.dead {
			u.processes++
			u.memory += s.resident * t.page
			u.computed += s.computed
			ours = append(ours, pid)
		}
	}
	t.known = look
	if limit > 0 && u.memory > limit {
		u.memory = 0
		for _, pid := range ours {
			u.memory += t.proportional(pid)
		}
	}
	return u
}

// end kills what is left of the unit when its child has ended: what the last looks knew, and what that has started since. A
// process that threw away the unit's mark, its group and its session is known by its parent alone, which the child is for
// all orphans as long as it lives (PR_SET_CHILD_SUBREAPER in the sandbox's helper).
func (t *tree) end() {
	for pass := range maxSweeps {
		t.measure(noChild, 0)
		found := 0
		for pid, k := range t.known { // each is killed alone: order does not matter
			if k.ours && kill(pid, k.start) {
				found++
			}
		}
		if found == 0 {
			return
		}
		if pass >= quickSweeps {
			time.Sleep(sweepPause)
		}
	}
}

// noChild is no process and no group.
const noChild = -1

// kill kills the process of the number that began at start; it reports whether it was alive.
func kill(pid int, start uint64) bool {
	p, err := os.FindProcess(pid) // holds the process by a pidfd: another one with its number is not killed
	if err != nil {
		return false
	}
	defer func() { _ = p.Release() }()
	s, ok := readStat(pid)
	return ok && s.start == start && !s.dead && p.Kill() == nil
}

// marked reports whether the process carries the unit's mark.
func (t *tree) marked(pid int) bool {
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	return err == nil && (bytes.HasPrefix(env, t.mark) || bytes.Contains(env, append([]byte{0}, t.mark...)))
}

// proportional is the memory of a process in which a page that n processes share counts as the n-th part of one.
func (t *tree) proportional(pid int) int64 {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
	if err == nil {
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
				if kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64); err == nil {
					return kb << 10
				}
			}
		}
	}
	s, _ := readStat(pid) // a process that is gone has no memory
	return s.resident * t.page
}

// readStat reads /proc/PID/stat. The program's name within it may hold anything, so that fields are counted from its end.
func readStat(pid int) (s stat, ok bool) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return s, false
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 22 {
		return s, false
	}
	s.pid, s.dead = pid, f[0] == "Z" || f[0] == "X"
	for i, into := range map[int]*int{1: &s.parent, 2: &s.group} {
		if *into, err = strconv.Atoi(f[i]); err != nil {
			return s, false
		}
	}
	for _, i := range []int{11, 12} {
		ticks, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return s, false
		}
		s.computed += ticks
	}
	s.start, err = strconv.ParseUint(f[19], 10, 64)
	if err == nil {
		s.resident, err = strconv.ParseInt(f[21], 10, 64)
	}
	return s, err == nil
}
