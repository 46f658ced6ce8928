package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

// slow is the throttle of machines that have to be caught at work: a chunk of 64 samples takes some 30 ms.
const slow = "0.012"

// pool starts a hub and the named machines, throttled.
func pool(t *testing.T, names ...string) (*kit.Pool, map[string]*kit.Process) {
	t.Helper()
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	agents := map[string]*kit.Process{}
	for _, name := range names {
		agents[name] = p.StartAgent(name, "--throttle", slow)
	}
	return p, agents
}

// epochs is a run of n passes, 23 chunks each, two passes a round.
func epochs(t *testing.T, n int) string {
	t.Helper()
	return spec(t, fmt.Sprintf("model: {kind: mlp, hidden: [32]}\nbatch: 32\nepochs: %d\nchunk: 64\nround: {chunks: 46}\n", n))
}

// awaitHolding waits until the machine holds trained chunks that it has not contributed.
func awaitHolding(t *testing.T, p *kit.Pool, id domain.RunID, name string) {
	t.Helper()
	m, ok := p.Machine(name)
	if !ok {
		t.Fatalf("no machine %s", name)
	}
	p.AwaitRun(id, name+" to hold work", func(r runs.Run) bool { return kit.SlotOf(r, m).Holding >= 2 })
}

// row is what the machine did for the run in the end.
func row(t *testing.T, p *kit.Pool, r runs.Run, name string) runs.Slot {
	t.Helper()
	m, ok := p.Machine(name)
	if !ok {
		t.Fatalf("no machine %s", name)
	}
	return kit.SlotOf(r, m)
}

// An agent that is killed in the middle of a chunk and started again costs its chunks a second training and nothing else.
func TestAgentKilled(t *testing.T) {
	t.Parallel()
	p, agents := pool(t, "a", "b")
	id := p.Submit(epochs(t, 8))
	awaitHolding(t, p, id, "a")
	agents["a"].Kill()
	p.SpawnAgent("a", "--throttle", slow)
	r := p.AwaitEnd(id)
	checkRun(t, p, r)
	if a := row(t, p, r, "a"); a.Expired != 1 || a.Requeued < 2 || a.Samples == 0 {
		t.Errorf("the killed machine's row is %+v: want one lost lease, its chunks requeued, and work after its return", a)
	}
}

// An agent that stands still past its lease loses it. When it goes on, what it trained is refused or dropped, and it
// works on under a new lease.
func TestAgentStoppedPastItsLease(t *testing.T) {
	t.Parallel()
	p, agents := pool(t, "a") // alone: others would train copies of what it holds, and its lease would end with the round
	id := p.Submit(epochs(t, 16))
	awaitHolding(t, p, id, "a")
	agents["a"].Signal(syscall.SIGSTOP)
	p.AwaitMachine("a", machine.Lost)
	r := p.AwaitRun(id, "the lease to expire", func(r runs.Run) bool { return row(t, p, r, "a").Expired > 0 })
	before := row(t, p, r, "a")
	agents["a"].Signal(syscall.SIGCONT)
	p.AwaitMachine("a", machine.Online)
	r = p.AwaitEnd(id)
	checkRun(t, p, r)
	after := row(t, p, r, "a")
	if before.Requeued < 2 || after.Expired != 1 || after.Samples <= before.Samples {
		t.Errorf("before its return %+v, after %+v: want its chunks requeued once, and work after its return", before, after)
	}
}

// A machine told to drain contributes what it has trained and gets no more. Its agent stays, connected and idle, and so
// does a new process of it, as a supervisor would start one, until the machine is resumed.
func TestDrainedByTheOwner(t *testing.T) {
	t.Parallel()
	p, agents := pool(t, "a", "b")
	id := p.Submit(epochs(t, 8))
	awaitHolding(t, p, id, "a")
	p.Must("machine", "drain", "a")
	idle := func() bool { m, ok := p.Machine("a"); return ok && m.Draining && m.Slots[0].Run == "" }
	p.Await("a to hold nothing", idle)
	checkContributed(t, p, id)
	agents["a"].Kill()
	again := p.SpawnAgent("a", "--throttle", slow)
	p.Await("a to be back", func() bool { m, ok := p.Machine("a"); return ok && m.Restarts == 1 && m.Standing == machine.Online })
	if !idle() {
		t.Error("a new agent process ended its owner's drain")
	}
	second := p.Submit(epochs(t, 8))
	p.AwaitRun(second, "a round to be merged without a", func(r runs.Run) bool { return r.Rounds.Merged > 0 })
	if !idle() {
		t.Error("a draining machine was given work of another run")
	}
	p.Must("machine", "resume", "a")
	p.Await("a to work again", func() bool { m, ok := p.Machine("a"); return ok && m.Slots[0].Run != "" })
	p.Must("machine", "drain", "a")
	if code := again.Stop(kit.Patience); code != 0 {
		t.Errorf("the agent of a draining machine ended with exit code %d", code)
	}
	checkRun(t, p, p.AwaitEnd(second))
}

