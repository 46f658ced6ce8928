package process

import (
	"fmt"
	"hash/fnv"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tensorturn/agent/trainer"
	"tensorturn/domain/run"
)

// stayOutside are variables about the machine's own file system: they say nothing within a container.
var stayOutside = [...]string{"PATH", "HOME", "USER", "LOGNAME", "LD_LIBRARY_PATH", "XDG_CACHE_HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "HF_HOME", "TORCH_HOME"}

// passedIn names the variables of an environment that a container is given.
func passedIn(env []string) (names []string) {
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); !slices.Contains(stayOutside[:], name) {
			names = append(names, name)
		}
	}
	return names
}

// passedOn are the variables of the agent that a program needs to run. Everything else stays behind: tokens and
// passwords live in environments.
var passedOn = [...]string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "LD_LIBRARY_PATH", "XDG_CACHE_HOME", "VIRTUAL_ENV", "CONDA_PREFIX",
	"HF_HOME", "TORCH_HOME", "SYSTEMROOT"}

// passedPrefixes are families of such variables: locale, devices, threads of the numeric libraries.
var passedPrefixes = [...]string{"LC_", "CUDA_", "NVIDIA_", "HIP_", "ROCR_", "HSA_", "OMP_", "MKL_", "OPENBLAS_"}

// place is where a child lives.
type place struct {
	work, input, output, ckpt, tmp, socket, lib string // paths
	unit                                        string
	attempt, batch                              int
	variables                                   []string // names that a container is given
	command                                     []string // what is started
	rows                                        string   // file of the rows that a member trains, "" for all as they are
	model, ask, answer                          string   // files of a predict command, "" for other programs
}

// environment is the child's whole environment, in order.
func environment(agent []string, threads int, job trainer.Job, p place, held bool) []string {
	set := map[string]string{}
	for _, kv := range agent {
		name, value, ok := strings.Cut(kv, "=")
		if ok && passes(name) {
			set[name] = value
		}
	}
	if job.Device != "" { // by UUID: indexes change when a GPU is lost
		set["CUDA_VISIBLE_DEVICES"], set["CUDA_DEVICE_ORDER"] = job.Device, "PCI_BUS_ID"
	}
	if threads > 0 && set["OMP_NUM_THREADS"] == "" {
		set["OMP_NUM_THREADS"] = strconv.Itoa(threads) // slots share the cores
	}
	set["PYTHONPATH"], set["PYTHONUNBUFFERED"], set["TMPDIR"] = p.lib, "1", p.tmp
	if held { // its own home is out of reach
		set["HOME"], set["XDG_CACHE_HOME"] = p.tmp, filepath.Join(p.tmp, "cache")
	}
	s, d := job.Spec, job.Dataset
	for name, v := range map[string]any{
		"PROTOCOL": Version, "SOCKET": p.socket, "WORK_DIR": p.work, "INPUT_DIR": p.input, "OUTPUT_DIR": p.output, "CKPT_DIR": p.ckpt,
		"RUN_ID": job.Run, "UNIT_ID": p.unit, "ATTEMPT": p.attempt, "MODE": mode(job, p), "SEED": s.Seed, "SAMPLES": d.Samples, "HELDOUT": d.Heldout,
		"EPOCHS": s.Epochs, "BLOCK": d.Block, "BATCH": p.batch, "INNER_STEPS": (min(s.Chunk, d.Samples) + p.batch - 1) / p.batch,
		"SHARD_INDEX": 0, "SHARD_COUNT": 1, "MEMBER": job.Member, "ROWS": p.rows, "MODEL": p.model, "PREDICT_INPUT": p.ask, "PREDICT_OUTPUT": p.answer,
	} {
		if v == "" {
			continue
		}
		set["TENSORTURN_"+name] = fmt.Sprint(v)
	}
	for name, v := range map[string]any{
		"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "GROUP_RANK": 0, "ROLE_RANK": 0, "ROLE_WORLD_SIZE": 1,
		"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port(p.unit),
		"TORCHELASTIC_RUN_ID": job.Run, "TORCHELASTIC_RESTART_COUNT": p.attempt, "TORCHELASTIC_MAX_RESTARTS": run.MaxTaskFailures,
	} {
		set[name] = fmt.Sprint(v)
	}
	env := make([]string, 0, len(set))
	for name, value := range set {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

// mode says what the program is started for.
func mode(job trainer.Job, p place) string {
	switch {
	case p.model != "":
		return "predict"
	case job.Serve:
		return "serve"
	}
	return string(job.Spec.Mode)
}

// PassedOn gives the variables of an agent's environment that its programs are given, for tools that start the same interpreter.
func PassedOn(agent []string) (env []string) {
	for _, kv := range agent {
		if name, _, ok := strings.Cut(kv, "="); ok && passes(name) {
			env = append(env, kv)
		}
	}
	return env
}

// FindPython gives the interpreter that an agent started with --python wish takes for scripts that name none.
func FindPython(wish string) (string, error) {
	path, err := findPython(wish, "", exec.LookPath)
	if err != nil {
		return "", err
	}
	return path, nil
}

func passes(name string) bool {
	return slices.Contains(passedOn[:], name) || slices.ContainsFunc(passedPrefixes[:], func(p string) bool { return strings.HasPrefix(name, p) })
}

// port spreads the rendezvous ports of the slots of a machine; each group is this child alone.
func port(unit string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(unit))
	return 20000 + int(h.Sum32()%20000)
}

// interpreter is the word that stands for the machine's own Python.
const interpreter = "python"

// commandOf resolves the words of a command: the interpreter's place, and a program that is looked up. lookup is
// exec.LookPath, or a test's.
func commandOf(command []string, s run.Spec, python string, lookup func(string) (string, error)) ([]string, *Failure) {
	words := slices.Clone(command)
	if len(words) == 0 {
		return nil, fail(KindScript, "the run has no command", "set command in the spec")
	}
	if s.Container != "" {
		return words, nil // of the image
	}
	if words[0] == interpreter {
		path, err := findPython(python, s.Python, lookup)
		words[0] = path
		return words, err
	}
	if strings.ContainsAny(words[0], `/\`) {
		return words, nil // of the code's folder, or absolute
	}
	path, err := lookup(words[0])
	if err != nil {
		return nil, fail(KindMissing, fmt.Sprintf("the program %s is not on this machine's PATH", show(words[0])), "install it there, or name another in the spec's command")
	}
	words[0] = path
	return words, nil
}

// findPython takes the machine's interpreter, else the spec's, else what PATH has.
func findPython(machine, spec string, lookup func(string) (string, error)) (string, *Failure) {
	tried := []string{}
	for _, c := range []struct{ from, name string }{{"--python", machine}, {"the spec's python", spec}, {"PATH", "python3"}, {"PATH", "python"}} {
		if c.name == "" {
			continue
		}
		if path, err := lookup(c.name); err == nil {
			return path, nil
		}
		tried = append(tried, fmt.Sprintf("%s (%s)", clean(c.name, 120), c.from))
		if c.from != "PATH" {
			break // a wish that cannot be met is said, not replaced
		}
	}
	return "", fail(KindMissing, "no Python interpreter was found; tried "+strings.Join(tried, ", "), "install one with torch, and start the agent with --python PATH")
}
