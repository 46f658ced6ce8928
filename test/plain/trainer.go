// Package plain is a trainer in plain Go, written from agent/trainer/PROTOCOL.md alone: it imports nothing of this module,
// and has its own reader of messages, tensor files and orders. Test binaries run themselves with it as their child; a mode
// says how it misbehaves. It is a linear classifier with momentum on data made from their index.
package plain

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// SteadyStep is the time of a step in the mode "steady": a timer's, as a GPU's does not depend on who else uses the CPU.
const SteadyStep = 40 * time.Millisecond

// Main is the program. It reads its environment and returns when it is asked to close, or misbehaves by its mode; "good"
// and "stdio" do not.
func Main(mode string) {
	misbehaveFirst(mode)
	if mode == "alone" {
		alone()
		return
	}
	seed, err := strconv.ParseUint(os.Getenv("TENSORTURN_SEED"), 10, 64)
	if err != nil {
		panic(err)
	}
	p := &program{mode: mode, dir: os.Getenv("TENSORTURN_WORK_DIR"), seed: seed, n: number("SAMPLES"), batch: number("BATCH"), heldout: number("HELDOUT"),
		block: number("BLOCK"), model: newModel(seed), in: os.Stdin, out: os.Stdout}
	if mode != "stdio" {
		c, err := net.Dial("unix", os.Getenv("TENSORTURN_SOCKET"))
		if err != nil {
			panic(err)
		}
		p.in, p.out = c, c
	}
	p.write("first.safetensors", "w", p.model.shape(), p.model.w)
	p.hello()
	lines := bufio.NewScanner(p.in)
	for lines.Scan() {
		var r ask
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		if r.Type == "close" {
			break
		}
		p.misbehave(r)
		p.serve(r)
	}
	if mode == "deaf" {
		select {}
	}
}

// program is the state of a run of Main.
type program struct {
	mode, dir                string
	seed                     uint64
	n, batch, heldout, block int
	model                    *model
	in                       io.Reader
	out                      io.Writer
}

// ask is a request.
type ask struct {
	Type, File, Input, Output string
	ID                        int
	Epoch, First, Count, Ramp int
}

func (p *program) say(format string, args ...any) { fmt.Fprintf(p.out, format+"\n", args...) }

func (p *program) hello() {
	version, weights, n := 1, "first.safetensors", p.n
	switch p.mode {
	case "version 2":
		version = 2
	case "other data":
		n++
	case "link":
		weights = "link.safetensors"
		if err := os.Symlink("/etc/passwd", filepath.Join(p.dir, weights)); err != nil {
			panic(err)
		}
	}
	p.say(`{"type":"hello","version":%d,"name":"plain trainer","weights":%q,"samples":%d,"evaluates":true,"predicts":true,"halves":true,"checkpoints":%t}`, version, weights, n, p.mode == "member")
}

// serve answers one request.
func (p *program) serve(r ask) {
	switch r.Type {
	case "load":
		copy(p.model.w, p.read(r.File))
	case "save":
		p.write(r.File, "w", p.model.shape(), p.model.w)
		p.damage(filepath.Join(p.dir, r.File))
	case "keep": // weights and momentum
		all := append(append([]float32(nil), p.model.w...), p.model.m...)
		p.write(r.File, "state", fmt.Sprintf("[%d]", len(all)), all)
	case "resume":
		all := p.read(r.File)
		copy(p.model.w, all)
		copy(p.model.m, all[len(p.model.w):])
	case "rejoin":
		clear(p.model.m)
		p.model.ramp, p.model.full = r.Ramp, r.Ramp
	case "train":
		p.train(r)
		return
	case "evaluate":
		p.evaluate(r)
		return
	case "predict":
		if !p.predict(r) {
			return
		}
	}
	p.say(`{"type":"ok","id":%d}`, r.ID)
}

func (p *program) train(r ask) {
	rows := Order(p.seed, r.Epoch, p.n, p.block)[r.First : r.First+r.Count]
	steps, sum := 0, 0.0
	due := time.Now()
	for len(rows) > 0 {
		b := rows[:min(p.batch, len(rows))]
		rows = rows[len(b):]
		loss := p.model.step(b)
		if p.mode == "steady" { // as fast on a busy machine as on an idle one, for trials that measure
			due = due.Add(SteadyStep)
			time.Sleep(time.Until(due))
		}
		sum += loss * float64(len(b))
		steps++
		p.say(`{"type":"step","id":%d,"samples":%d,"loss":%g}`, r.ID, len(b), loss)
	}
	p.say(`{"type":"trained","id":%d,"steps":%d,"loss":%g}`, r.ID, steps, sum/float64(r.Count))
}

func (p *program) evaluate(r ask) {
	right, loss := 0, 0.0
	for i := range p.heldout {
		x, label := sample(-1 - i)
		q := p.model.forward(x)
		loss -= math.Log(q[label])
		if q[label] == max(q[0], q[1], q[2]) {
			right++
		}
	}
	p.say(`{"type":"step","id":%d,"samples":%d}`, r.ID, p.heldout)
	p.say(`{"type":"evaluated","id":%d,"samples":%d,"accuracy":%g,"loss":%g}`, r.ID, p.heldout, float64(right)/float64(p.heldout), loss/float64(p.heldout))
}

// predict reports whether it answers: rows that it refuses are told at once.
func (p *program) predict(r ask) bool {
	x := p.read(r.Input)
	var y []float32
	if p.mode == "picky" && p.picks(r, x) {
		return false
	}
	for i := 0; i < len(x); i += Features {
		for _, q := range p.model.forward(x[i : i+Features]) {
			y = append(y, float32(q))
		}
	}
	if p.mode == "picky" && x[0] == TooMuch {
		y[0] = float32(math.NaN())
	}
	p.write(r.Output, "output", fmt.Sprintf("[%d,%d]", len(x)/Features, Classes), y)
	return true
}

// write makes a tensor file of one tensor.
func (p *program) write(file, name, shape string, data []float32) {
	head := fmt.Sprintf(`{%q:{"dtype":"F32","shape":%s,"data_offsets":[0,%d]}}`, name, shape, 4*len(data))
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	b = append(b, head...)
	for _, v := range data {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	if err := os.WriteFile(filepath.Join(p.dir, file), b, 0o600); err != nil {
		panic(err)
	}
}

// read gives the values of a tensor file of one tensor.
func (p *program) read(file string) []float32 {
	b, err := os.ReadFile(filepath.Join(p.dir, file))
	if err != nil {
		panic(err)
	}
	b = b[8+binary.LittleEndian.Uint64(b):]
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// number is a whole number of the environment.
func number(name string) int {
	n, err := strconv.Atoi(os.Getenv("TENSORTURN_" + name))
	if err != nil {
		panic(name + ": " + err.Error())
	}
	return n
}
