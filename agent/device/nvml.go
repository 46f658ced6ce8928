//go:build cgo && linux

package device

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"tensorturn/domain/machine"
)

func newSource() source { return newLibrary(nvml.New(), os.Getppid(), deviceTime) }

// library reads GPUs through NVML. Every call follows a successful Init: before it go-nvml has no symbols and would crash.
type library struct {
	nvml    nvml.Interface
	agent   int           // process whose descendants are our own trainers
	limit   time.Duration // for all GPUs of a reading
	ready   bool
	readers map[int]*reader // by index

	mu    sync.Mutex // guards what listening finds
	xids  map[string]xid
	heard bool          // errors are listened to
	over  chan struct{} // closed by close
	ears  sync.WaitGroup
}

// xid is the newest error code of a GPU and how many there were.
type xid struct{ code, count uint64 }

// reader is one GPU and the call that may hang in it. The call owns seen while it runs.
type reader struct {
	last machine.GPU
	out  chan answer // nil when no call is under way
	seen uint64      // newest sample of who computes, microseconds
}

// answer is what a call says: who the GPU is as soon as that is known, so that one that hangs from the beginning has a name, then all.
type answer struct {
	gpu   machine.GPU
	whole bool
}

func newLibrary(n nvml.Interface, agent int, limit time.Duration) *library {
	return &library{nvml: n, agent: agent, limit: limit, readers: map[int]*reader{}, xids: map[string]xid{}, over: make(chan struct{})}
}

// close waits for the listener, at most one of its waits. A reader that hangs stays behind, as does this process's end.
func (l *library) close() {
	close(l.over)
	l.ears.Wait()
	if l.ready {
		l.nvml.Shutdown()
	}
}

// read implements source.
func (l *library) read() Reading {
	if !l.ready {
		if ret := l.nvml.Init(); ret != nvml.SUCCESS {
			return Reading{Trouble: whyNot(ret), Absent: true}
		}
		l.ready = true
	}
	n, ret := l.nvml.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return Reading{Trouble: "the driver does not count its GPUs: " + l.nvml.ErrorString(ret), Absent: true}
	}
	n = min(n, machine.MaxGPUs)
	var r Reading
	r.Driver, _ = l.nvml.SystemGetDriverVersion()
	if v, ret := l.nvml.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
		r.CUDA = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	if n == 0 {
		r.Trouble = "the driver is loaded and knows no GPU"
	}
	l.listen(n)
	deadline := time.Now().Add(l.limit)
	for i := range n {
		l.begin(i)
	}
	for i := range n {
		if g := l.finish(i, deadline); g.UUID != "" {
			r.GPUs = append(r.GPUs, g)
		}
	}
	return r
}

// whyNot says what a failed Init means. NVML's own texts are not there yet.
func whyNot(ret nvml.Return) string {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return "no NVIDIA driver: libnvidia-ml.so.1 is not installed"
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "the NVIDIA driver is installed and not loaded"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return "the NVIDIA driver was updated while its old version runs: restart the machine"
	case nvml.ERROR_NO_PERMISSION:
		return "the NVIDIA driver refuses this user"
	}
	return fmt.Sprintf("the NVIDIA driver does not start (NVML error %d)", int32(ret))
}

// begin asks a GPU, unless it is being asked.
func (l *library) begin(i int) {
	d := l.readers[i]
	if d == nil {
		d = &reader{last: machine.GPU{Index: i}}
		l.readers[i] = d
	}
	if d.out != nil {
		return
	}
	out, known := make(chan answer, 2), gone(d.last, "")
	d.out = out
	go func() { // ends with the call, or with this process
		defer func() {
			if p := recover(); p != nil {
				known.Gone = fmt.Sprint("its driver failed: ", p)
				out <- answer{known, true}
			}
		}()
		dev := l.identify(i, &known)
		if dev == nil {
			out <- answer{known, true}
			return
		}
		out <- answer{gpu: known}
		out <- answer{l.ask(dev, known, &d.seen), true}
	}()
}

// finish takes the answer, or says that none has come.
func (l *library) finish(i int, deadline time.Time) machine.GPU {
	d := l.readers[i]
	wait := time.NewTimer(max(time.Until(deadline), 10*time.Millisecond)) // an answer that is there wins
	defer wait.Stop()
	for d.out != nil {
		select {
		case a := <-d.out:
			if d.last = a.gpu; a.whole {
				d.out = nil
			}
			continue
		case <-wait.C:
			d.last = gone(d.last, "it does not answer")
		}
		break
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.xids[d.last.UUID]
	d.last.XID, d.last.Errors = e.code, e.count
	return d.last
}
