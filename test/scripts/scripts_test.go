// Package scripts runs owners' programs in pools of the built binary: the trainer of test/plain as child of real agents.
// It needs no Python; what torch adds is in test/torch.
package scripts

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tensorturn/agent/trainer/process/sandbox"
	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/projections/replay"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
	"tensorturn/test/plain"
)

// lease is short, so that a program that hangs is found out quickly.
const lease = 3 * time.Second

var binary string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == sandbox.HelperWord {
		os.Exit(sandbox.Main(os.Args[1:]))
	}
	if len(os.Args) == 3 && os.Args[1] == "trainer" {
		plain.Main(os.Args[2])
		return
	}
	os.Exit(withBinary(m))
}

func withBinary(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tensorturn-scripts-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binary, err = kit.Build(filepath.Join("..", ".."), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// start starts a hub and agents.
func start(t *testing.T, names ...string) (*kit.Pool, map[string]*kit.Process) {
	t.Helper()
	p, agents := kit.NewPool(t, binary, lease), map[string]*kit.Process{}
	p.StartHub()
	for _, name := range names {
		agents[name] = p.StartAgent(name)
	}
	return p, agents
}

// submit starts a run of the plain trainer in the mode.
func submit(t *testing.T, p *kit.Pool, mode string, samples, epochs int) domain.RunID {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	code := t.TempDir()
	if err := os.WriteFile(filepath.Join(code, "note.txt"), []byte(mode), 0o600); err != nil {
		t.Fatal(err)
	}
	return p.Submit(fmt.Sprintf("name: plain\ntrainer: process\ncommand: [%q, trainer, %q]\ncode: %s\nbatch: 8\nchunk: 24\nepochs: %d\nkeep_every: 1\ndata: {samples: %d, heldout: 40, features: %d, classes: %d}\n",
		exe, mode, code, epochs, samples, plain.Features, plain.Classes))
}

// check demands a complete run with an exact ledger and bit-exact merges.
func check(t *testing.T, p *kit.Pool, r runs.Run) {
	t.Helper()
	if r.Phase != run.PhaseCompleted || r.Ledger.Counted != r.Ledger.Expected || len(r.Evaluations) == 0 {
		t.Fatalf("the run is %s (%s), %d of %d samples counted, %d evaluations", r.Phase, r.Reason, r.Ledger.Counted, r.Ledger.Expected, len(r.Evaluations))
	}
	var v replay.Report
	p.JSON(&v, "run", "replay", string(r.ID), "--verify")
	if v.Verdict != "bit-exact" || v.Recomputed != v.Rounds {
		t.Errorf("replay says %+v", v)
	}
}

// Programs of other languages train in a pool, over the socket and over the standard streams.
func TestPlainTrainer(t *testing.T) {
	p, _ := start(t, "a", "b")
	for _, mode := range []string{"good", "stdio"} {
		t.Run(mode, func(t *testing.T) {
			r := p.AwaitEnd(submit(t, p, mode, 960, 3))
			check(t, p, r)
			last := r.Evaluations[len(r.Evaluations)-1]
			t.Logf("accuracy %.3f, loss %.3f after %d rounds", last.Accuracy, last.Loss, r.Rounds.Merged)
			if last.Accuracy < 0.6 || last.Samples != 40 {
				t.Errorf("accuracy %.3f on %d samples", last.Accuracy, last.Samples)
			}
		})
	}
}

// fastest fails the test when a lease of the run was granted for a speed beyond limit samples per second.
func fastest(t *testing.T, p *kit.Pool, id domain.RunID, limit float64) {
	t.Helper()
	for _, e := range p.Events() {
		d, ok := e.Data.(*run.LeaseGranted)
		if !ok || e.Agg != string(id) {
			continue
		}
		var speed float64
		if _, at, found := strings.Cut(d.Reason, " s at "); found {
			fmt.Sscan(at, &speed)
		}
		if speed > limit {
			t.Errorf("a lease is granted for a speed that nobody has: %s", d.Reason)
		}
	}
}

// A program that knows nothing of the protocol is a member of an ensemble: no word in the spec, exit code 0 and a file.
func TestMembersWithoutAWord(t *testing.T) {
	p, _ := start(t, "a", "b")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "note.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	spec := fmt.Sprintf("mode: ensemble\ntrainer: process\ncode: %s\nbatch: 8\nepochs: 2\nensemble: {members: 3}\ndata: {samples: 240, heldout: 40, features: %d, classes: %d}\n", dir, plain.Features, plain.Classes)
	slowly := fmt.Sprintf(`command: [sh, -c, 'for i in $(seq 16); do echo $i; sleep 0.25; done; exec "$0" trainer alone', %q]`, exe) // longer than a lease
	quickly := fmt.Sprintf("command: [%q, trainer, alone]", exe)
	for name, more := range map[string]string{"mute": quickly, "slow": slowly, "voting": fmt.Sprintf("%s\npredict: [%q, trainer, alone]", quickly, exe)} {
		t.Run(name, func(t *testing.T) {
			r := p.AwaitEnd(p.Submit(spec + more + "\n"))
			if r.Phase != run.PhaseCompleted || len(r.Members) != 3 || (r.Vote != nil) != (name == "voting") || r.Totals.Expired != 0 {
				t.Fatalf("%s: %s, %d members, vote %+v", r.Phase, r.Reason, len(r.Members), r.Vote)
			}
			fastest(t, p, r.ID, 100_000) // starting a process alone takes milliseconds
			out := filepath.Join(t.TempDir(), "model")
			p.Must("model", "export", string(r.ID), out)
			if found, _ := filepath.Glob(filepath.Join(out, "members", "*", "model.safetensors")); len(found) != 3 {
				t.Errorf("%v", found)
			}
		})
	}
}

// An agent is killed with its trainer at work: both are gone, its chunks are trained by the other.
func TestAgentKilledWithItsTrainer(t *testing.T) {
	p, agents := start(t, "a", "b")
	id := submit(t, p, "good", 4800, 10)
	victim, ok := p.Machine("a")
	if !ok {
		t.Fatal("no machine a")
	}
	p.AwaitRun(id, "a to hold work", func(r runs.Run) bool { return kit.SlotOf(r, victim).Holding >= 1 && r.Rounds.Merged >= 1 })
	agents["a"].Kill()
	p.Await("its trainer to end", func() bool { return len(trainersOf(t, p.AgentDir("a"))) == 0 })
	if len(trainersOf(t, p.AgentDir("b"))) == 0 {
		t.Error("the other's trainer is not seen: the test shows nothing")
	}
	r := p.AwaitEnd(id)
	check(t, p, r)
	if s := kit.SlotOf(r, victim); s.Expired+s.Copied < 1 || s.Requeued+s.Copied < 1 {
		t.Errorf("its row is %+v, and nobody trained copies", s)
	}
}

// trainersOf lists processes whose environment says that they work below the folder.
func trainersOf(t *testing.T, dir string) (pids []string) {
	t.Helper()
	envs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range envs {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), "TENSORTURN_WORK_DIR="+dir) {
			pids = append(pids, strings.Split(path, "/")[2])
		}
	}
	return pids
}

