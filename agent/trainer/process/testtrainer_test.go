package process

// A trainer in plain Go, written from PROTOCOL.md alone: it shares no code with the agent (standard library only, its own
// reader of messages, tensor files and orders). The test binary runs it as a child: `process.test trainer MODE`.

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/bits"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	ttFeatures = 6
	ttClasses  = 3
)

// ttModel is a linear classifier with momentum, on data made from their index.
type ttModel struct {
	w, m []float32 // [classes × (features+1)], bias last
	ramp int
	full int
}

func newTTModel(seed uint64) *ttModel {
	n := ttClasses * (ttFeatures + 1)
	t := &ttModel{w: make([]float32, n), m: make([]float32, n)}
	s := ttSource(seed, 9)
	for i := range t.w {
		t.w[i] = float32(int64(s.next()>>40))/float32(1<<24) - 0.5
	}
	return t
}

type ttRand uint64

func ttMix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func ttSource(seed uint64, labels ...uint64) *ttRand {
	s := ttMix(seed)
	for _, l := range labels {
		s = ttMix(s + 0x9e3779b97f4a7c15 + ttMix(l))
	}
	return (*ttRand)(&s)
}

func (r *ttRand) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	return ttMix(uint64(*r))
}

func (r *ttRand) below(n uint64) uint64 {
	hi, lo := bits.Mul64(r.next(), n)
	for lo < n && lo < -n%n {
		hi, lo = bits.Mul64(r.next(), n)
	}
	return hi
}

func (r *ttRand) shuffle(v []int) {
	for i := len(v) - 1; i > 0; i-- {
		j := r.below(uint64(i) + 1)
		v[i], v[j] = v[j], v[i]
	}
}

func ttOrder(seed uint64, epoch, n, block int) []int {
	if block < 1 || block > n {
		block = n
	}
	blocks := make([]int, (n+block-1)/block)
	for i := range blocks {
		blocks[i] = i
	}
	ttSource(seed, uint64(epoch), 1).shuffle(blocks)
	var all []int
	for _, b := range blocks {
		var in []int
		for i := b * block; i < (b+1)*block && i < n; i++ {
			in = append(in, i)
		}
		ttSource(seed, uint64(epoch), 2, uint64(b)).shuffle(in)
		all = append(all, in...)
	}
	return all
}

// sample makes sample i: held-out ones have negative numbers.
func ttSample(i int) ([]float32, int) {
	s := ttSource(77, uint64(i))
	label := int(s.below(ttClasses))
	x := make([]float32, ttFeatures)
	for j := range x {
		x[j] = float32(s.next()>>40) / float32(1<<24)
		if j%ttClasses == label {
			x[j]++
		}
	}
	return x, label
}

func (t *ttModel) forward(x []float32) []float64 {
	p := make([]float64, ttClasses)
	sum := 0.0
	for c := range p {
		row := t.w[c*(ttFeatures+1):]
		z := row[ttFeatures]
		for j, v := range x {
			z += row[j] * v
		}
		p[c] = math.Exp(float64(z))
		sum += p[c]
	}
	for c := range p {
		p[c] /= sum
	}
	return p
}

func (t *ttModel) step(batch []int) (loss float64) {
	g := make([]float64, len(t.w))
	for _, i := range batch {
		x, label := ttSample(i)
		p := t.forward(x)
		loss -= math.Log(p[label])
		for c := range p {
			d := p[c]
			if c == label {
				d--
			}
			for j, v := range x {
				g[c*(ttFeatures+1)+j] += d * float64(v)
			}
			g[c*(ttFeatures+1)+ttFeatures] += d
		}
	}
	rate := 0.1
	if t.ramp > 0 {
		rate *= float64(t.full-t.ramp+1) / float64(t.full)
		t.ramp--
	}
	for i := range t.w {
		t.m[i] = 0.9*t.m[i] + float32(g[i]/float64(len(batch)))
		t.w[i] -= float32(rate) * t.m[i]
	}
	return loss / float64(len(batch))
}

