package device

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// foreignBusy is the per cent of a GPU from which a foreign program counts as using it: below it a desktop draws.
const foreignBusy = 20

// foreign reports whether a process is not a descendant of the agent. One that cannot be seen, as from within a container, is not
// judged: it may be our own trainer under another number.
func foreign(agent, pid int) bool {
	for range 64 { // deeper trees than this are nobody's trainers
		if pid == agent || pid == os.Getpid() {
			return false
		}
		if pid <= 1 {
			return true
		}
		next, ok := parentOf(pid)
		if !ok {
			return false
		}
		pid = next
	}
	return true
}

// parentOf reads the parent from /proc/PID/stat: "pid (name) state parent ...", where the name may hold anything.
func parentOf(pid int) (int, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	end := strings.LastIndexByte(string(b), ')')
	words := strings.Fields(string(b[end+1:]))
	if len(words) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(words[1])
	return parent, err == nil
}
