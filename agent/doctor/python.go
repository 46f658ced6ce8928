package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"tensorturn/domain"
)

// script tells what an interpreter has. It imports torch and computes on each device, because a torch that sees a GPU may still be
// built without kernels for it.
const script = `
import json, sys
out = {"version": list(sys.version_info[:2]), "path": sys.executable}
try:
    import torch
    out["torch"] = str(torch.__version__)
    out["cuda"] = str(torch.version.cuda or "")
    out["hip"] = str(getattr(torch.version, "hip", None) or "")
    try:
        out["available"] = bool(torch.cuda.is_available())
        for i in range(torch.cuda.device_count() if out["available"] else 0):
            torch.ones(8, device="cuda:%d" % i).sum().item()
        if not out["available"] and out["cuda"]:
            torch.cuda.init()
    except Exception as e:
        out["kernel"] = "%s: %s" % (type(e).__name__, e)
except Exception as e:
    out["import"] = "%s: %s" % (type(e).__name__, e)
sys.stdout.write("\n" + json.dumps(out) + "\n")
`

// quick tells only whether torch is there.
const quick = `import importlib.util, sys; sys.exit(0 if importlib.util.find_spec("torch") else 3)`

const (
	quickLimit   = 5 * time.Second
	maxPythonOut = 64 << 10
	maxElsewhere = 8 // interpreters that are asked
)

// AskPython runs an interpreter and asks what it has; env is its whole environment. Others are those that may have the torch that it
// lacks.
func AskPython(ctx context.Context, path string, env, others []string) Python {
	p := Python{Path: path}
	out, err := runPython(ctx, path, script, env)
	var said struct {
		Path      string `json:"path"`
		Version   []int  `json:"version"`
		Torch     string `json:"torch"`
		Import    string `json:"import"`
		CUDA      string `json:"cuda"`
		HIP       string `json:"hip"`
		Available bool   `json:"available"`
		Kernel    string `json:"kernel"`
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if jerr := json.Unmarshal([]byte(lines[len(lines)-1]), &said); jerr != nil || len(said.Version) != 2 {
		p.Trouble = path + " does not answer as Python does"
		if err != nil {
			p.Trouble += ": " + err.Error()
		}
		return p
	}
	p.Version, p.Torch, p.Import = [2]int(said.Version), said.Torch, said.Import
	p.CUDA, p.HIP, p.Available, p.Kernel = said.CUDA, said.HIP, said.Available, said.Kernel
	if p.Torch != "" {
		return p
	}
	for _, other := range others[:min(len(others), maxElsewhere)] {
		if other == path {
			continue
		}
		asked, cancel := context.WithTimeout(ctx, quickLimit)
		_, err := runPython(asked, other, quick, env)
		cancel()
		if err == nil {
			p.Elsewhere = other
			return p
		}
	}
	return p
}

// runPython runs a script of ours; its words are kept to a limit.
func runPython(ctx context.Context, path, script string, env []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, "-c", script)
	cmd.Env = env
	cmd.WaitDelay = time.Second
	var out, errs short
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		last := strings.TrimSpace(errs.String())
		if i := strings.LastIndexByte(last, '\n'); i >= 0 {
			last = last[i+1:]
		}
		err = fmt.Errorf("%w %s", err, domain.Clip(last, 160))
	}
	return out.Bytes(), err
}

// short keeps the first bytes of what is written to it, and takes the rest.
type short struct{ bytes.Buffer }

// Write implements io.Writer.
func (s *short) Write(b []byte) (int, error) {
	if room := maxPythonOut - s.Len(); room > 0 {
		_, _ = s.Buffer.Write(b[:min(len(b), room)])
	}
	return len(b), nil
}
