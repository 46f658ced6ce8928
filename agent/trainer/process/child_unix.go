//go:build unix && !linux

package process

import (
	"os"
	"os/exec"
	"syscall"
)

// isolate gives the child a process group of its own. It does not die with the agent here.
func isolate(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// awaitExit sees nothing here: there is no way to look at an end without taking it. What is left of the group is killed
// when the trainer is closed.
func awaitExit(int) bool { return false }

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

// sweep does nothing here: the group is all that can be found.
func sweep(string) error { return nil }
