package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"tensorturn/agent/trainer/process/sandbox"
)

// isolated gives the words that start the program within what it may do: in a container if the run asks for one, else under
// the machine's sandbox and limits.
func (t *Trainer) isolated(ctx context.Context, words []string, p place) ([]string, *Failure) {
	o := &t.opener.opts
	if image := t.job.Spec.Container; image != "" {
		return t.contained(image, words, p)
	}
	if o.Sandbox == nil {
		return words, nil
	}
	if o.RequireSandbox && !o.Sandbox.Holds() {
		return nil, fail(KindSandbox, "this machine runs programs in a sandbox only, and has none: "+o.Sandbox.Report().String(),
			"install bubblewrap there, or start the agent without --require-sandbox")
	}
	return o.Sandbox.Wrap(t.policy(ctx, words, p), words), nil
}

// policy is what the program of this attempt may do.
func (t *Trainer) policy(ctx context.Context, words []string, p place) sandbox.Policy {
	o := &t.opener.opts
	policy := sandbox.System()
	policy.Data, policy.File, policy.Network, policy.Dir = o.Limits.Memory, o.Limits.Disk, t.job.Spec.Network, p.input
	policy.Write = []string{p.work, p.output, p.ckpt, p.tmp, p.socket}
	if t.alone() {
		policy.Write = append(policy.Write, p.input) // it may write its weights where it was started
	}
	policy.Hide = append(slices.Clone(o.Hide), o.Root)
	policy.Read = append(append(policy.Read, p.input, p.lib), o.Read...)
	if filepath.IsAbs(words[0]) {
		policy.Read = append(policy.Read, t.opener.livesIn(ctx, words[0])...)
	}
	return policy
}

// livesIn remembers where the modules of an interpreter lie: asking starts it once.
func (o *Opener) livesIn(ctx context.Context, program string) []string {
	o.mu.Lock()
	paths, ok := o.places[program]
	o.mu.Unlock()
	if ok {
		return paths
	}
	paths = sandbox.Interpreter(ctx, program)
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.places) >= maxRuns {
		clear(o.places)
	}
	o.places[program] = paths
	return paths
}

// engines run containers; the first that is installed does.
var engines = [...]string{"docker", "podman"}

// contained gives the words that run the program in a container: without network unless asked for, without privileges, with the
// run's folders at the places they have outside, and with the GPUs of the machine.
func (t *Trainer) contained(image string, words []string, p place) ([]string, *Failure) {
	o := &t.opener.opts
	for _, name := range engines {
		if path, err := o.LookPath(name); err == nil {
			t.container = &container{engine: path, name: "tensorturn-" + t.unit}
			if err := t.opener.noteContainer(t.container); err != nil {
				return nil, fail(KindSandbox, "no container can be noted: "+err.Error(), "check the disk of the agent's directory")
			}
			return containerLine(path, name, image, words, p, o.Limits, t.job.Spec.Network, hasNVIDIA()), nil
		}
	}
	return nil, fail(KindMissing, "the run wants a container of "+show(image)+", and neither docker nor podman is on this machine's PATH",
		"install one of them there, or remove container from the spec")
}

// containerLine is the command line of docker and podman, which agree in all of it but the GPUs. Variables are named and not
// written out: the engine takes their values from its own environment.
func containerLine(path, engine, image string, words []string, p place, l Limits, network, gpus bool) []string {
	w := []string{path, "run", "--rm", "--interactive", "--init", "--name", "tensorturn-" + p.unit, "--label", "tensorturn=" + p.unit,
		"--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only", "--user", fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())}
	if !network {
		w = append(w, "--network", "none")
	}
	if l.Memory > 0 {
		w = append(w, "--memory", fmt.Sprint(l.Memory))
	}
	if l.Processes > 0 {
		w = append(w, "--pids-limit", fmt.Sprint(l.Processes))
	}
	switch {
	case gpus && engine == "podman":
		w = append(w, "--device", "nvidia.com/gpu=all")
	case gpus:
		w = append(w, "--gpus", "all")
	}
	for _, ro := range []string{p.input, p.lib} {
		w = append(w, "--mount", "type=bind,readonly,source="+ro+",target="+ro)
	}
	for _, rw := range []string{p.work, p.output, p.ckpt, p.tmp, filepath.Dir(p.socket)} {
		w = append(w, "--mount", "type=bind,source="+rw+",target="+rw)
	}
	for _, name := range p.variables {
		w = append(w, "--env", name)
	}
	return append(append(w, "--workdir", p.input, image), words...)
}

// hasNVIDIA reports whether this machine has a device that an engine can give to a container.
func hasNVIDIA() bool {
	_, err := os.Stat("/dev/nvidiactl")
	return err == nil
}
