package doctor

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"
)

// Two checks want to know the GPUs, and the driver is asked once in an examination.
func TestGPUsAreAskedOnce(t *testing.T) {
	nothing := errors.New("there is no network here")
	var asked atomic.Int32
	r := Examine(t.Context(), Patient{Kind: Agent, Dir: t.TempDir(), Bad: nothing}, Probes{
		Now: time.Now, Temp: t.TempDir(),
		Lookup: func(context.Context, string) ([]string, error) { return nil, nothing },
		Dial:   func(context.Context, string, string) (net.Conn, error) { return nil, nothing },
		Proxy:  func(*url.URL) (*url.URL, error) { return nil, nil },
		Space:  func(string) (int64, error) { return 1 << 40, nil },
		Files:  func() (uint64, error) { return 1 << 20, nil },
		GPUs: func(context.Context) GPUs {
			asked.Add(1)
			return GPUs{Cards: 1, Names: []string{"RTX"}, Driver: "535", CUDA: "12.2", Loaded: true}
		},
		Python: func(context.Context, string) Python {
			return Python{Path: "python", Version: [2]int{3, 12}, Torch: "2.5", CUDA: "12.9"}
		},
		Sandbox: func(context.Context) (bool, string) { return true, "" },
	})
	if asked.Load() != 1 {
		t.Errorf("the driver was asked %d times", asked.Load())
	}
	for _, f := range r.Findings {
		if f.Check == "gpu" && f.State != Fine || f.Check == "python" && f.State != Problem { // torch is newer than the driver: python has heard of the GPU
			t.Errorf("%s: %+v", f.Check, f)
		}
	}
}
