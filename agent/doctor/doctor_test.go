package doctor

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var update = flag.Bool("update", false, "write the table of codes into DESIGN.md")

// The page holds every code with its meaning and its fix, and no other.
func TestCodesAreDocumented(t *testing.T) {
	const begin, end = "<!-- codes -->\n", "<!-- /codes -->"
	b, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), begin)
	told, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("the marks of the table are gone")
	}
	table := "| code | means | fix |\n|---|---|---|\n"
	seen := map[Code]bool{}
	for _, m := range Codes() {
		if seen[m.Code] || m.Means == "" || m.Fix == "" {
			t.Errorf("%s: twice, or without meaning or fix", m.Code)
		}
		seen[m.Code] = true
		table += fmt.Sprintf("| `%s` | %s | %s |\n", m.Code, m.Means, m.Fix)
	}
	if *update {
		if err := os.WriteFile("DESIGN.md", []byte(head+begin+table+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if told != table {
		t.Error("DESIGN.md does not tell the codes as they are: go test ./agent/doctor -update")
	}
}

// Every code that the sources can find is in the table: constants without a row are noticed.
func TestEveryConstantIsInTheTable(t *testing.T) {
	b, err := os.ReadFile("code.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		if _, value, ok := strings.Cut(line, `Code = "`); ok {
			n++
			code, _, _ := strings.Cut(value, `"`)
			if !slices.ContainsFunc(Codes(), func(m Meaning) bool { return string(m.Code) == code }) {
				t.Errorf("%s has no row", code)
			}
		}
	}
	if n != len(Codes()) || n < 15 {
		t.Errorf("%d constants, %d rows", n, len(Codes()))
	}
}

// GPUs in every state that a machine can be in.
func TestJudgeGPUs(t *testing.T) {
	for name, c := range map[string]struct {
		g     GPUs
		state State
		code  Code
		says  string
	}{
		"none":                  {GPUs{}, Fine, "", "CPU"},
		"works":                 {GPUs{Cards: 1, Names: []string{"RTX"}, Driver: "535", Loaded: true}, Fine, "", "RTX"},
		"works, bus not known":  {GPUs{Names: []string{"RTX"}, Loaded: true}, Fine, "", "RTX"},
		"no driver":             {GPUs{Cards: 2}, Problem, DriverMissing, "(2)"},
		"one fell off the bus":  {GPUs{Cards: 2, Names: []string{"RTX"}, Loaded: true}, Problem, DriverMissing, "1 of the 2"},
		"driver fails":          {GPUs{Cards: 1, Loaded: true, Trouble: "nvidia-smi says: couldn't communicate"}, Problem, DriverMissing, "couldn't communicate"},
		"two versions":          {GPUs{Cards: 1, Loaded: true, Trouble: "Failed to initialize NVML: Driver/library version mismatch"}, Problem, CUDAMismatch, "two versions"},
		"hangs":                 {GPUs{Cards: 1, Loaded: true, Silent: true, Trouble: "the prober says nothing"}, Problem, DriverSilent, "does not answer"},
		"container without GPU": {GPUs{Loaded: true, Trouble: "no devices were found"}, Problem, DriverMissing, "no devices"},
	} {
		if f := judgeGPUs(c.g); f.State != c.state || f.Code != c.code || !strings.Contains(f.Says, c.says) || f.State == Problem && f.Fix == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// Interpreters, with and without somebody who asked for scripts.
func TestJudgePython(t *testing.T) {
	gpu := GPUs{Cards: 1, Names: []string{"RTX"}, Driver: "535", CUDA: "12.2", Loaded: true}
	torch := Python{Path: "py", Version: [2]int{3, 12}, Torch: "2.5", CUDA: "12.1", Available: true}
	with := func(change func(*Python)) Python {
		p := torch
		change(&p)
		return p
	}
	bare := with(func(p *Python) { p.Torch, p.CUDA, p.Import = "", "", "No module named 'torch'" })
	for name, c := range map[string]struct {
		p     Python
		g     GPUs
		named bool
		state State
		code  Code
		fix   string
	}{
		"works":                       {torch, gpu, false, Fine, "", ""},
		"works on the CPU":            {with(func(p *Python) { p.CUDA, p.Available = "", false }), GPUs{}, true, Fine, "", ""},
		"none, and nobody asks":       {Python{Trouble: "no Python"}, GPUs{}, false, Note, PythonWrong, "--python"},
		"none, with a GPU":            {Python{Trouble: "no Python"}, gpu, false, Problem, PythonWrong, "--python"},
		"named and not there":         {Python{Trouble: "no Python"}, GPUs{}, true, Problem, PythonWrong, "--python"},
		"Python 2":                    {with(func(p *Python) { p.Version = [2]int{2, 7} }), GPUs{}, true, Problem, PythonWrong, "newer"},
		"Python 3.7":                  {with(func(p *Python) { p.Version = [2]int{3, 7} }), GPUs{}, true, Problem, PythonWrong, "newer"},
		"Python 3.8":                  {with(func(p *Python) { p.Version = [2]int{3, 8} }), GPUs{}, true, Fine, "", ""},
		"no torch, nobody asks":       {bare, GPUs{}, false, Note, TorchMissing, "install torch"},
		"no torch, with a GPU":        {bare, gpu, false, Problem, TorchMissing, "install torch"},
		"torch is elsewhere":          {with(func(p *Python) { p.Torch, p.Elsewhere = "", "/venv/bin/python" }), gpu, false, Problem, PythonWrong, "--python /venv/bin/python"},
		"built without CUDA":          {with(func(p *Python) { p.CUDA, p.Available = "", false }), gpu, false, Problem, CUDAMismatch, "build of torch for CUDA"},
		"newer than the driver":       {with(func(p *Python) { p.CUDA, p.Available = "13.0", false }), gpu, false, Problem, CUDAMismatch, "newer driver"},
		"no kernels for this GPU":     {with(func(p *Python) { p.Kernel = "no kernel image is available" }), gpu, false, Problem, CUDAMismatch, "newer driver"},
		"a driver that fails is told": {with(func(p *Python) { p.Available = false }), GPUs{Cards: 1}, false, Fine, "", ""}, // by the gpu check
	} {
		if f := judgePython(c.p, c.g, c.named); f.State != c.state || f.Code != c.code || !strings.Contains(f.Fix, c.fix) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// A check that hangs in the kernel is told within its limit, beside the findings of the others; so is one that ends late and says
// that all is well.
func TestChecksEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forever := make(chan struct{})
		defer close(forever)
		all := []check{
			{"hangs", []Kind{Agent}, time.Second, func(context.Context, *exam) Finding { <-forever; return fine("never") }},
			{"slow", []Kind{Agent}, time.Second, func(ctx context.Context, _ *exam) Finding { <-ctx.Done(); return fine("well") }},
			{"fails late", []Kind{Agent}, time.Second, func(ctx context.Context, _ *exam) Finding {
				<-ctx.Done()
				return problem(PortBlocked, "nothing answers", "open it")
			}},
			{"quick", []Kind{Agent, Hub}, time.Second, func(context.Context, *exam) Finding { return fine("well") }},
			{"of hubs", []Kind{Hub}, time.Second, func(context.Context, *exam) Finding { return problem(KeysDamaged, "no", "x") }},
		}
		began := time.Now()
		r := examine(t.Context(), &exam{Patient: &Patient{Kind: Agent}}, all)
		if took := time.Since(began); took > 2*time.Second || r.Healthy || len(r.Findings) != 4 {
			t.Fatalf("after %s: %+v", took, r)
		}
		for i, want := range []State{Unknown, Unknown, Problem, Fine} {
			if f := r.Findings[i]; f.State != want || f.Check != all[i].name {
				t.Errorf("%s: %+v, want %s", all[i].name, f, want)
			}
		}
		if r.Findings[0].Took != 2000 || r.Findings[3].Took != 0 {
			t.Errorf("took %d and %d ms", r.Findings[0].Took, r.Findings[3].Took)
		}
	})
}

// What waits for a finding that nobody made is not known, and makes nobody healthy.
func TestSettle(t *testing.T) {
	waits := Finding{State: Skipped, Code: PortBlocked, Says: "not reached"}
	for name, c := range map[string]struct {
		in      []Finding
		healthy bool
		last    State
	}{
		"explained":     {[]Finding{problem(PortBlocked, "no", "x"), waits}, false, Skipped},
		"not explained": {[]Finding{fine("it answers"), waits}, false, Unknown},
		"a note only":   {[]Finding{asked(false, TorchMissing, "no", "x"), fine("well")}, true, Fine},
		"none":          {[]Finding{skipped("not joined")}, true, Skipped},
	} {
		r := Report{Findings: c.in}
		r.settle()
		if r.Healthy != c.healthy || r.Findings[len(c.in)-1].State != c.last {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