// What a run's program prints is asked of its machines, through the hub, while it runs and after it has failed.
func TestRunLogs(t *testing.T) {
	p, agents := start(t, "a", "b")
	id := submit(t, p, "hang", 96, 1)
	var logs []gateway.RunLog
	p.Await("what it printed", func() bool {
		p.JSON(&logs, "run", "logs", string(id))
		return slices.ContainsFunc(logs, func(l gateway.RunLog) bool { return strings.Contains(l.Text, "hanging with") })
	})
	if text := p.Must("run", "logs", string(id), "--attempt", "0"); !strings.Contains(text, "hanging with password=[redacted]") || strings.Contains(text, "correcthorse") || strings.Contains(text, "\x1b") {
		t.Errorf("%q", text)
	}
	p.Must("run", "cancel", string(id))
	failed := p.AwaitEnd(submit(t, p, "exit 1", 96, 1))
	if text := p.Must("run", "logs", string(failed.ID), "--follow"); !strings.Contains(text, "ZeroDivisionError") {
		t.Errorf("%q", text)
	}
	if n := len(failed.Failures); n == 0 || !slices.Contains(failed.Failures[n-1].Tail, "ZeroDivisionError: division by zero") {
		t.Errorf("the run remembers %+v", failed.Failures)
	}
	for _, agent := range agents {
		agent.Kill()
	}
	p.Await("the machines to be lost", func() bool {
		said := p.Run("run", "logs", string(failed.ID))
		return said.Code == 0 && strings.Contains(said.Err, "is lost") && strings.Contains(said.Out, "ZeroDivisionError")
	})
	if said := p.Run("run", "logs", string(failed.ID), "--machine", "nobody"); said.Code != 3 {
		t.Errorf("of an unknown machine: %+v", said)
	}
}

