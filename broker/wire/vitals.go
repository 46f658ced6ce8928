package wire

import (
	"math"

	"tensorturn/domain"
	"tensorturn/domain/machine"
)

// vitals judges what a machine says of its hardware: people and metrics show it, so its texts are short and its numbers numbers.
func (c *checker) vitals(v *machine.Vitals) {
	if v == nil {
		return
	}
	c.text("trouble", v.Trouble)
	c.device("processor", v.CPU)
	c.device("driver", v.Driver)
	c.device("cuda", v.CUDA)
	c.reading("load", v.Load, 1)
	c.atMost("gpus", len(v.GPUs), machine.MaxGPUs)
	c.atMost("gpus of slots", len(v.SlotGPUs), domain.MaxSlotsPerMachine)
	for _, uuid := range v.SlotGPUs {
		c.device("gpu of a slot", uuid)
	}
	for i := range v.GPUs {
		if c.err != nil {
			return
		}
		c.gpu(&v.GPUs[i])
	}
}

func (c *checker) gpu(g *machine.GPU) {
	c.count("gpu index", g.Index)
	c.require(g.UUID != "", "a gpu without a uuid")
	c.device("gpu uuid", g.UUID)
	c.device("gpu name", g.Name)
	c.text("why a gpu is gone", g.Gone)
	c.reading("gpu utilisation", g.Busy, 1)
	c.reading("gpu memory utilisation", g.MemoryBusy, 1)
	for _, x := range []*float64{g.Celsius, g.MemoryTemp, g.Watts, g.Joules, g.ClockMHz, g.MemClockMHz} {
		if x != nil {
			c.finite("gpu reading", *x)
			c.require(math.Abs(*x) <= machine.MaxScore, "gpu reading is beyond %g", machine.MaxScore)
		}
	}
}

// reading is nil or from 0 to most.
func (c *checker) reading(what string, x *float64, most float64) {
	if x != nil {
		c.measure(what, *x)
		c.require(*x <= most, "%s is beyond %g", what, most)
	}
}

func (c *checker) device(what, s string) {
	c.require(len(s) <= machine.MaxDeviceText, "%s has %d bytes, at most %d", what, len(s), machine.MaxDeviceText)
}

// bench judges what a machine measured; machine.Decide judges the figures again.
func (c *checker) bench(b *Bench) {
	if b == nil {
		return
	}
	c.require(b.Number > 0, "a benchmark without a number")
	c.atMost("measured devices", len(b.Score.Devices), machine.MaxBenchDevices)
	c.atMost("slots of a benchmark", len(b.Score.Slots), domain.MaxSlotsPerMachine)
	c.atMost("unmeasured figures", len(b.Score.Left), machine.MaxBenchLeft)
	c.device("driver", b.Score.Driver)
	for _, x := range []float64{b.Score.Disk, b.Score.Up, b.Score.Down, b.Score.Latency, b.Score.Seconds} {
		c.measure("benchmark figure", x)
	}
	for _, d := range b.Score.Devices {
		c.device("measured device", d.Device)
		c.device("name of a measured device", d.Name)
		c.measure("benchmark figure", d.Flops)
		c.measure("benchmark figure", d.Memory)
	}
	for _, s := range b.Score.Slots {
		c.device("gpu of a slot", s)
	}
	for _, s := range b.Score.Left {
		c.text("why a figure is missing", s)
	}
}
