package process

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/process/code"
	"tensorturn/agent/trainer/process/sandbox"
	"tensorturn/agent/trainer/python"
	"tensorturn/domain"
	"tensorturn/domain/redact"
)

const opOpen = "open trainer"

// Options is what an Opener needs.
type Options struct {
	Root    string   // a folder of its own: work folders, logs, the helper module
	Python  string   // this machine's interpreter; empty: the spec's, or what PATH has
	Threads int      // for numeric libraries where the environment names no number; 0: their own choice
	Environ []string // the agent's environment, as os.Environ gives it
	Log     zerolog.Logger

	Limits  Limits           // of each program
	Sandbox *sandbox.Sandbox // holds programs; nil: neither it nor the limits that a process sets itself, for binaries without its helper
	// RequireSandbox refuses programs where the sandbox does not hold.
	RequireSandbox bool
	Read           []string // what programs may read beside the system and their interpreter: data sets
	Hide           []string // the agent's own folders

	LookPath              func(string) (string, error) // nil: exec.LookPath
	CloseGrace, KillGrace time.Duration                // 0: the defaults; tests are impatient
	HelloWait             time.Duration                // 0: the default
	WatchEvery            time.Duration                // 0: the default
}

// Opener opens the trainers of a machine. Safe for concurrent use.
type Opener struct {
	opts Options

	mu       sync.Mutex
	attempts map[domain.RunID]int
	halved   map[domain.RunID]bool // ran out of memory and may be tried with half of the batch
	running  map[string]bool       // units whose program runs
	places   map[string][]string   // interpreter: where it lives

	containers map[container]bool
}

// New prepares the root: what a former agent left there is removed, processes first.
func New(o Options) (*Opener, error) {
	const op = "prepare process trainers"
	if o.CloseGrace == 0 {
		o.CloseGrace = closeGrace
	}
	if o.KillGrace == 0 {
		o.KillGrace = killGrace
	}
	if o.HelloWait == 0 {
		o.HelloWait = helloWait
	}
	if o.LookPath == nil {
		o.LookPath = exec.LookPath
	}
	if o.WatchEvery == 0 {
		o.WatchEvery = watchEvery
	}
	root, err := filepath.Abs(o.Root)
	if err != nil {
		return nil, domain.Invalid(op, err.Error(), "")
	}
	o.Root = root
	if err := sweep("TENSORTURN_WORK_DIR=" + filepath.Join(root, "work") + string(filepath.Separator)); err != nil {
		return nil, domain.Unavailable(op, "trainers of a former agent cannot be ended", "end them by hand", err)
	}
	if info, err := os.Lstat(root); err == nil && info.Mode().IsRegular() { // no program of ours has put a file there
		_ = os.Remove(root)
	}
	for _, err := range []error{
		os.RemoveAll(filepath.Join(root, "work")), os.RemoveAll(filepath.Join(root, "lib")), os.MkdirAll(filepath.Join(root, "work"), 0o700), os.MkdirAll(filepath.Join(root, "lib"), 0o700),
		os.WriteFile(filepath.Join(root, "lib", python.File), []byte(python.Helper()), 0o600),
	} {
		if err != nil {
			return nil, domain.Unavailable(op, "the folder cannot be used", "check the disk of the agent's directory", err)
		}
	}
	opener := &Opener{opts: o, attempts: map[domain.RunID]int{}, halved: map[domain.RunID]bool{}, running: map[string]bool{},
		places: map[string][]string{}, containers: map[container]bool{}}
	for _, l := range opener.Logs() { // attempts go on where a former agent's ended
		opener.attempts[l.Run] = max(opener.attempts[l.Run], l.Attempt+1)
	}
	opener.sweepContainers()
	return opener, nil
}

// Sandbox says what holds programs on this machine, for people.
func (o *Opener) Sandbox() string {
	if o.opts.Sandbox == nil {
		return ""
	}
	return o.opts.Sandbox.Report().String()
}

// Open starts the job's program and waits for its hello; it is a trainer.Factory. The job's data are the packed code.
func (o *Opener) Open(ctx context.Context, job trainer.Job) (trainer.Trainer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t := &Trainer{opener: o, job: job}
	err := t.open(ctx)
	if err != nil {
		t.stop(0)
		return nil, err
	}
	return t, nil
}

// begin numbers an attempt and gives its batch.
func (o *Opener) begin(job trainer.Job) (attempt, batch int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.attempts) >= maxRuns {
		clear(o.attempts)
		clear(o.halved)
	}
	attempt = o.attempts[job.Run]
	o.attempts[job.Run]++
	batch = max(1, job.Spec.Batch)
	if o.halved[job.Run] {
		batch = (batch + 1) / 2
	}
	return attempt, batch
}

// halve notes that the run shall be tried with half of its batch; false when it already is.
func (o *Opener) halve(id domain.RunID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	was := o.halved[id]
	o.halved[id] = true
	return !was
}

