package process

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/process/sandbox"
	"tensorturn/agent/trainer/trainertest"
	"tensorturn/domain"
)

// held gives an edit that puts programs into a backend, or skips.
func held(t *testing.T, b sandbox.Backend) func(*Options) {
	t.Helper()
	s := sandbox.Only(t.Context(), b, t.TempDir())
	if b != sandbox.None && !s.Holds() {
		t.Skipf("this machine cannot: %s", s.Report())
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Sandbox, o.Read = s, []string{exe} }
}

// Everything a trainer can do it can do in a sandbox.
func TestSuiteInASandbox(t *testing.T) {
	for _, b := range []sandbox.Backend{sandbox.None, sandbox.Landlock, sandbox.Bubblewrap} {
		for _, mode := range []string{"good", "stdio"} {
			t.Run(string(b)+" "+mode, func(t *testing.T) {
				o := newOpener(t, held(t, b))
				trainertest.Suite(t, o.Open, func(t *testing.T) trainer.Job { return jobFor(t, mode) })
				if left, err := os.ReadDir(filepath.Join(o.opts.Root, "work")); err != nil || len(left) > 0 {
					t.Errorf("work folders are left: %v, %v", left, err)
				}
			})
		}
	}
}

// What a script itself finds within: each line is a thing that it does, and whether a sandbox lets it.
func TestScriptInASandbox(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "id_ed25519")
	if err := os.WriteFile(secret, []byte("planted"), 0o600); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	script := `
try() { name=$1; shift; if "$@" >/dev/null 2>&1; then echo "$name: yes"; else echo "$name: no"; fi; }
try secret cat ` + secret + `
try outside sh -c 'echo x > ` + outside + `'
try code sh -c 'echo x > "$TENSORTURN_INPUT_DIR/x"'
try work sh -c 'echo x > "$TENSORTURN_WORK_DIR/my-x"'
try tmp sh -c 'echo x > "$TMPDIR/x"'
try home sh -c 'echo x > "$HOME/x"'
try shm sh -c 'echo x > /dev/shm/tt-$$ && rm /dev/shm/tt-$$'
try libraries ls /usr/lib
echo "home is $HOME"
exit 3
`
	for _, c := range []struct {
		backend sandbox.Backend
		want    map[string]string
	}{
		{sandbox.None, map[string]string{"secret": "yes", "outside": "yes", "code": "yes", "work": "yes", "tmp": "yes", "home": "yes", "shm": "yes", "libraries": "yes"}},
		{sandbox.Landlock, map[string]string{"secret": "no", "outside": "no", "code": "no", "work": "yes", "tmp": "yes", "home": "yes", "shm": "yes", "libraries": "yes"}},
		{sandbox.Bubblewrap, map[string]string{"secret": "no", "code": "no", "work": "yes", "tmp": "yes", "home": "yes", "shm": "yes", "libraries": "yes"}},
	} {
		t.Run(string(c.backend), func(t *testing.T) {
			defer os.Remove(outside)
			t.Setenv("HOME", t.TempDir())
			o := newOpener(t, held(t, c.backend))
			job := jobFor(t, "good")
			job.Spec.Command = []string{"sh", "-c", script}
			_, err := o.Open(t.Context(), job)
			var f *Failure
			if !errors.As(err, &f) {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, line := range f.Tail {
				name, value, ok := strings.Cut(line, ": ")
				if _, asked := c.want[name]; ok && asked {
					got[name] = value
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s\n%q", d, f.Tail)
			}
			if _, err := os.Stat(outside); (err == nil) != (c.backend == sandbox.None) {
				t.Errorf("a file outside: %v", err)
			}
		})
	}
}

// A machine that demands a sandbox runs nothing without one.
func TestRequiredSandbox(t *testing.T) {
	_, err := newOpener(t, func(o *Options) { o.Sandbox, o.RequireSandbox = sandbox.Open(), true }).Open(t.Context(), jobFor(t, "good"))
	var f *Failure
	if !errors.As(err, &f) || f.Kind != KindSandbox || !strings.Contains(f.Why, "not asked for") {
		t.Errorf("%v", err)
	}
}

// What goes beyond the machine's limits is ended, with everything it started, and the reason names the flag.
func TestLimitsOfAMachine(t *testing.T) {
	for _, c := range []struct {
		mode string
		l    Limits
		kind Kind
		why  string
		flag string
	}{
		{"fork bomb", Limits{Processes: 40}, KindLimit, "more than the 40 that are allowed", "--trainer-processes"},
		{"memory hog", Limits{Memory: 200 << 20}, KindMemory, "more than the 200 MiB that are allowed", "batches of 4"},
		{"disk filler", Limits{Disk: 8 << 20}, KindLimit, "more than the 8 MiB", "--trainer-disk"},
		{"hang", Limits{Time: 300 * time.Millisecond}, KindLimit, "ran for more than the 300ms", "--trainer-time"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			o := newOpener(t, func(o *Options) { o.Limits = c.l })
			tr := opened(t, o, c.mode)
			_, err := tr.Train(t.Context(), 0, nil)
			var f *Failure
			if !errors.As(err, &f) || f.Kind != c.kind || !strings.Contains(f.Why, c.why) || !strings.Contains(f.Next, c.flag) {
				t.Fatalf("%#v", err)
			}
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
			gone(t, tr.(*Trainer).unit)
		})
	}
}

// Within the limits nothing is ended: the watch can tell.
func TestWithinLimits(t *testing.T) {
	o := newOpener(t, func(o *Options) { o.Limits = Limits{Memory: 8 << 30, Processes: 40, Disk: 1 << 30, Time: time.Hour} })
	if err := provoke(t, o, "good"); err != nil {
		t.Error(err)
	}
}

