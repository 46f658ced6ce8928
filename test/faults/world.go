package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tensorturn/domain"
	"tensorturn/projections/fleet"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

// Sizes of the pools. half is what 60 s are to a lease of 120 s.
const (
	lease = 6 * time.Second
	half  = lease / 2
	slow  = "0.012" // throttle of machines that have to be caught at work: a chunk of 64 samples takes some 30 ms
)

// world is the pool of one row.
type world struct {
	*kit.Pool
	*kit.Bed
	mutant   bool
	rng      *rand.Rand
	seen     []string
	agents   map[string]*kit.Process
	root     string
	witness  *witness
	life     *recorded
	restarts map[string]int // how often a machine was started again
	under    []string       // what the hub is started under, such as strace
}

// StartHub starts the hub, under a tracer if there is one, and waits until it answers.
func (w *world) StartHub(flags ...string) {
	w.Pool.Under = w.under
	w.Pool.StartHub(flags...)
	w.Pool.Under = nil
}

func newWorld(b *kit.Bed, bin string, mutated bool, seed uint64) *world {
	return &world{Pool: kit.NewPool(b, bin, lease), Bed: b, mutant: mutated, rng: rand.New(rand.NewPCG(seed, 6)), agents: map[string]*kit.Process{}, restarts: map[string]int{}, root: "."}
}

// see notes what happened, for the table.
func (w *world) see(format string, args ...any) {
	w.seen = append(w.seen, fmt.Sprintf(format, args...))
}

// up starts the hub, its witness, and the named machines.
func (w *world) up(names ...string) {
	w.StartHub("--min-free", "1048576")
	w.witness = watch(w)
	for _, n := range names {
		w.agents[n] = w.StartAgent(n, "--throttle", slow)
	}
}

// epochs is a run of n passes over the digits, 23 chunks each, two passes a round; more adds or replaces settings.
func (w *world) epochs(n int, more ...string) string {
	data, err := filepath.Abs(filepath.Join(w.root, "cmd/tensorturn/demo/digits.csv.gz"))
	w.Must(err)
	text := strings.Join(more, "\n")
	spec := fmt.Sprintf("name: small\ndata: {path: %s}\nkeep_every: 1\nbatch: 32\nepochs: %d\n", data, n)
	for _, line := range []string{"chunk: 64", "round: {chunks: 46}", "model: {kind: mlp, hidden: [32]}"} {
		if name, _, _ := strings.Cut(line, ":"); !strings.Contains(text, name+":") {
			spec += line + "\n"
		}
	}
	return spec + text + "\n"
}

// submit submits the run of n passes.
func (w *world) submit(n int, more ...string) domain.RunID { return w.Submit(w.epochs(n, more...)) }

// holding waits until the machine holds trained chunks that nobody has counted.
func (w *world) holding(id domain.RunID, name string) {
	m := w.machine(name)
	w.AwaitRun(id, name+" to hold work", func(r runs.Run) bool { return kit.SlotOf(r, m).Holding >= 2 })
}

func (w *world) machine(name string) fleet.Machine {
	m, ok := w.Machine(name)
	if !ok {
		w.Fatalf("no machine %s", name)
	}
	return m
}

// of is what the machine did for the run.
func (w *world) of(r runs.Run, name string) runs.Slot { return kit.SlotOf(r, w.machine(name)) }

// again starts the machine's agent again.
func (w *world) again(name string, flags ...string) {
	w.agents[name] = w.SpawnAgent(name, append([]string{"--throttle", slow}, flags...)...)
}

// after waits for d: the length of a fault is no wait for luck.
func (w *world) after(d time.Duration) { <-time.After(d) }

// random is a moment within d.
func (w *world) random(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

// freeze stops a process for d.
func (w *world) freeze(p *kit.Process, d time.Duration) {
	p.Signal(syscall.SIGSTOP)
	w.after(d)
	p.Signal(syscall.SIGCONT)
}

// halfway waits until a share of the run's samples is counted.
func (w *world) halfway(id domain.RunID, share float64) runs.Run {
	return w.AwaitRun(id, fmt.Sprintf("%.0f %% of it", 100*share), func(r runs.Run) bool {
		return float64(r.Ledger.Counted) >= share*float64(r.Ledger.Expected) && r.Ledger.Expected > 0
	})
}

// Say runs a command that has to succeed. (Pool.Must and Bed.Must have one name.)
func (w *world) Say(args ...string) string { return w.Pool.Must(args...) }

// Must ends the row on an error.
func (w *world) Must(err error) { w.Bed.Must(err) }

// show is the run now.
func (w *world) show(id domain.RunID) runs.Run {
	r, ok := w.Show(id)
	if !ok {
		w.Fatalf("the hub does not show run %s", id)
	}
	return r
}

// over waits until a run that was cancelled has ended.
func (w *world) over(id domain.RunID) runs.Run {
	var r runs.Run
	w.Await("the run to be over", func() bool {
		var ok bool
		r, ok = w.Show(id)
		return ok && r.Phase.Ended()
	})
	return r
}

// never waits long enough for a run to have gone on, and fails when it has not: the mutation has taken away what it needs.
func (w *world) never(id domain.RunID) {
	before := w.show(id)
	w.after(2 * lease)
	if after := w.show(id); after.Ledger.Counted == before.Ledger.Counted && !after.Phase.Ended() {
		w.Fatalf("the run stands still at %d of %d samples", after.Ledger.Counted, after.Ledger.Expected)
	}
}
