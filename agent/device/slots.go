package device

import (
	"strconv"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/machine"
)

// Assign gives for each slot the UUID of its GPU, empty for the CPU. slots is how many the owner wants, 0 for one per GPU, or one of the
// CPU where there is none. More slots than GPUs share them in turn. GPUs that are gone count: they may come back, and indexes must stay.
func Assign(slots int, gpus []machine.GPU) []string {
	if slots <= 0 {
		slots = max(1, len(gpus))
	}
	out := make([]string, min(slots, domain.MaxSlotsPerMachine))
	for i := range out {
		if len(gpus) > 0 {
			out[i] = gpus[i%len(gpus)].UUID
		}
	}
	return out
}

// Visible keeps the GPUs that the owner lets programs see: CUDA_VISIBLE_DEVICES as CUDA reads it, indexes or beginnings of UUIDs up to
// the first that does not exist. An unset variable keeps all, an empty one none.
func Visible(gpus []machine.GPU, value string, set bool) []machine.GPU {
	if !set {
		return gpus
	}
	var out []machine.GPU
	for _, word := range strings.Split(value, ",") {
		g := find(gpus, strings.TrimSpace(word))
		if g == nil {
			break
		}
		out = append(out, *g)
	}
	return out
}

func find(gpus []machine.GPU, word string) *machine.GPU {
	n, err := strconv.Atoi(word)
	for i := range gpus {
		if err == nil && gpus[i].Index == n || err != nil && word != "" && strings.HasPrefix(gpus[i].UUID, word) {
			return &gpus[i]
		}
	}
	return nil
}
