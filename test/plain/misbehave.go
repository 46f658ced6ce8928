package plain

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// misbehaveFirst misbehaves before the hello.
func misbehaveFirst(mode string) {
	switch mode {
	case "exit 1":
		fmt.Fprintln(os.Stderr, "Traceback (most recent call last):\nZeroDivisionError: division by zero")
		os.Exit(1)
	case "no module":
		fmt.Fprintln(os.Stderr, "Traceback (most recent call last):\nModuleNotFoundError: No module named 'torch'")
		os.Exit(1)
	case "silent":
		forever()
	case "JSON first":
		fmt.Println(`{"config": 1}`)
	case "environment":
		fmt.Fprintln(os.Stderr, strings.Join(os.Environ(), "\n"))
		os.Exit(3)
	}
}

// misbehave misbehaves when the request comes.
func (p *program) misbehave(r ask) {
	if r.Type == "save" && p.mode == "NaN weights" {
		p.model.w[3] = float32(math.NaN())
	}
	if r.Type != "train" {
		return
	}
	mode := p.mode
	if mode == "hang later" && r.First > 0 { // behind the first chunk, which a dry step trains on
		mode = "hang"
	}
	switch mode {
	case "hang", "deaf":
		fmt.Fprintln(os.Stderr, "\x1b[31mhanging with password=correcthorse")
		forever()
	case "SIGKILL":
		self, _ := os.FindProcess(os.Getpid())
		self.Kill()
		forever()
	case "MemoryError":
		fmt.Fprintln(os.Stderr, "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
		os.Exit(1)
	case "early end":
		os.Exit(0)
	case "NaN loss":
		p.say(`{"type":"error","id":%d,"kind":"diverged","text":"the loss is nan at step 3"}`, r.ID)
		forever()
	case "shout":
		line := strings.Repeat("x", 1<<20)
		for range 8 {
			fmt.Println(line)
		}
	case "long message":
		p.say(`{"type":"%s"}`, strings.Repeat("x", 70000))
		forever()
	case "no JSON":
		p.say("hello?")
		forever()
	case "nested":
		p.say(`{"type":"step","id":%d,"samples":{"a":1}}`, r.ID)
		forever()
	case "unknown field":
		p.say(`{"type":"step","id":%d,"samples":1,"sample":1}`, r.ID)
		forever()
	case "doubled field":
		p.say(`{"type":"step","id":%d,"samples":1,"samples":2}`, r.ID)
		forever()
	case "wrong id":
		p.say(`{"type":"step","id":%d,"samples":1}`, r.ID+1)
		forever()
	case "too many samples":
		p.say(`{"type":"step","id":%d,"samples":1000000}`, r.ID)
		forever()
	case "too few samples":
		p.say(`{"type":"trained","id":%d,"steps":0}`, r.ID)
		forever()
	case "orphans":
		// Forked away into a session of its own; the wait lets it get there before this group is killed.
		exec.Command("sh", "-c", "setsid --fork sleep 1000; sleep 0.3").Run()
		os.Exit(1)
	case "fork bomb":
		for range 300 { // bounded: the bomb of a test that fails must go out by itself
			c := exec.Command("setsid", "sleep", "60")
			c.Start()
		}
		forever()
	case "memory hog":
		var held [][]byte
		for range 256 { // 1 GiB at most
			b := make([]byte, 4<<20)
			for i := range b {
				b[i] = byte(i) | 1
			}
			held = append(held, b)
			time.Sleep(5 * time.Millisecond)
		}
		fmt.Println(len(held))
		forever()
	case "disk filler":
		for i := range 64 {
			os.WriteFile(filepath.Join(p.dir, fmt.Sprint("my-", i)), make([]byte, 1<<20), 0o600)
		}
		forever()
	case "secrets":
		fmt.Fprintln(os.Stderr, "using hf_abcdefghijklmnopqrstuvwxyz0123 and password=correcthorse from https://me:horsebattery@host/x")
		os.Exit(1)
	case "stubborn":
		c := exec.Command("sh", "-c", "trap '' TERM; sleep 1000 & wait; sleep 1000")
		c.Start()
		p.say(`{"type":"step","id":%d,"samples":1}`, r.ID)
		c.Wait()
		time.Sleep(time.Hour)
	}
}

// First values of rows that the mode "picky" does not like.
const (
	Refused = 1001 // it says so
	Unsaid  = 1002 // it says ok and writes nothing
	TooMuch = 1003 // its answer is not finite
	Deadly  = 1004 // it dies
)

// picks does what the rows deserve and reports whether that was it.
func (p *program) picks(r ask, x []float32) bool {
	switch x[0] {
	case Refused:
		p.say(`{"type":"refused","id":%d,"text":"ValueError: too large"}`, r.ID)
	case Unsaid:
		p.say(`{"type":"ok","id":%d}`, r.ID)
	case Deadly:
		os.Exit(1)
	default:
		return false
	}
	return true
}

// damage damages what was saved.
func (p *program) damage(path string) {
	switch p.mode {
	case "cut file":
		b, _ := os.ReadFile(path)
		os.WriteFile(path, b[:len(b)-3], 0o600)
	case "pickle":
		os.WriteFile(path, []byte("\x80\x04\x95cposix\nsystem\n"), 0o600)
	case "other tensors":
		p.write(filepath.Base(path), "v", "[1]", []float32{1})
	case "pipe":
		os.Remove(path)
		exec.Command("mkfifo", path).Run()
	case "no file":
		os.Remove(path)
	}
}

// forever does nothing. An empty select would end a program without cgo: nothing could ever wake it, and Go says so.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}
