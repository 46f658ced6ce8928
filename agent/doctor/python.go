package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
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
		Available bool   `json:"available"`
		Kernel    string `json:"kernel"`
	}
	if jerr := json.Unmarshal([]byte(out.LastLine("")), &said); jerr != nil || len(said.Version) != 2 {
		p.Trouble = path + " does not answer as Python does"
		if err != nil {
			p.Trouble += ": " + err.Error()
		}
		return p
	}
	p.Version, p.Torch, p.Import = [2]int(said.Version), said.Torch, said.Import
	p.CUDA, p.Available, p.Kernel = said.CUDA, said.Available, said.Kernel
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

// runPython runs a script of ours and gives the end of its words; an error ends with the last of its complaint.
func runPython(ctx context.Context, path, script string, env []string) (*domain.Tail, error) {
	cmd := exec.CommandContext(ctx, path, "-c", script)
	cmd.Env = env
	cmd.WaitDelay = time.Second
	out, complaint := &domain.Tail{Most: maxPythonOut}, &domain.Tail{Most: maxPythonOut}
	cmd.Stdout, cmd.Stderr = out, complaint
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%w %s", err, domain.Clip(complaint.LastLine(""), 160))
	}
	return out, err
}