// An agent that gets SIGTERM contributes what it has trained and ends.
func TestAgentTerminated(t *testing.T) {
	t.Parallel()
	p, agents := pool(t, "a", "b")
	id := p.Submit(epochs(t, 8))
	awaitHolding(t, p, id, "a")
	if code := agents["a"].Stop(kit.Patience); code != 0 {
		t.Errorf("the agent ended with exit code %d", code)
	}
	p.AwaitMachine("a", machine.Drained)
	checkContributed(t, p, id)
}

// With no hub to contribute to, an agent that gets SIGTERM waits for it, since its work would be lost otherwise.
func TestAgentTerminatedWhileTheHubIsAway(t *testing.T) {
	t.Parallel()
	p, agents := pool(t, "a", "b")
	id := p.Submit(epochs(t, 8))
	awaitHolding(t, p, id, "a")
	p.Hub.Kill()
	agents["a"].Signal(syscall.SIGTERM)
	p.Await("the agent to stop", func() bool { return strings.Contains(agents["a"].Output(), "stopping: ") })
	p.StartHub()
	if code := agents["a"].Exit(kit.Patience); code != 0 {
		t.Errorf("the agent ended with exit code %d", code)
	}
	p.AwaitMachine("a", machine.Drained)
	checkContributed(t, p, id)
}

// checkContributed waits for the run's end and demands that machine a lost nothing: all it trained was counted.
func checkContributed(t *testing.T, p *kit.Pool, id domain.RunID) {
	t.Helper()
	r := p.AwaitEnd(id)
	checkRun(t, p, r)
	a := row(t, p, r, "a")
	if a.Expired+a.Requeued+a.Refused != 0 || a.Contributions == 0 || a.Samples == 0 {
		t.Errorf("the machine that left did %+v", a)
	}
	counted := 0
	for _, e := range p.Events() {
		if d, ok := e.Data.(*run.ContributionAccepted); ok && d.Slot == a.Slot {
			counted += len(d.Chunks)
		}
	}
	if counted != a.Chunks {
		t.Errorf("it trained %d chunks and %d were counted", a.Chunks, counted)
	}
}

// A revoked machine is cut within two seconds, and its agent cannot come back, not with a new process either.
func TestRevokedMachineIsCut(t *testing.T) {
	t.Parallel()
	p, agents := pool(t, "a", "b")
	id := p.Submit(epochs(t, 8))
	awaitHolding(t, p, id, "a")
	victim, _ := p.Machine("a")
	old := len(agents["a"].Output())
	began := time.Now()
	p.Must("machine", "revoke", "a", "--yes", "--reason", "stolen")
	p.Await("the link to be cut", func() bool { return strings.Contains(agents["a"].Output()[old:], "sync failed") || ended(agents["a"]) })
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the link was cut after %s", took)
	}
	r := p.AwaitEnd(id)
	checkRun(t, p, r)
	if m, ok := p.Machine(string(victim.ID)); !ok || m.Standing != machine.Revoked {
		t.Errorf("the machine is %q", m.Standing)
	}
	if got := kit.SlotOf(r, victim); got.Requeued < 2 {
		t.Errorf("its row is %+v: want its chunks requeued", got)
	}
	if code := agents["a"].Exit(30 * time.Second); code != 4 || !strings.Contains(agents["a"].Output(), "this machine was revoked") {
		t.Errorf("its agent ended with %d:\n%s", code, agents["a"].Output()[old:])
	}
}

func ended(pr *kit.Process) bool {
	select {
	case <-pr.Ended():
		return true
	default:
		return false
	}
}
