package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"tensorturn/agent/device"
	"tensorturn/agent/doctor"
	processtrainer "tensorturn/agent/trainer/process"
	"tensorturn/agent/trainer/process/sandbox"
	"tensorturn/broker/health"
	"tensorturn/broker/identity"
)

// probes is what the doctor looks with on a real machine.
func (a *app) probes(p doctor.Patient) doctor.Probes {
	probes := doctor.Probes{
		Now: wallClock, Lookup: net.DefaultResolver.LookupHost, Dial: (&net.Dialer{}).DialContext,
		Proxy: func(u *url.URL) (*url.URL, error) { return http.ProxyFromEnvironment(&http.Request{URL: u}) },
		Space: freeSpace, Files: doctor.OpenFiles, Temp: os.TempDir(), GPUs: findGPUs, Python: findPython, Sandbox: tryoutSandbox(p.Dir),
	}
	if a.examine != nil {
		a.examine(&probes)
	}
	return probes
}

// freeSpace asks the disk of a folder that may not be there yet.
func freeSpace(dir string) (int64, error) {
	for {
		free, _, err := health.DiskSpace(dir)
		if up := filepath.Dir(dir); err != nil && os.IsNotExist(err) && up != dir {
			dir = up
			continue
		}
		return free, err
	}
}

func proofOfSelf(keys *identity.AgentKeys) func(time.Time) (string, error) {
	return func(now time.Time) (string, error) {
		return identity.SignProof(keys.Key(), identity.AudienceSelf, keys.Machine, now)
	}
}

// findGPUs starts the prober, takes its first words, and ends it.
func findGPUs(ctx context.Context) doctor.GPUs {
	g := doctor.GPUs{Cards: cardsOnBus("/sys/bus/pci/devices"), Loaded: device.DriverHint()}
	exe, err := os.Executable()
	if !g.Loaded || err != nil {
		return g
	}
	asked, cancel := context.WithTimeout(ctx, device.ProbeLimit)
	defer cancel()
	cmd := exec.CommandContext(asked, exe, device.HelperWord)
	cmd.WaitDelay = time.Second
	in, ierr := cmd.StdinPipe()
	out, oerr := cmd.StdoutPipe()
	if ierr != nil || oerr != nil || cmd.Start() != nil {
		g.Trouble = "the prober does not start"
		return g
	}
	line, rerr := bufio.NewReader(io.LimitReader(out, 256<<10)).ReadBytes('\n')
	_ = in.Close() // it ends with its input
	var r device.Reading
	if rerr != nil || json.Unmarshal(line, &r) != nil {
		g.Silent = asked.Err() != nil
		g.Trouble = "the prober says nothing"
	}
	cancel()
	_ = cmd.Wait()
	g.Driver, g.CUDA = r.Driver, r.CUDA
	if r.Trouble != "" {
		g.Trouble = r.Trouble
	}
	for _, card := range r.GPUs {
		g.Names = append(g.Names, card.Name)
	}
	if g.CUDA == "" && len(g.Names) > 0 {
		g.CUDA = newestCUDA(ctx)
	}
	return g
}

// cardsOnBus counts the NVIDIA display devices of a Linux machine, whether or not they have a driver.
func cardsOnBus(root string) (n int) {
	devices, err := os.ReadDir(root)
	if err != nil {
		return 0
	}
	word := func(device, name string) string {
		b, err := os.ReadFile(filepath.Join(root, device, name))
		if err != nil || len(b) > 64 {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	for _, d := range devices {
		if word(d.Name(), "vendor") == "0x10de" && strings.HasPrefix(word(d.Name(), "class"), "0x03") {
			n++
		}
	}
	return n
}

// newestCUDA reads the newest CUDA that the driver supports from the head of nvidia-smi's table, which no query tells.
func newestCUDA(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, device.ProbeLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nvidia-smi")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	found := regexp.MustCompile(`CUDA Version: *([0-9]+\.[0-9]+)`).FindSubmatch(out)
	if err != nil || found == nil {
		return ""
	}
	return string(found[1])
}

// findPython asks the interpreter that an agent would take, in the environment that it gives its scripts.
func findPython(ctx context.Context, wish string) doctor.Python {
	path, err := processtrainer.FindPython(wish)
	if err != nil {
		return doctor.Python{Trouble: err.Error()}
	}
	var others []string
	for _, dir := range []string{os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")} {
		if dir != "" {
			others = append(others, filepath.Join(dir, "bin", "python"))
		}
	}
	for _, name := range []string{"python3", "python", "/usr/bin/python3", "/opt/conda/bin/python"} {
		if other, err := exec.LookPath(name); err == nil {
			others = append(others, other)
		}
	}
	return doctor.AskPython(ctx, path, processtrainer.PassedOn(os.Environ()), others)
}

// tryoutSandbox lets the machine's sandbox prove itself, in a folder that is taken away again.
func tryoutSandbox(near string) func(context.Context) (bool, string) {
	return func(ctx context.Context) (bool, string) {
		dir, err := os.MkdirTemp(near, "doctor-")
		if err != nil { // no folder yet
			dir, err = os.MkdirTemp("", "doctor-")
		}
		if err != nil {
			return false, "no folder for the proof can be made: " + plainPathError(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		s := sandbox.Choose(ctx, dir)
		return s.Holds(), s.Report().String()
	}
}
