package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	processtrainer "tensorturn/agent/trainer/process"
	"tensorturn/agent/trainer/process/sandbox"
	"tensorturn/broker/wire"
	"tensorturn/domain"
)

// isolationOptions are what owners' programs may do on a machine.
type isolationOptions struct {
	sandbox, required bool
	read              []string
	limits            processtrainer.Limits
}

func isolationFlags(f *pflag.FlagSet, o *agentOptions) {
	i := &o.isolation
	i.limits = processtrainer.DefaultLimits()
	f.BoolVar(&i.sandbox, "sandbox", false, "keep owners' scripts in a sandbox: bubblewrap where installed, else Landlock and seccomp; no network unless the spec says network: true")
	f.BoolVar(&i.required, "require-sandbox", false, "do not start without a sandbox that has proved itself")
	f.StringArrayVar(&i.read, "sandbox-read", nil, "a folder that scripts in the sandbox may read, for data sets; may be repeated")
	f.Var((*byteSize)(&i.limits.Memory), "trainer-memory", "memory of a script with all it starts, for example 16GiB; 0 for no limit")
	f.IntVar(&i.limits.Processes, "trainer-processes", i.limits.Processes, "processes of a script at a time; 0 for no limit")
	f.Var((*byteSize)(&i.limits.Disk), "trainer-disk", "disk that a script may fill in its own folders; 0 for no limit")
	f.DurationVar(&i.limits.Time, "trainer-time", 0, "how long a script may run; 0 for no limit: one that makes no progress loses its lease anyway")
}

// chooseSandbox lets the machine's sandbox prove itself.
func chooseSandbox(ctx context.Context, o agentOptions) (*sandbox.Sandbox, error) {
	const op = "start agent"
	if !o.isolation.sandbox && !o.isolation.required {
		return sandbox.Open(), nil
	}
	for i, path := range o.isolation.read {
		abs, err := filepath.Abs(path)
		if err == nil {
			_, err = os.Stat(abs)
		}
		if err != nil {
			return nil, domain.Invalid(op, "--sandbox-read: "+plainPathError(err), "name a folder that exists")
		}
		o.isolation.read[i] = abs
	}
	dir := filepath.Join(o.dir, "proofs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, domain.Unavailable(op, "no folder for the proof of the sandbox can be made", "check the disk of the agent's directory", err)
	}
	s := sandbox.Choose(ctx, dir)
	report := s.Report().String()
	if o.isolation.required && !s.Holds() {
		return nil, domain.Conflict(op, "no sandbox has proved itself: "+report, "install bubblewrap, or start without --require-sandbox")
	}
	if s.Holds() {
		o.logger.Info().Str("sandbox", report).Msg("sandbox proved itself")
	} else {
		o.logger.Warn().Str("sandbox", report).Msg("scripts run without a sandbox")
	}
	return s, nil
}

// byteSize is a number of bytes as people write it.
type byteSize int64

// Set reads 16GiB, 16G, 16GB or a plain number of bytes.
func (b *byteSize) Set(text string) error {
	n, err := domain.ParseSize(text)
	*b = byteSize(n)
	return err
}

// String gives the largest unit that says it, exactly, without a fraction of more than one digit; else the bytes.
func (b *byteSize) String() string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}} {
		if int64(*b) >= u.size && int64(*b)*10%u.size == 0 {
			return strings.TrimSuffix(strconv.FormatFloat(float64(*b)/float64(u.size), 'f', 1, 64), ".0") + u.name
		}
	}
	return strconv.FormatInt(int64(*b), 10)
}

// Type names the kind of value in help texts.
func (b *byteSize) Type() string { return "size" }

// trainerLogs reads what owners' programs printed, for the hub.
type trainerLogs struct{ own *processtrainer.Opener }

func (t trainerLogs) List(run domain.RunID) (files []wire.LogFile) {
	for _, l := range t.own.Logs() {
		if l.Run == run {
			files = append(files, wire.LogFile{Attempt: l.Attempt, Member: l.Member, Bytes: l.Bytes, Open: l.Open, Changed: max(0, l.Changed.Unix())})
		}
	}
	return files
}

func (t trainerLogs) Read(run domain.RunID, attempt int, from int64, n int) ([]byte, int64, error) {
	for _, l := range t.own.Logs() {
		if l.Run == run && l.Attempt == attempt {
			return t.own.ReadLog(l, from, n)
		}
	}
	return nil, 0, domain.NotFound("read log", "it is gone", "")
}
