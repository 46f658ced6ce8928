package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// isolate gives the child a process group of its own and ties its life to the agent's.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns when the process has ended and leaves it to be waited for, so that its number stays taken. It
// reports whether it saw the end.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

func terminateGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGTERM) }
func killGroup(pid int)      { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// signalOf names the signal that ended the process, empty when none did.
func signalOf(state *os.ProcessState) string {
	if state == nil {
		return ""
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return ws.Signal().String()
	}
	return ""
}

// sweep kills every process of this user whose environment begins an entry with mark, wherever it has moved to: a new
// session and a double fork leave a group, but not the environment. It goes on until it finds none.
func sweep(mark string) error {
	for pass := range maxSweeps {
		found, err := sweepOnce([]byte(mark))
		if err != nil || found == 0 {
			return err
		}
		if pass >= quickSweeps { // what is killed takes its time to go: a namespace of processes waits for all of them
			time.Sleep(sweepPause)
		}
	}
	return fmt.Errorf("processes of %s keep coming back", mark)
}

func sweepOnce(mark []byte) (found int, err error) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		p, err := os.FindProcess(pid) // holds the process by a pidfd: another one with its number is not killed
		if err != nil {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", d.Name(), "environ"))
		if err == nil && (bytes.HasPrefix(env, mark) || bytes.Contains(env, append([]byte{0}, mark...))) && p.Kill() == nil {
			found++
		}
		_ = p.Release()
	}
	return found, nil
}
