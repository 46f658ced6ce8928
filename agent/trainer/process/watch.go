package process

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"tensorturn/domain"
)

// Limits are what one program, with everything it starts, may use on this machine. Zero is no limit.
type Limits struct {
	Memory    int64         // bytes, resident, of all its processes; one process may not allocate more either
	Processes int           // at a time
	Disk      int64         // bytes in its folders; one file may not be larger either
	Time      time.Duration // from its start
}

// Limits that hold when the machine's owner says nothing.
const (
	DefaultProcesses = 1024     // data loaders of 16 GPUs fit; a fork bomb does not
	DefaultDisk      = 64 << 30 // check-points and results of a model that fits a GPU
	memoryShare      = 0.9      // of the machine's memory: the rest is the agent's and the system's
	maxFiles         = 200_000  // in its folders: beyond it a walk over them would take the agent's time
)

// DefaultLimits gives them. A time limit there is none: a fused run may take weeks, and a program that makes no progress
// loses its lease.
func DefaultLimits() Limits {
	return Limits{Memory: int64(memoryShare * float64(machineMemory())), Processes: DefaultProcesses, Disk: DefaultDisk}
}

// Pace of the watch. A program can do harm between two looks, but no more than the system takes in half a second.
const (
	watchEvery  = 500 * time.Millisecond
	diskLooks   = 10 // looks at the processes for each look at the folders
	settleLooks = 4  // looks over which memory must stay above its limit: a peak that is gone is no reason
)

// watch looks after a child until it has ended, and ends it when it is beyond a limit.
func (t *Trainer) watch() {
	o := &t.opener.opts
	began, pid, tree := time.Now(), t.child.cmd.Process.Pid, newTree(t.unit)
	ticker := time.NewTicker(o.WatchEvery)
	defer ticker.Stop()
	t.tree = tree
	above := 0
	for look := 0; ; look++ {
		select {
		case <-t.child.exited:
			return
		case <-ticker.C:
		}
		closer := o.Limits.Memory
		if t.dry.Load() {
			closer = 1 // pages that processes share are counted once
		}
		use := tree.measure(pid, closer)
		t.computed.Store(use.computed)
		if t.dry.Load() {
			t.resident.Store(max(t.resident.Load(), use.memory))
		}
		t.looked.Add(1)
		if o.Limits.Memory > 0 && use.memory > o.Limits.Memory {
			above++
		} else {
			above = 0
		}
		switch {
		case o.Limits.Processes > 0 && use.processes > o.Limits.Processes:
			t.condemn(limitFailure(KindLimit, fmt.Sprintf("started %d processes, more than the %d that are allowed", use.processes, o.Limits.Processes), "--trainer-processes"))
		case above >= settleLooks || above > 0 && float64(use.memory) > 1.1*float64(o.Limits.Memory):
			t.condemn(limitFailure(KindMemory, fmt.Sprintf("used %s of memory, more than the %s that are allowed", domain.FormatSize(use.memory), domain.FormatSize(o.Limits.Memory)), "--trainer-memory"))
		case o.Limits.Time > 0 && time.Since(began) > o.Limits.Time:
			t.condemn(limitFailure(KindLimit, fmt.Sprintf("ran for more than the %v that are allowed", o.Limits.Time), "--trainer-time"))
		case o.Limits.Disk > 0 && look%diskLooks == 0:
			if bytes, files := usage(t.dir); bytes > o.Limits.Disk || files > maxFiles {
				t.condemn(limitFailure(KindLimit, fmt.Sprintf("wrote %s in %d files, more than the %s and %d files that are allowed", domain.FormatSize(bytes), files, domain.FormatSize(o.Limits.Disk), maxFiles), "--trainer-disk"))
			}
		}
	}
}

func limitFailure(kind Kind, what, flag string) *Failure {
	return fail(kind, "the script "+what, "use less, or allow more on this machine: agent start "+flag)
}

// condemn ends the child with everything it started; the reason is what the next call of the trainer gives.
func (t *Trainer) condemn(why *Failure) {
	if t.child.verdict.CompareAndSwap(nil, why) {
		killGroup(t.child.cmd.Process.Pid)
		_ = sweep(unitMark + t.unit) // what comes back is swept again when the trainer is closed
	}
}

// usage sums up the files below dir, up to maxFiles and one.
func usage(dir string) (bytes int64, files int) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // what is gone in between needs no room
		}
		if info, err := d.Info(); err == nil {
			bytes += info.Size()
		}
		if files++; files > maxFiles {
			return fs.SkipAll
		}
		return nil
	})
	return bytes, files
}

// use is what the processes of a unit take.
type use struct {
	processes int
	memory    int64 // bytes
	computed  int64 // ticks of the system's clock; falls when a process ends
}
