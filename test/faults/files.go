package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
	"tensorturn/test/offline"
)

// Limits of one try of files.
const (
	filesMemory = 4 << 20          // KiB of addresses that a process may take: far more than it needs
	filesPeak   = 512 << 10        // KiB of memory that it may really have used
	filesWait   = 30 * time.Second // until it works or has said why it does not
	filesSaid   = 4 << 10          // bytes of what the processes said that are printed of a bad one
	filesHuge   = 8 << 30          // length of a file that has grown: more than filesMemory, and a hole on the disk
)

// files damages every file beside the store that a hub and an agent read again, one at a time on a copy of their folders, and
// starts the real processes on it under a limit of memory. Each must work as before, with the run's ledger exact, or say which
// file is wrong and what to do next. changes is how many tries there are at most.
func files(o options, bin string) error {
	return kit.InBed(os.Stderr, func(b *kit.Bed) {
		w := newWorld(b, bin, false, o.seed)
		p := w.filesPatient()
		all := p.tries(o)
		out, wrong := map[string]int{}, 0
		far := newProgress("files")
		for i, t := range all {
			far.tell("%d of %d tries", i, len(all))
			verdict, said := p.try(t)
			out[strings.SplitN(verdict, ":", 2)[0]]++
			if strings.HasPrefix(verdict, "WRONG") {
				wrong++
			}
			fmt.Printf("%-46s %-12s %s\n", t.name(), t.how, verdict)
			if strings.HasPrefix(verdict, "WRONG") || o.talk {
				fmt.Println("    " + strings.ReplaceAll(strings.TrimSpace(said[:min(len(said), filesSaid)]), "\n", "\n    "))
			}
		}
		for _, k := range slices.Sorted(maps.Keys(out)) {
			fmt.Printf("%4d %s\n", out[k], k)
		}
		// The control: another hub's key, which fits its own checks, is seen by who knows the true one.
		verdict, said := p.try(filesTry{file: "hub/keys/head.key", how: foreign})
		fmt.Printf("control, another hub's key: %s\n", verdict)
		if !strings.HasPrefix(verdict, "WRONG: it has another key") {
			b.Errorf("the control is not seen: the experiment shows nothing\n%s", said)
		}
		if wrong > 0 {
			b.Errorf("%d of %d damaged files were answered with something wrong", wrong, len(all))
		}
	})
}

// filesPatient is a pool that was killed in the middle of a run.
type filesPatient struct {
	w       *world
	dir     string // its folders, as the kill left them
	context string // an operator.json that nobody damages
	run     domain.RunID
	first   domain.RunID
	key     string // the hub's public key
}

// filesPatient makes one run to its end, and kills hub and machines in the middle of another.
func (w *world) filesPatient() *filesPatient {
	w.StartHub("--min-free", "1048576", "--private-webhooks")
	for _, n := range []string{"a", "b"} {
		w.agents[n] = w.StartAgent(n, "--throttle", slow)
	}
	p := &filesPatient{w: w, dir: filepath.Join(w.TempDir(), "patient"), first: w.submit(2)}
	w.AwaitEnd(p.first)
	w.Say("webhook", "create", "https://127.0.0.1:9/none")
	w.Say("credential", "create", "--role", "observer")
	w.Say("machine", "rest", "a", "--hours", "03:00-03:01")
	var v gateway.Verified
	w.JSON(&v, "log", "verify")
	p.key = v.Key
	p.run = w.submit(4)
	for _, n := range []string{"a", "b"} {
		w.AwaitRun(p.run, "the second round", func(r runs.Run) bool { return r.Ledger.Counted > 0 })
		w.holding(p.run, n)
	}
	for _, a := range w.agents {
		a.Kill()
	}
	w.after(2 * time.Second) // the hub keeps its position once a second
	w.Hub.Kill()
	w.Must(os.MkdirAll(p.dir, 0o700))
	for _, n := range []string{"hub", "agents"} {
		w.Must(offline.CopyTree(filepath.Join(w.Dir, n), filepath.Join(p.dir, n)))
	}
	p.context = filepath.Join(p.dir, "operator.json")
	b, err := os.ReadFile(filepath.Join(p.dir, "hub", "operator.json"))
	w.Must(err)
	w.Must(os.WriteFile(p.context, b, 0o600))
	return p
}