// A process that allocates more than it may is told so by the system; the reason is memory.
func TestAllocationLimit(t *testing.T) {
	hold := held(t, sandbox.None)
	o := newOpener(t, func(o *Options) { hold(o); o.Limits = Limits{Memory: 300 << 20}; o.WatchEvery = time.Hour })
	job := jobFor(t, "good")
	job.Spec.Command = []string{"sh", "-c", "head -c 1000000000 /dev/zero | tail"} // one line that tail would hold
	_, err := o.Open(t.Context(), job)
	var f *Failure
	if !errors.As(err, &f) || f.Kind != KindMemory || !strings.Contains(f.Why, "memory exhausted") {
		t.Errorf("%v", err)
	}
}

// Nothing that looks like a secret is kept: not on disk, not in the last lines.
func TestPrintedSecretsAreRedacted(t *testing.T) {
	tr := opened(t, newOpener(t, nil), "secrets")
	_, err := tr.Train(t.Context(), 0, nil)
	var f *Failure
	if !errors.As(err, &f) {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.Log)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hf_abc", "correcthorse", "horsebattery"} {
		if bytes.Contains(b, []byte(secret)) || strings.Contains(strings.Join(trainer.LastLines(f), "\n"), secret) || strings.Contains(f.Error(), secret) {
			t.Errorf("%s is kept: %s\n%q\n%s", secret, b, f.Tail, f)
		}
	}
}

func TestContainerLine(t *testing.T) {
	p := place{work: "/w/x", input: "/w/code", output: "/w/out", ckpt: "/w/ckpt", tmp: "/w/tmp", lib: "/lib", socket: "/w/c/s", unit: "r-0-ab", variables: []string{"TENSORTURN_RUN_ID", "RANK"}}
	mounts := "--mount type=bind,readonly,source=/w/code,target=/w/code --mount type=bind,readonly,source=/lib,target=/lib " +
		"--mount type=bind,source=/w/x,target=/w/x --mount type=bind,source=/w/out,target=/w/out --mount type=bind,source=/w/ckpt,target=/w/ckpt " +
		"--mount type=bind,source=/w/tmp,target=/w/tmp --mount type=bind,source=/w/c,target=/w/c --env TENSORTURN_RUN_ID --env RANK --workdir /w/code image:1 python t.py"
	begin := " run --rm --interactive --init --name tensorturn-r-0-ab --label tensorturn=r-0-ab --cap-drop ALL --security-opt no-new-privileges --read-only --user "
	for _, c := range []struct {
		engine        string
		l             Limits
		network, gpus bool
		want          string
	}{
		{"docker", Limits{}, false, false, "--network none "},
		{"docker", Limits{Memory: 5, Processes: 7}, true, true, "--memory 5 --pids-limit 7 --gpus all "},
		{"podman", Limits{}, true, true, "--device nvidia.com/gpu=all "},
	} {
		got := strings.Join(containerLine("/bin/"+c.engine, c.engine, "image:1", []string{"python", "t.py"}, p, c.l, c.network, c.gpus), " ")
		head, rest, _ := strings.Cut(got, "--user ")
		_, rest, _ = strings.Cut(rest, " ")
		if head+"--user " != "/bin/"+c.engine+begin || rest != c.want+mounts {
			t.Errorf("%+v:\n%s", c, got)
		}
	}
}

// engine is a docker that runs the words on this machine and notes what it is told.
const engine = `#!/bin/sh
echo "$@" >> "$(dirname "$0")/told"
[ "$1" = run ] || exit 0
while [ "$1" != --workdir ]; do shift; done
cd "$2"; shift 3
exec "$@"
`

// A run in a container: the engine is asked to run it, and to remove it at the end.
func TestContainer(t *testing.T) {
	dir := t.TempDir()
	docker := filepath.Join(dir, "docker")
	if err := os.WriteFile(docker, []byte(engine), 0o700); err != nil {
		t.Fatal(err)
	}
	look := func(name string) (string, error) {
		if name == "docker" {
			return docker, nil
		}
		return "", os.ErrNotExist
	}
	o := newOpener(t, func(o *Options) { o.LookPath = look })
	job := jobFor(t, "good")
	job.Spec.Container = "some/image:1"
	tr, err := o.Open(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Init(t.Context()); err != nil {
		t.Error(err)
	}
	listed, _ := os.ReadFile(o.containersFile())
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	left, _ := os.ReadFile(o.containersFile())
	told, _ := os.ReadFile(filepath.Join(dir, "told"))
	name := "tensorturn-" + tr.(*Trainer).unit
	if !strings.HasSuffix(strings.TrimSpace(string(told)), "rm --force "+name) || string(listed) != docker+" "+name+"\n" || len(left) > 0 {
		t.Errorf("told:\n%s\nlisted %q, then %q", told, listed, left)
	}
	// a killed agent's container is removed by the next
	if err := os.WriteFile(o.containersFile(), []byte(docker+" tensorturn-old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	newOpener(t, func(n *Options) { n.Root, n.LookPath = o.opts.Root, look })
	if told, _ = os.ReadFile(filepath.Join(dir, "told")); !slices.Contains(strings.Split(string(told), "\n"), "rm --force tensorturn-old") {
		t.Errorf("told:\n%s", told)
	}
}

func TestContainerWithoutAnEngine(t *testing.T) {
	o := newOpener(t, func(o *Options) { o.LookPath = func(string) (string, error) { return "", os.ErrNotExist } })
	job := jobFor(t, "good")
	job.Spec.Container = "some/image:1"
	_, err := o.Open(t.Context(), job)
	if err == nil || !strings.Contains(err.Error(), "neither docker nor podman") || !strings.Contains(domain.NextOf(err), "install one") {
		t.Errorf("%v", err)
	}
}
