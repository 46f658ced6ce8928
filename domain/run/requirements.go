package run

import (
	"fmt"
	"path"
	"slices"

	"tensorturn/domain"
)

// Limits of requirements.
const (
	MaxPriority    = 1000 // either way; beyond it is a typing error
	MaxNamed       = domain.MaxMachines
	MaxPattern     = 128     // bytes of a pattern of GPU names: as long as such a name may be
	MaxCores       = 1 << 16 // of one machine
	MaxGPUsPerUnit = domain.MaxSlotsPerMachine
)

// Size is a number of bytes as its owner wrote it: 8GiB, 8GB, a plain number; empty for none.
type Size string

// Bytes is the number, 0 for none. A checked spec has no other sizes than readable ones.
func (s Size) Bytes() uint64 {
	if s == "" {
		return 0
	}
	n, _ := domain.ParseSize(string(s)) // a size that cannot be read asks for nothing: checkSpec has refused it
	return n
}

// Requirements is what a machine must have to take part in a run. A zero field asks for nothing.
type Requirements struct {
	GPU    *GPUNeed          `yaml:"gpu" json:"gpu,omitempty" msgpack:"gpu,omitempty"`          // nil: a CPU will do
	CPU    int               `yaml:"cpu" json:"cpu,omitempty" msgpack:"cpu,omitempty"`          // cores of the machine
	Memory Size              `yaml:"memory" json:"memory,omitempty" msgpack:"memory,omitempty"` // of the machine
	Disk   Size              `yaml:"disk" json:"disk,omitempty" msgpack:"disk,omitempty"`       // free, where the agent keeps its folder
	Labels map[string]string `yaml:"labels" json:"labels,omitempty" msgpack:"labels,omitempty"` // all of them, each with this value
}

// GPUNeed is what the GPU of a slot must be. Its zero value asks for any GPU.
type GPUNeed struct {
	Memory Size   `yaml:"memory" json:"memory,omitempty" msgpack:"memory,omitempty"` // that one slot has to itself
	Model  string `yaml:"model" json:"model,omitempty" msgpack:"model,omitempty"`    // a pattern for its name from a word on, "RTX*"; letter case does not count
	Count  int    `yaml:"count" json:"count,omitempty" msgpack:"count,omitempty"`    // such GPUs that the machine must have; each still is a slot
}

// fillRequirements gives equal wishes one form, so that a repeated submission is known for one. What the caller's pointers show stays.
func fillRequirements(s *Spec) {
	if len(s.Machines) == 0 {
		s.Machines = nil
	}
	if s.Requirements == nil {
		return
	}
	r := *s.Requirements
	if len(r.Labels) == 0 {
		r.Labels = nil
	}
	if r.GPU != nil {
		g := *r.GPU
		or(&g.Count, 1)
		r.GPU = &g
	}
	s.Requirements = &r
	if r.GPU == nil && r.CPU == 0 && r.Memory == "" && r.Disk == "" && r.Labels == nil {
		s.Requirements = nil
	}
}

func checkRequirements(s *Spec) error {
	err := first(within("priority", s.Priority, -MaxPriority, MaxPriority), checkNamed(s.Machines))
	r := s.Requirements
	if err != nil || r == nil {
		return err
	}
	err = first(within("requirements.cpu", r.CPU, 0, MaxCores), checkBytes("requirements.memory", r.Memory), checkBytes("requirements.disk", r.Disk))
	if g := r.GPU; err == nil && g != nil {
		err = first(checkBytes("requirements.gpu.memory", g.Memory), within("requirements.gpu.count", g.Count, 0, MaxGPUsPerUnit),
			checkText("requirements.gpu.model", g.Model, MaxPattern))
		if _, bad := path.Match(g.Model, ""); err == nil && bad != nil {
			err = domain.Invalid(opSpec, fmt.Sprintf("requirements.gpu.model is %q, which is no pattern", g.Model), `write a name with * and ?, for example "RTX*"`)
		}
	}
	if err != nil {
		return err
	}
	return domain.CheckLabels(opSpec, "requirements.labels", r.Labels)
}

// checkNamed checks the list of machines that alone may take part.
func checkNamed(names []string) error {
	if len(names) > MaxNamed {
		return bad("machines", fmt.Sprintf("%d names long", len(names)), fmt.Sprintf("at most %d names", MaxNamed))
	}
	for i, name := range names {
		field := fmt.Sprintf("machines[%d]", i)
		if err := checkText(field, name, domain.MaxNameLength); err != nil {
			return err
		}
		if name == "" || slices.Contains(names[:i], name) {
			return bad(field, fmt.Sprintf("%q", name), "the name or id of a machine, each once")
		}
	}
	return nil
}

func checkBytes(field string, s Size) error {
	if s == "" {
		return nil
	}
	if n, err := domain.ParseSize(string(s)); err != nil || n == 0 {
		return bad(field, fmt.Sprintf("%q", string(s)), "a size, for example 8GiB")
	}
	return nil
}