// filesTry is one file and what is done to it.
type filesTry struct {
	file string // below the pool's folder
	how  string
	seed uint64
}

func (t filesTry) name() string { return t.file[:min(len(t.file), 44)] }

// ways to damage a file, by name.
var filesWays = [...]string{"flip", "flip", "letter", "letter", "letter", "cut", "empty", "zeros", "huge", "folder", "numbers", "gone"}

// tries lists every file in every way, in an order that the seed draws, o.changes at most.
func (p *filesPatient) tries(o options) []filesTry {
	var all []filesTry
	parts := map[string]int{}
	p.w.Must(filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(p.dir, path)
		switch {
		case d.IsDir() && (rel == "hub/store" || rel == "hub/snapshots" || rel == "agents/b"):
			return filepath.SkipDir // the store and the frozen states are those of corruption
		case d.IsDir() || !strings.Contains(rel, "/"):
			return nil
		}
		if parts[filepath.Dir(filepath.Dir(rel))]++; strings.Contains(rel, "/parts/") && parts[filepath.Dir(filepath.Dir(rel))] > 3 {
			return nil // cached blobs are all alike
		}
		for i, how := range filesWays {
			if strings.Contains(rel, o.rows) {
				all = append(all, filesTry{rel, how, o.seed + uint64(i)})
			}
		}
		return nil
	}))
	rng := rand.New(rand.NewPCG(o.seed, 9))
	if o.changes < len(all) {
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:o.changes]
	}
	return all
}

// damage does it; false when the file would be left as it is.
func (t filesTry) damage(dir string) (bool, error) {
	path := filepath.Join(dir, t.file)
	b, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	rng := rand.New(rand.NewPCG(t.seed, uint64(len(t.file))))
	was := bytes.Clone(b)
	switch t.how {
	case "flip":
		if len(b) > 0 {
			b[rng.IntN(len(b))] ^= byte(1 << rng.IntN(8))
		}
	case "letter":
		b = anotherLetter(rng, b)
	case "numbers":
		for i := range b {
			if b[i] >= '0' && b[i] <= '9' {
				b[i] = '9'
			}
		}
	case "cut":
		b = b[:len(b)/2]
	case "empty":
		b = nil
	case "zeros":
		return true, os.Truncate(path, int64(len(b))+64<<20)
	case "huge":
		return true, os.Truncate(path, filesHuge)
	case "gone":
		return true, os.Remove(path)
	case foreign:
		return true, anotherHub(filepath.Dir(path))
	case "folder":
		if err := os.Remove(path); err != nil {
			return true, err
		}
		return true, os.MkdirAll(filepath.Join(path, "within"), 0o700)
	}
	return !bytes.Equal(was, b), os.WriteFile(path, b, 0o600)
}

// foreign is the way of the control.
const foreign = "foreign"

// anotherHub puts another hub's key for signed heads among the keys.
func anotherHub(keys string) error {
	other := keys + ".other"
	if _, err := identity.Create(other, identity.Options{Now: time.Now()}); err != nil {
		return err
	}
	for _, n := range []string{"head.key", "head.pub"} {
		if err := os.Rename(filepath.Join(other, n), filepath.Join(keys, n)); err != nil {
			return err
		}
	}
	return os.RemoveAll(other)
}

// anotherLetter puts one letter or digit in the place of another: text stays text.
func anotherLetter(rng *rand.Rand, b []byte) []byte {
	const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	var at []int
	for i, c := range b {
		if strings.IndexByte(letters, c) >= 0 {
			at = append(at, i)
		}
	}
	if len(at) > 0 {
		b[at[rng.IntN(len(at))]] = letters[rng.IntN(len(letters))]
	}
	return b
}
