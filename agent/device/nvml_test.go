//go:build cgo && linux

package device

import (
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	models "github.com/NVIDIA/go-nvml/pkg/nvml/mock/gpus"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"tensorturn/domain/machine"
)

// box is go-nvml's own mock of a server, with the readings that it leaves out.
func box(configs ...models.Config) *server.Server {
	s, _ := server.New(server.WithGPUs(configs...), server.WithDriverVersion("550.54.15"), server.WithCUDADriverVersion(12040))
	errors := make(chan nvml.EventData, 1)
	s.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{FreeFunc: func() nvml.Return { return nvml.SUCCESS }, WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
			select {
			case e := <-errors:
				return e, nvml.SUCCESS
			case <-time.After(10 * time.Millisecond):
				return nvml.EventData{}, nvml.ERROR_TIMEOUT
			}
		}}, nvml.SUCCESS
	}
	for i := range s.Devices {
		d := s.Devices[i].(*server.Device)
		d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 87, Memory: 12}, nvml.SUCCESS }
		d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 64, nvml.SUCCESS }
		d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 301500, nvml.SUCCESS }
		d.GetClockInfoFunc = func(c nvml.ClockType) (uint32, nvml.Return) {
			if c == nvml.CLOCK_MEM {
				return 0, nvml.ERROR_NOT_SUPPORTED
			}
			return 1695, nvml.SUCCESS
		}
		d.GetTotalEnergyConsumptionFunc = func() (uint64, nvml.Return) { return 5000, nvml.SUCCESS }
		d.GetFieldValuesFunc = func([]nvml.FieldValue) nvml.Return { return nvml.ERROR_NOT_SUPPORTED }
		d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS }
		d.GetProcessUtilizationFunc = func(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) { return nil, nvml.ERROR_NOT_FOUND }
		d.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
	}
	if len(s.Devices) > 2 {
		errors <- nvml.EventData{Device: s.Devices[2], EventType: nvml.EventTypeXidCriticalError, EventData: 79}
	}
	return s
}

func eight() *server.Server { return box(models.Multiple(8, models.A100_SXM4_40GB)...) }

// hardware are the machines of must-show 1.
func hardware(name string) source {
	s := eight()
	switch name {
	case "eight":
	case "unlike":
		s = box(models.A100_SXM4_40GB, models.A30_PCIE_24GB)
	case "one hangs":
		s.Devices[3].(*server.Device).GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { hang(); return nvml.Utilization{}, nvml.SUCCESS }
	case "all hang":
		s.DeviceGetCountFunc = func() (int, nvml.Return) { hang(); return 0, nvml.SUCCESS }
	case "init hangs":
		s.InitFunc = func() nvml.Return { hang(); return nvml.SUCCESS }
	case "one falls off":
		var asked atomic.Int32
		s.Devices[5].(*server.Device).GetUUIDFunc = func() (string, nvml.Return) {
			if asked.Add(1) > 3 {
				return "", nvml.ERROR_GPU_IS_LOST
			}
			return "GPU-five", nvml.SUCCESS
		}
	case "none":
		s = box()
	case "no driver":
		s.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
		s.DeviceGetCountFunc = func() (int, nvml.Return) { panic("a call before Init") }
	case "driver unloaded":
		s.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED }
		s.DeviceGetCountFunc = func() (int, nvml.Return) { panic("a call before Init") }
	case "busy with a game":
		s.Devices[0].(*server.Device).GetProcessUtilizationFunc = func(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
			return nil, nvml.ERROR_NOT_SUPPORTED
		}
		s.Devices[4].(*server.Device).GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { // a notebook that waits
			return []nvml.ProcessInfo{{Pid: 1}}, nvml.SUCCESS
		}
		s.Devices[0].(*server.Device).GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
			return []nvml.ProcessInfo{{Pid: 1}}, nvml.SUCCESS
		}
		s.Devices[1].(*server.Device).GetProcessUtilizationFunc = func(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
			return []nvml.ProcessUtilizationSample{{Pid: uint32(os.Getpid()), TimeStamp: 9, SmUtil: 99}}, nvml.SUCCESS // our own
		}
		s.Devices[2].(*server.Device).GetProcessUtilizationFunc = func(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
			return []nvml.ProcessUtilizationSample{{Pid: 1, TimeStamp: 9, SmUtil: 60}}, nvml.SUCCESS
		}
		s.Devices[3].(*server.Device).GetProcessUtilizationFunc = func(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
			return []nvml.ProcessUtilizationSample{{Pid: 1, TimeStamp: 9, SmUtil: 3}}, nvml.SUCCESS // a desktop
		}
	default:
		return plain(name)
	}
	return newLibrary(s, os.Getppid(), 50*time.Millisecond)
}

