package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"tensorturn/test/kit"
	"tensorturn/test/plain"
)

// options of the command line.
type options struct {
	rows     string
	mutate   bool
	quick    bool
	list     bool
	talk     bool
	parallel int
	seed     uint64
	root     string
	what     string
	kills    int
	cuts     int
	changes  int
	faults   int
	minutes  float64
	least    float64
	share    int
	machines int
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == asTrainer {
		beTrainer(os.Args[2:])
		return
	}
	if len(os.Args) > 1 && os.Args[1] == asSteady {
		plain.Main("steady")
		return
	}
	var o options
	flag.StringVar(&o.rows, "rows", "", "numbers of the rows to run, separated by commas; all when empty")
	flag.BoolVar(&o.mutate, "mutate", false, "run each row with its mutation: it must fail")
	flag.BoolVar(&o.quick, "quick", false, "only the rows that make test runs")
	flag.BoolVar(&o.list, "list", false, "print the rows and end")
	flag.BoolVar(&o.talk, "v", false, "print what the processes said when a row fails")
	flag.IntVar(&o.parallel, "parallel", 4, "rows at a time; those about time run alone")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of random moments and places")
	flag.StringVar(&o.what, "do", "rows", "rows, or: durability, corruption, files, churn, soak")
	flag.IntVar(&o.kills, "kills", 200, "durability: kills of the hub")
	flag.IntVar(&o.cuts, "cuts", 50, "durability: power cuts")
	flag.IntVar(&o.changes, "changes", 1000, "corruption: random changes of stored bytes")
	flag.IntVar(&o.faults, "faults", 120, "churn: kills of hub, agents and trainers")
	flag.Float64Var(&o.minutes, "minutes", 10, "churn and soak: how long")
	flag.Float64Var(&o.least, "least", 0.9, "churn: efficiency that must be reached")
	flag.IntVar(&o.machines, "machines", 8, fmt.Sprintf("churn: machines of the pool, %d at most", maxChurn))
	flag.IntVar(&o.share, "share", 100, "churn: chunks of a second of each machine in a round")
	flag.StringVar(&o.root, "root", ".", "the repository")
	flag.Parse()
	if err := work(o); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func work(o options) error {
	if o.what != "rows" {
		return other(o)
	}
	chosen, err := choose(rows(), o)
	if err != nil {
		return err
	}
	fmt.Printf("| row | part | fault | %s | seen | | s |\n|---|---|---|---|---|---|---|\n", map[bool]string{false: "expected", true: "mutation"}[o.mutate])
	if o.list {
		for _, r := range chosen {
			fmt.Println(result{row: r, skipped: "-"}.line(o.mutate))
		}
		return nil
	}
	dir, err := os.MkdirTemp("", "tensorturn-faults-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin, err := buildWithClock(o.root, dir)
	if err != nil {
		return err
	}
	began := time.Now()
	bad, skipped := 0, 0
	for r := range performAll(chosen, bin, o) {
		fmt.Println(r.line(o.mutate))
		if !r.good(o.mutate) {
			bad++
		}
		if r.skipped != "" {
			skipped++
		}
	}
	fmt.Printf("\n%d rows, %d good, %d bad, %d not run here, %.0f s\n", len(chosen), len(chosen)-bad-skipped, bad, skipped, time.Since(began).Seconds())
	if bad > 0 {
		return fmt.Errorf("%d rows are not as they should be", bad)
	}
	return nil
}

// other does what is no table.
func other(o options) error {
	if o.machines < 1 || o.machines > maxChurn {
		return fmt.Errorf("-machines %d: 1 to %d", o.machines, maxChurn)
	}
	dir, err := os.MkdirTemp("", "tensorturn-faults-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin, err := buildWithClock(o.root, dir)
	if err != nil {
		return err
	}
	switch o.what {
	case "durability":
		return durability(o, bin)
	case "soak":
		return soak(o, bin)
	case "churn":
		return churning(o, bin)
	case "corruption":
		return corruption(o, bin)
	case "files":
		return files(o, bin)
	}
	return fmt.Errorf("-do %s: there is no such thing", o.what)
}

// choose gives the rows that were asked for.
func choose(all []row, o options) ([]row, error) {
	var out []row
	want := map[int]bool{}
	for _, f := range strings.FieldsFunc(o.rows, func(r rune) bool { return r == ',' || r == ' ' }) {
		n, err := strconv.Atoi(f)
		if err != nil || n < 1 || n > len(all) {
			return nil, fmt.Errorf("there is no row %q: 1 to %d", f, len(all))
		}
		want[n] = true
	}
	for _, r := range all {
		if len(want) > 0 && !want[r.id] || o.quick && !r.quick {
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

// performAll runs the rows, some at a time, and gives their results in the order of the table.
func performAll(chosen []row, bin string, o options) <-chan result {
	out := make(chan result)
	results := make([]chan result, len(chosen))
	for i := range results {
		results[i] = make(chan result, 1)
	}
	go func() {
		defer close(out)
		for _, r := range results {
			out <- <-r
		}
	}()
	go func() {
		var together sync.RWMutex // rows that run alone hold it for themselves
		places := make(chan struct{}, max(1, o.parallel))
		var work sync.WaitGroup
		for i, r := range chosen {
			places <- struct{}{}
			work.Go(func() {
				defer func() { <-places }()
				if r.alone {
					together.Lock()
					defer together.Unlock()
				} else {
					together.RLock()
					defer together.RUnlock()
				}
				var talk bytes.Buffer
				got := perform(r, bin, o, &talk)
				if o.talk && !got.good(o.mutate) {
					fmt.Fprintf(os.Stderr, "--- row %d\n%s\n%v\n", r.id, talk.String(), got.err)
				}
				results[i] <- got
			})
		}
		work.Wait()
	}()
	return out
}

// buildWithClock builds the program with the clock that a file can shift: see cmd/tensorturn/clock_shifted.go.
func buildWithClock(root, dir string) (string, error) {
	return kit.Build(root, dir, "-tags", "shiftedclock")
}
