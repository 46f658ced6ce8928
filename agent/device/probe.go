package device

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"time"

	"tensorturn/domain/machine"
)

// Reading is one line of the prober.
type Reading struct {
	Driver  string        `json:"driver,omitempty"`
	CUDA    string        `json:"cuda,omitempty"`
	Trouble string        `json:"trouble,omitempty"` // why GPUs are not known
	Absent  bool          `json:"absent,omitempty"`  // there is no driver: the prober has ended
	GPUs    []machine.GPU `json:"gpus,omitempty"`
}

// source reads GPUs. It may hang or crash: it lives in the prober alone.
type source interface {
	read() Reading
	close()
}

// Main is the prober. args are os.Args[1:], of which the first is HelperWord and the second the interval in milliseconds. It ends
// when standard input does: with its agent.
func Main(args []string) int {
	interval := Interval
	if len(args) > 1 {
		if ms, err := strconv.Atoi(args[1]); err == nil && ms > 0 {
			interval = time.Duration(ms) * time.Millisecond
		}
	}
	signal.Ignore(os.Interrupt) // Ctrl-C is for the agent, which ends this process after its own work
	over := make(chan struct{})
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	return serve(os.Stdout, over, newSource(), interval)
}

// serve prints readings until over, or until there is nothing to read.
func serve(out io.Writer, over <-chan struct{}, s source, interval time.Duration) int {
	defer s.close()
	enc := json.NewEncoder(out)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		r := s.read()
		if err := enc.Encode(r); err != nil {
			fmt.Fprintln(os.Stderr, "the agent has gone:", err)
			return 1
		}
		if r.Absent {
			return 0
		}
		select {
		case <-over:
			return 0
		case <-tick.C:
		}
	}
}