func goneOnes(v *machine.Vitals) (gone []int) {
	for i, g := range v.GPUs {
		if g.Gone != "" {
			gone = append(gone, i)
		}
	}
	return gone
}

func onlyGone(which int) func(*machine.Vitals) bool {
	return func(v *machine.Vitals) bool {
		gone := goneOnes(v)
		return len(v.GPUs) == 8 && len(gone) == 1 && v.GPUs[gone[0]].Index == which && v.GPUs[(gone[0]+1)%8].Busy != nil
	}
}

// TestLibraryOnTheMock is must-show 1: whatever the driver does, asking never waits (see eventually), and the answer says what is.
func TestLibraryOnTheMock(t *testing.T) {
	for _, c := range []struct {
		tell, what string
		ok         func(*machine.Vitals) bool
	}{
		{"eight", "eight, and an error of one", func(v *machine.Vitals) bool { return len(v.GPUs) == 8 && len(goneOnes(v)) == 0 && v.GPUs[2].XID == 79 }},
		{"unlike", "two models", func(v *machine.Vitals) bool { return len(v.GPUs) == 2 && v.GPUs[0].Name != v.GPUs[1].Name }},
		{"one hangs", "one that does not answer, with its name", func(v *machine.Vitals) bool {
			return onlyGone(3)(v) && v.GPUs[3].Name != "" && strings.Contains(v.GPUs[3].Gone, "does not answer")
		}},
		{"one falls off", "short of one", func(v *machine.Vitals) bool { return onlyGone(5)(v) && len(v.GPUs) == 8 }},
		{"all hang", "said to hang", func(v *machine.Vitals) bool { return strings.Contains(v.Trouble, "does not answer") }},
		{"init hangs", "said to hang", func(v *machine.Vitals) bool { return strings.Contains(v.Trouble, "does not answer") }},
		{"none", "said to be none", func(v *machine.Vitals) bool { return strings.Contains(v.Trouble, "knows no GPU") && len(v.GPUs) == 0 }},
		{"no driver", "said to be absent", func(v *machine.Vitals) bool { return strings.Contains(v.Trouble, "no NVIDIA driver") }},
		{"driver unloaded", "said to be unloaded", func(v *machine.Vitals) bool { return strings.Contains(v.Trouble, "not loaded") }},
		{"busy with a game", "busy", func(v *machine.Vitals) bool {
			return len(v.GPUs) == 8 && v.GPUs[0].Others && !v.GPUs[1].Others && v.GPUs[2].Others && !v.GPUs[3].Others && !v.GPUs[4].Others
		}},
	} {
		t.Run(c.tell, func(t *testing.T) {
			m := watching(t, c.tell)
			v := eventually(t, m, c.what, c.ok)
			if c.tell == "eight" && (v.Driver != "550.54.15" || v.CUDA != "12.4" || *v.GPUs[0].Busy != 0.87 || *v.GPUs[0].Watts != 301.5 || *v.GPUs[0].Joules != 5 || v.GPUs[0].MemClockMHz != nil || v.GPUs[0].Memory.Total == 0) {
				t.Errorf("%+v", v.GPUs[0])
			}
		})
	}
}

// TestOneThatHangsComesBack: a GPU that hangs keeps what is known of it, the others answer, and it is there again when its call returns.
func TestOneThatHangsComesBack(t *testing.T) {
	l := hardware("eight").(*library)
	l.nvml.(*server.Server).ShutdownFunc = func() nvml.Return { return nvml.SUCCESS }
	defer l.close()
	if r := l.read(); len(r.GPUs) != 8 {
		t.Fatalf("%d", len(r.GPUs))
	}
	release := make(chan struct{})
	l.nvml.(*server.Server).Devices[3].(*server.Device).GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
		<-release
		return nvml.Utilization{}, nvml.SUCCESS
	}
	r := l.read()
	if len(r.GPUs) != 8 || !strings.Contains(r.GPUs[3].Gone, "does not answer") || r.GPUs[3].Name == "" || r.GPUs[4].Busy == nil {
		t.Errorf("%+v", r.GPUs[3])
	}
	close(release)
	r = l.read()
	for range 10 {
		if r.GPUs[3].Gone == "" {
			return
		}
		r = l.read()
	}
	t.Errorf("it answers and is still gone: %+v", r.GPUs[3])
}
