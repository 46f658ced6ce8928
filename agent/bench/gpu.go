package bench

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/machine"
)

// torchScript measures the GPUs that CUDA_VISIBLE_DEVICES names, in that order. It prints one line of JSON for each.
//
//go:embed torch.py
var torchScript string

// maxOutput bounds what is kept of the child's words, in bytes from their end.
const maxOutput = 16 << 10

// gpus measures every GPU that a slot computes on.
func (b *Bench) gpus(ctx context.Context, s *machine.Score) error {
	var uuids []string
	for _, d := range s.Devices[1:] {
		uuids = append(uuids, d.Device)
	}
	if len(uuids) == 0 {
		return nil
	}
	if v, _ := b.opts.Vitals(); slices.ContainsFunc(v.GPUs, func(g machine.GPU) bool { return g.Others && slices.Contains(uuids, g.UUID) }) {
		return domain.Unavailable("", "another program uses a GPU", "", nil)
	}
	python := b.opts.Python
	if python == "" {
		python = "python3"
	}
	path, err := exec.LookPath(python)
	if err != nil {
		return errors.New("no Python to ask torch in: " + python)
	}
	short, cancel := context.WithTimeout(ctx, torchLimit+gpuTime)
	defer cancel()
	cmd := exec.CommandContext(short, path, "-c", torchScript, fmt.Sprint(gpuTime.Seconds()/float64(len(uuids))))
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+strings.Join(uuids, ","), "CUDA_DEVICE_ORDER=PCI_BUS_ID")
	cmd.WaitDelay = time.Second // a child in a hanging driver is left behind
	out, said := &domain.Tail{Most: maxOutput}, &domain.Tail{Most: maxOutput}
	cmd.Stdout, cmd.Stderr = out, said
	if err := cmd.Run(); err != nil {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case short.Err() != nil:
			return fmt.Errorf("torch took longer than %s", torchLimit+gpuTime)
		}
		return errors.New(said.LastLine(err.Error()))
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(uuids) {
		return fmt.Errorf("torch sees %d of %d GPUs: %s", len(lines), len(uuids), said.LastLine("no reason given"))
	}
	for i, line := range lines {
		var got struct {
			Flops  float64 `json:"flops"`
			Memory float64 `json:"memory"`
			Error  string  `json:"error"`
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			return fmt.Errorf("torch's answer %q is no JSON", domain.Clip(line, 80))
		}
		if got.Error != "" {
			b.leave(uuids[i] + ": " + got.Error)
		}
		s.Devices[i+1].Flops, s.Devices[i+1].Memory = bounded(got.Flops), bounded(got.Memory)
	}
	return nil
}

func bounded(x float64) float64 {
	if !(x > 0 && x <= machine.MaxScore) {
		return 0
	}
	return x
}