// Who follows a run's logs sees every attempt, as one ends and the next begins, until the run has failed.
func TestLogsAreFollowedAcrossAttempts(t *testing.T) {
	p, _ := start(t, "a")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "try.sh"), []byte("echo attempt $TENSORTURN_ATTEMPT begins\nsleep 2\necho attempt $TENSORTURN_ATTEMPT ends\nexit 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	id := p.Submit("trainer: process\ncommand: [sh, try.sh]\ncode: " + dir + "\nbatch: 8\nchunk: 24\nepochs: 1\ndata: {samples: 96}\n")
	text := p.Must("run", "logs", string(id), "--follow")
	var seen []string
	for _, m := range regexp.MustCompile(`attempt (\d) ends`).FindAllStringSubmatch(text, -1) {
		seen = append(seen, m[1])
	}
	if got := strings.Join(seen, " "); got != "0 1 2" {
		t.Errorf("the ends of attempts %q are told in\n%s", got, text)
	}
	if r := p.AwaitEnd(id); r.Phase != run.PhaseFailed {
		t.Errorf("the run is %s", r.Phase)
	}
}

// In a sandbox a program trains as it does without; the machine's page says what holds it.
func TestPlainTrainerInASandbox(t *testing.T) {
	held := sandbox.Choose(t.Context(), t.TempDir())
	if !held.Holds() {
		t.Skipf("this machine has no sandbox: %s", held.Report())
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	p.StartAgent("a", "--require-sandbox", "--sandbox-read", exe, "--trainer-memory", "2GiB")
	check(t, p, p.AwaitEnd(submit(t, p, "good", 480, 2)))
	if page := p.Must("machine", "show", "a"); !strings.Contains(page, held.Report().String()) {
		t.Errorf("the machine's page says:\n%s\nwant %s", page, held.Report())
	}
}

// prints are the ways to fail that leave words behind.
var prints = map[string]bool{"exit 1": true, "no module": true, "MemoryError": true, "orphans": false}

// Each way a program fails: the fact in the log, the words for its owner, and what became of the chunks.
func TestFailuresInAPool(t *testing.T) {
	p, _ := start(t, "a")
	table := []string{"script | event | chunks claimed, returned, counted | what its owner reads"}
	defer func() { t.Log("\n" + strings.Join(table, "\n")) }()
	for _, c := range []struct {
		mode string
		why  string
	}{
		{"exit 1", "exit code 1: ZeroDivisionError: division by zero"},
		{"no module", "No module named 'torch' (install it, or start the agent with --python PATH"},
		{"early end", "ended before its work was done"},
		{"SIGKILL", "was killed by the system (SIGKILL), most likely because memory ran out"},
		{"MemoryError", "CUDA out of memory"},
		{"NaN loss", "the loss is nan at step 3 (lower the learning rate or clip gradients)"},
		{"NaN weights", "not finite"},
		{"cut file", "cut off"},
		{"pickle", "weights that the script saved cannot be used"},
		{"long message", "longer than 65536 bytes"},
		{"other data", "has 97 samples, the spec says 96"},
		{"orphans", "exit code 1"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			r := p.AwaitEnd(submit(t, p, c.mode, 96, 1))
			if r.Phase != run.PhaseFailed || !strings.Contains(r.Reason, c.why) {
				t.Errorf("the run is %s: %s\nwant %q", r.Phase, r.Reason, c.why)
			}
			if r.Ledger.Counted != 0 {
				t.Errorf("%d samples of it are counted", r.Ledger.Counted)
			}
			failed, claimed, requeued := 0, 0, 0
			for _, e := range p.Events() {
				if e.Agg != string(r.ID) {
					continue
				}
				switch d := e.Data.(type) {
				case *run.ChunksClaimed:
					claimed += len(d.Chunks)
				case *run.TaskFailed:
					if len(d.Tail) == 0 && prints[c.mode] {
						t.Errorf("record %d holds nothing of what was printed", e.Seq)
					}
					failed++
					requeued += len(d.Returned)
					if !strings.Contains(d.Error, c.why) && !strings.Contains(c.why, d.Error) {
						t.Errorf("record %d says %q", e.Seq, d.Error)
					}
				}
			}
			if failed != run.MaxTaskFailures || requeued < claimed {
				t.Errorf("%d task failures, %d of %d claimed chunks requeued", failed, requeued, claimed)
			}
			table = append(table, fmt.Sprintf("%s | %d × %s, then %s | %d, %d, %d | %s", c.mode, failed, run.NameTaskFailed, run.NameFailed, claimed, requeued, r.Ledger.Counted, r.Reason))
			if left := trainersOf(t, p.AgentDir("a")); len(left) > 0 {
				p.Await("processes of the program to end", func() bool { return len(trainersOf(t, p.AgentDir("a"))) == 0 })
			}
		})
	}
}

