package process

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"
)

// child is a running program with everything it started.
type child struct {
	cmd    *exec.Cmd
	unit   string        // marks its processes in their environment
	exited chan struct{} // closed when it has ended, its group is killed, and state stands
	state  *os.ProcessState

	verdict atomic.Pointer[Failure] // why it was ended by the agent, nil when it was not
}

// unitMark begins the entry of the environment by which the processes of a unit are known.
const unitMark = "TENSORTURN_UNIT_ID="

// start runs the command. Its files are the child's from then on and are closed here.
func start(cmd *exec.Cmd, unit string, stdin, stdout, stderr *os.File) (*child, error) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	isolate(cmd)
	c := &child{cmd: cmd, unit: unit, exited: make(chan struct{})}
	begun := make(chan error, 1)
	go c.keep(begun)
	err := <-begun
	return c, errors.Join(err, stdin.Close(), stdout.Close(), stderr.Close())
}

// keep starts the child, waits for its end and kills what is left of its group. It owns one thread for as long: on Linux
// the child dies with the thread that started it (prctl PR_SET_PDEATHSIG), and Go ends idle threads as it likes.
func (c *child) keep(begun chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.exited)
	err := c.cmd.Start()
	begun <- err
	if err != nil {
		return
	}
	if awaitExit(c.cmd.Process.Pid) {
		killGroup(c.cmd.Process.Pid) // before its number is free for others
	}
	_ = c.cmd.Wait() // the state says everything
	c.state = c.cmd.ProcessState
}

// end waits soft for the child to end by itself, asks it with SIGTERM, kills it with its group after hard, and removes
// whatever it has started outside of its group. It returns when all are gone or cannot be killed.
func (c *child) end(soft, hard time.Duration) error {
	if !c.wait(soft) {
		terminateGroup(c.cmd.Process.Pid)
		if !c.wait(hard) {
			killGroup(c.cmd.Process.Pid)
			<-c.exited
		}
	}
	return sweep(unitMark + c.unit)
}

// wait reports whether the child ended within d.
func (c *child) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.exited:
		return true
	case <-t.C:
		return false
	}
}