func ttWrite(path, name string, shape string, data []float32) {
	head := fmt.Sprintf(`{%q:{"dtype":"F32","shape":%s,"data_offsets":[0,%d]}}`, name, shape, 4*len(data))
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	b = append(b, head...)
	for _, v := range data {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		panic(err)
	}
}

func ttRead(path string) []float32 {
	b, err := os.ReadFile(path)
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

func ttInt(name string) int {
	n, err := strconv.Atoi(os.Getenv("TENSORTURN_" + name))
	if err != nil {
		panic(name + ": " + err.Error())
	}
	return n
}

// ttMain is the program. mode says how it misbehaves, "good" does not.
func ttMain(mode string) {
	dir := os.Getenv("TENSORTURN_WORK_DIR")
	seed, _ := strconv.ParseUint(os.Getenv("TENSORTURN_SEED"), 10, 64)
	ttBefore(mode)
	t := newTTModel(seed)
	shape := fmt.Sprintf("[%d,%d]", ttClasses, ttFeatures+1)
	ttWrite(filepath.Join(dir, "first.safetensors"), "w", shape, t.w)
	var in io.Reader = os.Stdin
	var out io.Writer = os.Stdout
	if mode != "stdio" {
		c, err := net.Dial("unix", os.Getenv("TENSORTURN_SOCKET"))
		if err != nil {
			panic(err)
		}
		in, out = c, c
	}
	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	n, batch, heldout := ttInt("SAMPLES"), ttInt("BATCH"), ttInt("HELDOUT")
	if mode == "other data" {
		say(`{"type":"hello","version":1,"name":"t","weights":"first.safetensors","samples":%d,"evaluates":true,"predicts":true,"halves":false}`, n+1)
	}
	if mode == "link" {
		os.Symlink("/etc/passwd", filepath.Join(dir, "link.safetensors"))
		say(`{"type":"hello","version":1,"name":"t","weights":"link.safetensors","samples":%d,"evaluates":true,"predicts":true,"halves":false}`, n)
	}
	say(`{"type":"hello","version":%d,"name":"test trainer","weights":"first.safetensors","samples":%d,"evaluates":true,"predicts":true,"halves":true}`, map[bool]int{true: 2, false: 1}[mode == "version 2"], n)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var r struct {
			Type, File, Input, Output string
			ID                        int
			Epoch, First, Count, Ramp int
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		ttMisbehave(mode, r.Type, say, r.ID, dir, t)
		switch r.Type {
		case "load":
			copy(t.w, ttRead(filepath.Join(dir, r.File)))
			say(`{"type":"ok","id":%d}`, r.ID)
		case "save":
			ttWrite(filepath.Join(dir, r.File), "w", shape, t.w)
			ttDamage(mode, filepath.Join(dir, r.File))
			say(`{"type":"ok","id":%d}`, r.ID)
		case "rejoin":
			clear(t.m)
			t.ramp, t.full = r.Ramp, r.Ramp
			say(`{"type":"ok","id":%d}`, r.ID)
		case "train":
			rows := ttOrder(seed, r.Epoch, n, ttInt("BLOCK"))[r.First : r.First+r.Count]
			steps, sum := 0, 0.0
			for len(rows) > 0 {
				b := rows[:min(batch, len(rows))]
				rows = rows[len(b):]
				loss := t.step(b)
				sum += loss * float64(len(b))
				steps++
				say(`{"type":"step","id":%d,"samples":%d,"loss":%g}`, r.ID, len(b), loss)
			}
			say(`{"type":"trained","id":%d,"steps":%d,"loss":%g}`, r.ID, steps, sum/float64(r.Count))
		case "evaluate":
			right, loss := 0, 0.0
			for i := range heldout {
				x, label := ttSample(-1 - i)
				p := t.forward(x)
				loss -= math.Log(p[label])
				if p[label] == max(p[0], p[1], p[2]) {
					right++
				}
			}
			say(`{"type":"step","id":%d,"samples":%d}`, r.ID, heldout)
			say(`{"type":"evaluated","id":%d,"samples":%d,"accuracy":%g,"loss":%g}`, r.ID, heldout, float64(right)/float64(heldout), loss/float64(heldout))
		case "predict":
			x := ttRead(filepath.Join(dir, r.Input))
			var y []float32
			for i := 0; i < len(x); i += ttFeatures {
				for _, p := range t.forward(x[i : i+ttFeatures]) {
					y = append(y, float32(p))
				}
			}
			ttWrite(filepath.Join(dir, r.Output), "output", fmt.Sprintf("[%d,%d]", len(x)/ttFeatures, ttClasses), y)
			say(`{"type":"ok","id":%d}`, r.ID)
		case "close":
			return
		}
	}
	if mode == "deaf" {
		select {}
	}
}

// ttBefore misbehaves before the hello.
func ttBefore(mode string) {
	switch mode {
	case "exit 1":
		fmt.Fprintln(os.Stderr, "Traceback (most recent call last):\nZeroDivisionError: division by zero")
		os.Exit(1)
	case "no module":
		fmt.Fprintln(os.Stderr, "Traceback (most recent call last):\nModuleNotFoundError: No module named 'torch'")
		os.Exit(1)
	case "silent":
		select {}
	case "JSON first":
		fmt.Println(`{"config": 1}`)
	case "environment":
		fmt.Fprintln(os.Stderr, strings.Join(os.Environ(), "\n"))
		os.Exit(3)
	}
}

// ttMisbehave misbehaves when a request of the type comes.
func ttMisbehave(mode, request string, say func(string, ...any), id int, dir string, t *ttModel) {
	if request == "save" && mode == "NaN weights" {
		t.w[3] = float32(math.NaN())
	}
	if request != "train" {
		return
	}
	switch mode {
	case "hang", "deaf":
		select {}
	case "SIGKILL":
		p, _ := os.FindProcess(os.Getpid())
		p.Kill()
		select {}
	case "MemoryError":
		fmt.Fprintln(os.Stderr, "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
		os.Exit(1)
	case "early end":
		os.Exit(0)
	case "NaN loss":
		say(`{"type":"error","id":%d,"kind":"diverged","text":"the loss is nan at step 3"}`, id)
		select {}
	case "shout":
		line := strings.Repeat("x", 1<<20)
		for range 40 {
			fmt.Println(line)
		}
	case "long message":
		say(`{"type":"%s"}`, strings.Repeat("x", 70000))
		select {}
	case "no JSON":
		say("hello?")
		select {}
	case "nested":
		say(`{"type":"step","id":%d,"samples":{"a":1}}`, id)
		select {}
	case "unknown field":
		say(`{"type":"step","id":%d,"samples":1,"sample":1}`, id)
		select {}
	case "doubled field":
		say(`{"type":"step","id":%d,"samples":1,"samples":2}`, id)
		select {}
	case "wrong id":
		say(`{"type":"step","id":%d,"samples":1}`, id+1)
		select {}
	case "too many samples":
		say(`{"type":"step","id":%d,"samples":1000000}`, id)
		select {}
	case "too few samples":
		say(`{"type":"trained","id":%d,"steps":0}`, id)
		select {}
	case "orphans":
		// Forked away into a session of its own; the wait lets it get there before this group is killed.
		exec.Command("sh", "-c", "setsid --fork sleep 1000; sleep 0.3").Run()
		os.Exit(1)
	case "stubborn":
		c := exec.Command("sh", "-c", "trap '' TERM; sleep 1000 & wait; sleep 1000")
		c.Start()
		say(`{"type":"step","id":%d,"samples":1}`, id)
		c.Wait()
		time.Sleep(time.Hour)
	}
}

// ttDamage damages what was saved.
func ttDamage(mode, path string) {
	switch mode {
	case "cut file":
		b, _ := os.ReadFile(path)
		os.WriteFile(path, b[:len(b)-3], 0o600)
	case "pickle":
		os.WriteFile(path, []byte("\x80\x04\x95cposix\nsystem\n"), 0o600)
	case "other tensors":
		ttWrite(path, "v", "[1]", []float32{1})
	case "pipe":
		os.Remove(path)
		exec.Command("mkfifo", path).Run()
	case "no file":
		os.Remove(path)
	}
}