// A machine's limits end what goes beyond them: the same table, for what would harm the machine.
func TestLimitsInAPool(t *testing.T) {
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	p.StartAgent("a", "--trainer-processes", "40", "--trainer-memory", "300MiB", "--trainer-disk", "16MiB")
	for mode, why := range map[string]string{
		"fork bomb":   "more than the 40 that are allowed (use less, or allow more on this machine: agent start --trainer-processes",
		"memory hog":  "memory",
		"disk filler": "--trainer-disk",
	} {
		t.Run(mode, func(t *testing.T) {
			r := p.AwaitEnd(submit(t, p, mode, 96, 1))
			if r.Phase != run.PhaseFailed || !strings.Contains(r.Reason, why) || r.Ledger.Counted != 0 || r.Totals.TaskFails != run.MaxTaskFailures {
				t.Errorf("the run is %s: %s\nwant %q\n%+v", r.Phase, r.Reason, why, r.Totals)
			}
			t.Logf("%s | %d × %s, then %s | 0 counted | %s", mode, r.Totals.TaskFails, run.NameTaskFailed, run.NameFailed, r.Reason)
			p.Await("processes of the program to end", func() bool { return len(trainersOf(t, p.AgentDir("a"))) == 0 })
			if m := p.Must("machine", "show", "a"); !strings.Contains(m, "online") {
				t.Errorf("the agent did not live through it:\n%s", m)
			}
		})
	}
}

// A program that hangs loses its lease for want of progress; its chunks go back and its processes end. One that hangs at once does so
// in the dry step, before it has chunks.
func TestHangLosesItsLease(t *testing.T) {
	for mode, chunks := range map[string]bool{"hang": false, "hang later": true} {
		t.Run(mode, func(t *testing.T) { hangs(t, mode, chunks) })
	}
}

func hangs(t *testing.T, mode string, chunks bool) {
	p, _ := start(t, "a")
	id := submit(t, p, mode, 96, 1)
	p.AwaitRun(id, "the lease to expire", func(r runs.Run) bool { return r.Totals.Expired >= 1 })
	p.Must("run", "cancel", string(id))
	p.Await("its processes to end", func() bool { return len(trainersOf(t, p.AgentDir("a"))) == 0 })
	for _, e := range p.Events() {
		if d, ok := e.Data.(*run.LeaseExpired); ok && e.Agg == string(id) {
			t.Logf("%s | %s | %d chunks returned | %s", mode, d.EventName(), len(d.Requeued), d.Reason)
			if d.Reason != "no progress" || (len(d.Requeued) > 0) != chunks {
				t.Errorf("%q, %d chunks requeued", d.Reason, len(d.Requeued))
			}
			return
		}
	}
	t.Error("no lease has expired")
}
