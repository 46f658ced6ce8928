package device

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/machine"
)

// asked are the columns that nvidia-smi is asked for, in order.
const asked = "index,uuid,name,memory.total,memory.free,utilization.gpu,utilization.memory,temperature.gpu,temperature.memory,power.draw,clocks.sm,clocks.mem,driver_version"

// program reads GPUs with nvidia-smi, where the library cannot be called.
type program struct {
	name  string
	agent int // process whose descendants are our own trainers
	last  Reading
	until int // readings for which last is new enough
}

// spared is how many readings one call of nvidia-smi serves: where the driver is not kept loaded, each call takes a second of a core.
const spared = 5

func newProgram(name string, agent int) *program { return &program{name: name, agent: agent} }

func (p *program) close() {}

// read implements source.
func (p *program) read() Reading {
	if p.until--; p.until < 0 {
		p.last, p.until = p.ask(), spared-1
	}
	return p.last
}

func (p *program) ask() Reading {
	path, err := exec.LookPath(p.name)
	if err != nil {
		return Reading{Trouble: "no NVIDIA driver: nvidia-smi is not on PATH", Absent: true}
	}
	ctx, cancel := context.WithTimeout(context.Background(), ProbeLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--query-gpu="+asked, "--format=csv,noheader,nounits").Output()
	if err != nil {
		why := err.Error()
		var exit *exec.ExitError
		if text := strings.TrimSpace(string(out)); text != "" {
			why = text
		} else if errors.As(err, &exit) && len(exit.Stderr) > 0 {
			why = strings.TrimSpace(string(exit.Stderr))
		}
		return Reading{Trouble: "nvidia-smi says: " + domain.Clip(oneLine(why), 300), Absent: true}
	}
	r, err := parse(string(out))
	if err != nil {
		return Reading{Trouble: "nvidia-smi's table cannot be read: " + err.Error(), Absent: true}
	}
	if len(r.GPUs) > 0 { // not all drivers tell; without their word nobody else uses it
		if users, err := exec.CommandContext(ctx, path, "pmon", "-c", "1", "-s", "u").Output(); err == nil {
			p.others(string(users), r.GPUs)
		}
	}
	return r
}

// others marks the GPUs that a program which is not the agent's uses, by nvidia-smi's table of processes: a line of column names after
// "#", one of units, and one for each process, with "-" for what is not known.
func (p *program) others(table string, gpus []machine.GPU) {
	var columns []string
	column := func(row []string, name string) (int, bool) {
		i := slices.Index(columns, name)
		if i < 0 || i >= len(row) {
			return 0, false
		}
		n, err := strconv.Atoi(row[i])
		return n, err == nil
	}
	for line := range strings.Lines(table) {
		row := strings.Fields(line)
		if len(row) > 0 && row[0] == "#" {
			if columns == nil {
				columns = row[1:]
			}
			continue
		}
		index, ok := column(row, "gpu")
		pid, okPID := column(row, "pid")
		busy, okBusy := column(row, "sm")
		if !ok || !okPID || !okBusy || busy < foreignBusy || !foreign(p.agent, pid) {
			continue
		}
		for i := range gpus {
			gpus[i].Others = gpus[i].Others || gpus[i].Index == index
		}
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// parse reads the table. Values in brackets, as "[N/A]", are unknown; a line about a lost GPU is prose and is left out, so that the GPU
// counts as gone.
func parse(table string) (Reading, error) {
	var r Reading
	rows := csv.NewReader(strings.NewReader(table))
	rows.FieldsPerRecord, rows.TrimLeadingSpace, rows.LazyQuotes = -1, true, true
	all, err := rows.ReadAll()
	if err != nil {
		return r, err
	}
	for _, row := range all {
		if len(row) != strings.Count(asked, ",")+1 || !strings.HasPrefix(row[1], "GPU-") {
			continue
		}
		if len(r.GPUs) == machine.MaxGPUs {
			break
		}
		index, err := strconv.Atoi(row[0])
		if err != nil || index < 0 {
			return r, fmt.Errorf("%q is no index", domain.Clip(row[0], 40))
		}
		g := machine.GPU{Index: index, UUID: domain.Clip(row[1], machine.MaxDeviceText), Name: domain.Clip(row[2], machine.MaxDeviceText),
			Busy: number(row[5], 0.01), MemoryBusy: number(row[6], 0.01), Celsius: number(row[7], 1), MemoryTemp: number(row[8], 1),
			Watts: number(row[9], 1), ClockMHz: number(row[10], 1), MemClockMHz: number(row[11], 1)}
		g.Memory = machine.Space{Total: mebibytes(row[3]), Free: mebibytes(row[4])}
		r.GPUs, r.Driver = append(r.GPUs, g), domain.Clip(row[12], machine.MaxDeviceText)
	}
	if len(r.GPUs) == 0 {
		r.Trouble = "the driver is loaded and knows no GPU"
	}
	return r, nil
}

func number(s string, scale float64) *float64 {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || x < 0 || x > 1e9 {
		return nil
	}
	x *= scale
	return &x
}

func mebibytes(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0
	}
	return n << 20
}
