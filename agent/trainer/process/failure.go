package process

import (
	"fmt"
	"os"
	"strings"

	"tensorturn/domain"
)

// Kind sorts what goes wrong with an owner's program (PROTOCOL.md section 5).
type Kind string

// The kinds. Protocol and output are the agent's own judgement, the others may come from the trainer.
const (
	KindScript   Kind = "script"
	KindMemory   Kind = "memory"
	KindDevice   Kind = "device"
	KindDiverged Kind = "diverged"
	KindData     Kind = "data"
	KindMissing  Kind = "missing"
	KindProtocol Kind = "protocol" // a message that cannot be
	KindOutput   Kind = "output"   // a tensor file that cannot be read
	KindLimit    Kind = "limit"    // more processes, disk or time than this machine allows
	KindSandbox  Kind = "sandbox"  // this machine runs no program as it is told to
)

// Failure is a task error of an owner's program: what happened, what to do, and the end of what it printed.
type Failure struct {
	Kind Kind
	Why  string
	Next string
	Log  string   // path of the attempt's log on this machine, may be empty
	Tail []string // at most TailLines of it
}

// Error gives reason and advice in one line: events hold one text.
func (f *Failure) Error() string {
	if f.Next == "" {
		return f.Why
	}
	return f.Why + " (" + f.Next + ")"
}

// OutOfMemory reports whether the program took more memory than there is.
func (f *Failure) OutOfMemory() bool { return f.Kind == KindMemory }

// LastLines is for trainer.LastLines.
func (f *Failure) LastLines() []string { return f.Tail }

// Unwrap gives it domain.KindInvalid: trying the same again on the same machine cannot help.
func (f *Failure) Unwrap() error { return domain.Invalid("", f.Why, f.Next) }

func fail(kind Kind, why, next string) *Failure { return &Failure{Kind: kind, Why: why, Next: next} }

// hints say what an owner can do about a kind.
var hints = map[Kind]string{
	KindMemory:   "lower batch, or let it be halved with join(..., halve=True)",
	KindDevice:   "look at the device and its driver on this machine",
	KindDiverged: "lower the learning rate or clip gradients",
	KindData:     "check the data on this machine and data.samples in the spec",
	KindLimit:    limitHint,
	KindMissing:  "install it, or start the agent with --python PATH",
}

// limitHint is for what the limits of a process cause within it.
const limitHint = "use less, or allow more on this machine: agent start --trainer-disk"

// signs are texts by which a dying program shows what it died of. The first that is found in a line counts, lines are
// read from the last one.
var signs = [...]struct {
	text string
	kind Kind
}{
	{"CUDA out of memory", KindMemory}, {"OutOfMemoryError", KindMemory}, {"HIP out of memory", KindMemory}, {"MemoryError", KindMemory},
	{"Unable to allocate", KindMemory}, {"No space left on device", KindLimit}, {"File too large", KindLimit}, {"Disk quota exceeded", KindLimit},
	{"can't allocate memory", KindMemory}, {"Cannot allocate memory", KindMemory}, {"std::bad_alloc", KindMemory}, {"memory exhausted", KindMemory}, {"out of memory", KindMemory},
	{"ModuleNotFoundError", KindMissing}, {"ImportError: No module", KindMissing},
	{"CUDA error", KindDevice}, {"CUDA driver", KindDevice}, {"device-side assert", KindScript}, {"NVML", KindDevice},
}

// judge reads the kind out of the last lines; the line that showed it is the best reason.
func judge(tail []string) (Kind, string) {
	for i := len(tail) - 1; i >= 0; i-- {
		for _, s := range signs {
			if strings.Contains(tail[i], s.text) {
				return s.kind, strings.TrimSpace(tail[i])
			}
		}
	}
	if len(tail) == 0 {
		return KindScript, ""
	}
	return KindScript, strings.TrimSpace(tail[len(tail)-1])
}

// died explains the end of a child that nobody asked to end.
func died(state *os.ProcessState, command []string, tail []string) *Failure {
	kind, line := judge(tail)
	how := "ended before its work was done, with exit code 0"
	next := ""
	code, signal := -1, signalOf(state)
	if state != nil {
		code = state.ExitCode()
	}
	switch {
	case signal == "killed" || code == 137:
		how = "was killed by the system (SIGKILL), most likely because memory ran out"
		kind = KindMemory
	case signal != "":
		how = "crashed: " + signal
	case code == 127 || code == 126:
		kind = KindMissing
		how = fmt.Sprintf("could not be started (exit code %d)", code)
	case code != 0:
		how = fmt.Sprintf("ended with exit code %d", code)
	case kind == KindScript:
		next = "do not leave the loop over job.batches() early"
	}
	if h := hints[kind]; h != "" {
		next = h
	}
	why := "the script " + how
	if line != "" {
		why += ": " + domain.Clip(line, 160)
	}
	if kind == KindMissing && len(command) > 0 {
		why = "interpreter " + clean(command[0], 100) + " " + how + ": " + domain.Clip(line, 100)
	}
	return fail(kind, why, next)
}

// told turns a trainer's own error message into a failure.
func told(m message) *Failure {
	kind := Kind(m.Kind)
	switch kind {
	case KindScript, KindMemory, KindDevice, KindDiverged, KindData, KindMissing, KindLimit:
	default:
		return fail(KindProtocol, "the script reported an error of the unknown kind "+show(m.Kind)+": "+domain.Clip(m.Text, 120), "")
	}
	text := domain.Clip(m.Text, 180)
	if text == "" {
		text = "no reason was given"
	}
	return fail(kind, "the script failed: "+text, hints[kind])
}
