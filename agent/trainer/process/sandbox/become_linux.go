package sandbox

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"
)

// oomScore makes the kernel end a trainer before the agent and the desktop when memory runs out.
const oomScore = "500"

// firstInherited is the first file behind the three that a program has.
const firstInherited = 3

// become limits this process, restricts it if asked, and replaces it by the program. What is set here holds for the calling
// thread, which is the one that becomes the program.
func become(e errand, command []string) error {
	runtime.LockOSThread()
	debug.SetGCPercent(-1) // a collection's threads and memory would count against the program's limits
	path, err := exec.LookPath(command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return err
	}
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(oomScore), 0) // raising it is allowed to all; where it is not, nothing is lost
	if e.Policy.Dir != "" {
		if err := os.Chdir(e.Policy.Dir); err != nil {
			return err
		}
	}
	if e.Restrict {
		if err := restrict(e.Policy); err != nil {
			return err
		}
	}
	if err := limit(e.Policy); err != nil { // late, since this process is held to it as well
		return err
	}
	if e.Restrict {
		if err := seccomp(e.Policy.Network); err != nil {
			return err
		}
	}
	// Its orphans become its children, not those of the system's first process: whoever looks after the tree does not lose them.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	// What the agent itself has inherited (a service manager's sockets, a shell's pipes) is not the program's. Before Linux 5.11
	// there is no such call, and the files stay.
	_ = unix.CloseRange(firstInherited, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	return fmt.Errorf("%s: %w", command[0], syscall.Exec(path, command, os.Environ()))
}

// limit sets the program's limits, where the machine's own are not lower.
func limit(p Policy) error {
	for resource, limit := range map[int]int64{unix.RLIMIT_CORE: 1, unix.RLIMIT_DATA: p.Data, unix.RLIMIT_FSIZE: p.File} {
		if limit <= 0 {
			continue
		}
		if resource == unix.RLIMIT_CORE {
			limit = 0 // a core of tens of gigabytes helps nobody
		}
		most := &unix.Rlimit{Cur: uint64(limit), Max: uint64(limit)}
		var had unix.Rlimit
		if unix.Getrlimit(resource, &had) == nil && had.Max < most.Max {
			most.Cur, most.Max = had.Max, had.Max // the machine's own limit is lower
		}
		if err := unix.Setrlimit(resource, most); err != nil {
			return fmt.Errorf("limit %d: %w", resource, err)
		}
	}
	return nil
}

// restrict gives up every privilege and all that the policy does not name, but for system calls.
func restrict(p Policy) error {
	if err := dropCapabilities(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	return landlock(p)
}

// dropCapabilities leaves a root without root's powers: some of them reach around Landlock. The bounding set goes too, so
// that becoming a program gives none back.
func dropCapabilities() error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		} // EPERM: it has none to give up; EINVAL: this kernel does not know it
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// available says what holds programs here, strongest first, and why others do not.
func available() (found []Backend, bwrap string, why []string) {
	bwrap, err := exec.LookPath("bwrap")
	if err == nil {
		found = append(found, Bubblewrap)
	} else {
		why = append(why, "bubblewrap is not installed")
	}
	if _, known := auditArch(); landlockVersion() > 0 && known {
		found = append(found, Landlock)
	} else {
		why = append(why, "the kernel has no Landlock")
	}
	return found, bwrap, why
}

// Helper is how this very binary is started again, also when its file was replaced since. Empty: it cannot be.
func Helper() string { return "/proc/self/exe" }
