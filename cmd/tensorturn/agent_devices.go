package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"tensorturn/agent"
	"tensorturn/agent/bench"
	"tensorturn/agent/device"
	"tensorturn/domain"
	"tensorturn/domain/machine"
)

const (
	firstLook = 5 * time.Second // an agent waits this long for its GPUs; a driver that comes later gives it slots then
	lookAgain = 2 * time.Second // for GPUs that came
)

// slotCount is how many slots an owner wants, 0 for one per GPU. It is a flag's value.
type slotCount int

func (s *slotCount) String() string {
	if *s == 0 {
		return "auto"
	}
	return strconv.Itoa(int(*s))
}

func (*slotCount) Type() string { return "number" }

// Set reads the flag.
func (s *slotCount) Set(text string) error {
	if text == "auto" {
		*s = 0
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > domain.MaxSlotsPerMachine {
		return fmt.Errorf("%q is neither auto nor a number from 1 to %d", domain.Clip(text, 40), domain.MaxSlotsPerMachine)
	}
	*s = slotCount(n)
	return nil
}

// startDevices begins to measure the machine and chooses what each slot computes on.
func (p *agentProcess) startDevices(ctx context.Context) ([]string, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, domain.Unavailable("start agent", "this program does not know its own file", "start it by its full path", err)
	}
	p.machine = device.NewMachine(device.Options{Command: []string{exe, device.HelperWord}, Log: p.opts.logger}, p.opts.dir)
	p.machine.Start()
	select {
	case <-p.machine.First():
	case <-time.After(firstLook):
		p.opts.logger.Warn().Msg("the GPU driver does not answer yet; its GPUs get slots when it does")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	given := p.devices()
	p.machine.Give(given)
	return given, nil
}

// devices is what slots would compute on by what is known now.
func (p *agentProcess) devices() []string {
	v, _ := p.machine.Vitals()
	only, set := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	return device.Assign(int(p.opts.wish), device.Visible(v.GPUs, only, set))
}

// watchDevices says once when GPUs have come that no slot has: slots are fixed as long as an agent process lives, so it has to begin anew.
func (p *agentProcess) watchDevices(ctx context.Context, given []string) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !slices.Equal(p.devices(), given) {
			close(p.grown)
			return
		}
	}
}

// measure gives what takes benchmarks of this machine, nil when its owner wants none.
func (p *agentProcess) measure(o agentOptions, blobs *agent.HTTPBlobs, slots []string) func(context.Context) (machine.Score, error) {
	if o.unmeasured {
		return nil
	}
	return bench.New(bench.Options{Dir: o.dir, Slots: slots, Python: o.python, Throttle: o.throttle, Vitals: p.machine.Vitals, Link: agent.NewLink(blobs)}).Measure
}
