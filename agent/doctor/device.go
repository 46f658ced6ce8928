package doctor

import (
	"context"
	"fmt"
	"strings"

	"tensorturn/domain"
)

func lookGPU(ctx context.Context, e *exam) Finding { return judgeGPUs(e.GPUs(ctx)) }

func judgeGPUs(g GPUs) Finding {
	said := domain.Clip(g.Trouble, 200)
	switch {
	case len(g.Names) > 0 && len(g.Names) < g.Cards:
		return problem(DriverMissing, fmt.Sprintf("the driver knows %d of the %d NVIDIA cards: %s", len(g.Names), g.Cards, strings.Join(g.Names, ", ")),
			"look for Xid in the kernel's log (dmesg), seat the card anew, restart the machine")
	case len(g.Names) > 0:
		return fine(fmt.Sprintf("driver %s knows %s", g.Driver, domain.Clip(strings.Join(g.Names, ", "), 200)))
	case strings.Contains(strings.ToLower(g.Trouble), "mismatch"):
		return problem(CUDAMismatch, "the driver's module and its library are of two versions: "+said, "restart the machine: the driver was updated while its module ran")
	case g.Silent:
		return problem(DriverSilent, "the NVIDIA driver does not answer", "restart the machine; before, look for Xid in the kernel's log (dmesg)")
	case g.Cards > 0 && !g.Loaded:
		return problem(DriverMissing, fmt.Sprintf("there is an NVIDIA card (%d) and no driver", g.Cards),
			"install NVIDIA's driver (Debian: nvidia-driver, Ubuntu: ubuntu-drivers install) and restart; in a container start it with --gpus all")
	case g.Loaded:
		return problem(DriverMissing, "the NVIDIA driver does not work: "+said, "run nvidia-smi and mend what it says; mostly: install the driver anew and restart; in a container start it with --gpus all")
	}
	return fine("no NVIDIA card: this machine trains on its CPU")
}

func lookPython(ctx context.Context, e *exam) Finding {
	gpus := make(chan GPUs, 1)
	go func() { gpus <- e.GPUs(ctx) }() // side by side; it ends with ctx or is left behind, as its own check may be
	py := e.Python(ctx, e.Interpreter)
	select {
	case g := <-gpus:
		return judgePython(py, g, e.Interpreter != "")
	case <-ctx.Done():
		return judgePython(py, GPUs{}, e.Interpreter != "")
	}
}

// judgePython is about owners' scripts: they are asked for where the owner names an interpreter, or where there is a GPU, which nothing
// else can use.
func judgePython(p Python, g GPUs, named bool) Finding {
	const start = "tensorturn agent start --python PATH"
	wish := named || g.Cards > 0 || len(g.Names) > 0
	switch {
	case p.Trouble != "":
		return asked(wish, PythonWrong, "PyTorch scripts do not run here: "+domain.Clip(p.Trouble, 200), "install Python with torch, and name it: "+start)
	case p.Version[0] != 3 || p.Version[1] < minPython:
		return asked(wish, PythonWrong, fmt.Sprintf("%s is Python %d.%d; scripts need 3.%d or newer", p.Path, p.Version[0], p.Version[1], minPython), "name a newer one: "+start)
	case p.Torch == "" && p.Elsewhere != "":
		return asked(wish, PythonWrong, fmt.Sprintf("%s has no torch, and %s has", p.Path, p.Elsewhere), "tensorturn agent start --python "+p.Elsewhere)
	case p.Torch == "":
		return asked(wish, TorchMissing, fmt.Sprintf("%s cannot import torch: %s", p.Path, domain.Clip(p.Import, 200)),
			p.Path+" -m pip install torch; or name an interpreter that has it: "+start)
	}
	if len(g.Names) == 0 {
		return fine(fmt.Sprintf("%s has torch %s", p.Path, p.Torch))
	}
	return judgeTorch(p, g)
}

// judgeTorch is about a torch that shall use a GPU whose driver works.
func judgeTorch(p Python, g GPUs) Finding {
	driver := "driver " + g.Driver
	if g.CUDA != "" {
		driver += ", for CUDA up to " + g.CUDA
	}
	const fix = "install the build of torch for a CUDA that the driver supports, or a newer driver; nvidia-smi tells the newest CUDA of the driver"
	switch {
	case p.CUDA == "":
		return problem(CUDAMismatch, fmt.Sprintf("%s has torch %s, which was built without CUDA: the GPU stays idle (%s)", p.Path, p.Torch, driver), "install the build of torch for CUDA: "+p.Path+" -m pip install --force-reinstall torch")
	case !p.Available:
		return problem(CUDAMismatch, fmt.Sprintf("torch %s for CUDA %s sees no GPU (%s)%s", p.Torch, p.CUDA, driver, said(p.Kernel)), fix)
	case p.Kernel != "":
		return problem(CUDAMismatch, fmt.Sprintf("torch %s for CUDA %s sees the GPU and cannot use it (%s)%s", p.Torch, p.CUDA, driver, said(p.Kernel)), fix)
	}
	return fine(fmt.Sprintf("%s has torch %s for CUDA %s and has used the GPU", p.Path, p.Torch, p.CUDA))
}

func said(why string) string {
	if why == "" {
		return ""
	}
	return ": " + domain.Clip(why, 200)
}

func lookSandbox(ctx context.Context, e *exam) Finding {
	holds, says := e.Sandbox(ctx)
	if !holds {
		return asked(e.WantSandbox, SandboxUnusable, "no sandbox proves itself: "+domain.Clip(says, 300),
			"install bubblewrap, or run a kernel with Landlock (5.13 or newer); in a container allow user namespaces; scripts run without one unless --require-sandbox is given")
	}
	return fine("scripts can be kept in a sandbox: " + says)
}
