package process

import (
	"slices"
	"testing"

	"tensorturn/agent/trainer"
)

// A slot's program sees its slot's GPU alone, whatever the agent sees.
func TestAProgramSeesItsSlotsGPU(t *testing.T) {
	agent := []string{"CUDA_VISIBLE_DEVICES=0,1", "CUDA_DEVICE_ORDER=FASTEST_FIRST"}
	for device, want := range map[string][]string{
		"GPU-b": {"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=GPU-b"},
		"":      {"CUDA_DEVICE_ORDER=FASTEST_FIRST", "CUDA_VISIBLE_DEVICES=0,1"},
	} {
		env := environment(agent, 1, trainer.Job{Device: device}, place{batch: 1}, false)
		for _, w := range want {
			if !slices.Contains(env, w) {
				t.Errorf("device %q: no %s", device, w)
			}
		}
	}
}