// open makes the folders, unpacks the code, starts the program and takes its hello.
func (t *Trainer) open(ctx context.Context) error {
	o := &t.opener.opts
	var err error
	t.attempt, t.batch = t.opener.begin(t.job)
	member := -1
	if t.job.Member > 0 {
		member = t.job.Member
	}
	t.unit = unitName(t.job.Run, t.attempt, member)
	t.dir = filepath.Join(o.Root, "work", t.unit)
	p := place{work: filepath.Join(t.dir, "x"), input: filepath.Join(t.dir, "code"), output: filepath.Join(t.dir, "out"), ckpt: filepath.Join(t.dir, "ckpt"),
		tmp: filepath.Join(t.dir, "tmp"), lib: filepath.Join(o.Root, "lib"), socket: filepath.Join(t.dir, "s"), unit: t.unit, attempt: t.attempt, batch: t.batch}
	for _, d := range []string{p.work, p.input, p.output, p.ckpt, p.tmp} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return domain.Unavailable(opOpen, "no work folder can be made", "check the disk of the agent's directory", err)
		}
	}
	if len(p.socket) > maxSocket {
		if t.short, err = os.MkdirTemp("/tmp", "tt-"); err != nil {
			return domain.Unavailable(opOpen, "no folder for the socket can be made", "choose a shorter --dir for the agent", err)
		}
		p.socket = filepath.Join(t.short, "s")
	}
	if err := t.unpack(p.input); err != nil {
		return err
	}
	if t.root, err = os.OpenRoot(p.work); err != nil {
		return domain.Unavailable(opOpen, "the work folder cannot be opened", "", err)
	}
	if t.log, err = openLog(filepath.Join(o.Root, "logs"), t.unit, MaxLog, redact.New()); err != nil {
		return domain.Unavailable(opOpen, "no log can be written", "check the disk of the agent's directory", err)
	}
	t.opener.runs(t.unit, true)
	if t.job.Rows != nil {
		if err := t.writeRows(); err != nil {
			return domain.Unavailable(opOpen, "the work folder cannot be written", "check the disk of the agent's directory", err)
		}
		p.rows = filepath.Join(p.work, rowsFile)
	}
	_, err = os.Lstat(filepath.Join(p.input, t.output()))
	t.packed = err == nil && t.undecided() // perhaps what the script begins with: it stays, and is no result
	p.command = t.job.Spec.Command
	t.place = p
	if t.alone() {
		return errors.Join(ctx.Err(), t.clearOutput()) // it starts when it is told to train
	}
	if err := t.start(ctx, p); err != nil {
		return err
	}
	if t.undecided() {
		return t.meet(ctx, o.HelloWait)
	}
	return t.greet(ctx)
}

// unpack writes the run's code.
func (t *Trainer) unpack(dir string) error {
	if t.job.Data == nil {
		return domain.Invalid(opOpen, "the run has no code", "submit it with: tensorturn run submit")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return domain.Unavailable(opOpen, "the code's folder cannot be opened", "", err)
	}
	defer func() { _ = root.Close() }()
	if err := code.Unpack(io.NewSectionReader(t.job.Data, 0, code.MaxBytes+code.MaxHeaders), root); err != nil {
		return fmt.Errorf("%s: %w", opOpen, err)
	}
	return nil
}

// start runs the program with its files.
func (t *Trainer) start(ctx context.Context, p place) error {
	o := &t.opener.opts
	words, failure := commandOf(p.command, t.job.Spec, o.Python, o.LookPath)
	if failure != nil {
		return t.failed(failure)
	}
	t.command = words
	env := environment(o.Environ, o.Threads, t.job, p, o.Sandbox != nil && o.Sandbox.Holds())
	p.variables = passedIn(env)
	line, failure := t.isolated(ctx, words, p)
	if failure != nil {
		return t.failed(failure)
	}
	in, ours, err := os.Pipe()
	out, theirs, err2 := os.Pipe()
	errs, theirErrs, err3 := os.Pipe()
	if err == nil && err2 == nil && err3 == nil {
		t.channel, err = newChannel(p.socket, t.log, ours, out, errs)
	}
	if err != nil || err2 != nil || err3 != nil {
		for _, f := range []*os.File{in, ours, out, theirs, errs, theirErrs} {
			_ = f.Close()
		}
		return domain.Unavailable(opOpen, "no channel to the program can be made", "", fmt.Errorf("%v %v %v", err, err2, err3))
	}
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir, cmd.Env = p.input, env
	c, err := start(cmd, t.unit, in, theirs, theirErrs)
	if err != nil {
		return t.failed(fail(KindMissing, fmt.Sprintf("%s could not be started: %s", clean(words[0], 100), clean(err.Error(), 100)), "check the command in the spec"))
	}
	t.child = c
	t.watching.Go(t.watch)
	o.Log.Info().Str("run", string(t.job.Run)).Str("unit", t.unit).Int("attempt", t.attempt).Int("pid", cmd.Process.Pid).Msg("trainer started")
	return ctx.Err()
}

// runs notes whether a unit's program runs.
func (o *Opener) runs(unit string, yes bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if yes {
		o.running[unit] = true
	} else {
		delete(o.running, unit)
	}
}

// token makes names that nobody can guess or repeat.
func token() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
