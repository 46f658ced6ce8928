package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"time"
)

// experiment is one entry of the list.
type experiment struct {
	id    string
	title string
	run   func(*lab) error
}

// experiments is the list, in the order in which they run and stand in RESULTS.md. One file each.
func experiments() []experiment {
	return []experiment{
		{"E1", "one model on four machines against data parallel and one machine, equal tokens", tokenGap},
		{"E2", "four machines against one, equal time", equalTime},
		{"E3", "ten and forty times fewer merges", fewerMerges},
		{"E4", "bytes on the wire against the formula", wire},
		{"E5", "codecs up and down against fp32", codecs},
		{"E5n", "a code that loses for good (negative control)", blunt},
		{"E6", "machines of speeds 1:2:4:8: equal shares against leases", leases},
		{"E6w", "weights of deltas: leases from one pool, and fixed shards", deltaWeights},
		{"E7", "three in ten deltas lost", deaths},
		{"E9", "inner optimizers that begin anew each round (negative control)", forgetful},
		{"E11", "a machine that sends rubbish", attackers},
		{"E13", "an ensemble of five against its mean member: digits", ensembleGain},
		{"E13n", "averaging independent members' weights (negative control)", soup},
	}
}

// limit ends a set of experiments that hangs.
const limit = 60 * time.Minute

func main() { os.Exit(command(os.Args[1:], os.Stdout, os.Stderr)) }

// command gives the exit status: 0 when every threshold held, 1 when one was missed or could not be measured.
func command(args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("experiments", flag.ContinueOnError)
	f.SetOutput(stderr)
	only := f.String("only", "", "experiments to run, separated by commas: "+strings.Join(ids(), ", "))
	quick := f.Bool("quick", false, "few repetitions: shows that the experiments work, not what holds")
	resume := f.String("resume", "", "a file to keep what is trained in, and to go on from after an interruption")
	write := f.String("write", "", "the RESULTS.md whose blocks to rewrite")
	if err := f.Parse(args); err != nil {
		return 2
	}
	chosen, err := choose(*only)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	failed, ended, shared := 0, 0, newBench()
	if *resume != "" {
		if err := shared.resume(*resume); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
	}
	for _, e := range chosen {
		l := &lab{ctx: ctx, quick: *quick, out: stdout, bench: shared}
		text, ok := l.do(e)
		if !ok {
			failed++
		}
		if l.err == nil {
			ended++
		}
		if *write != "" && l.err == nil {
			if err := rewrite(*write, e.id, text); err != nil {
				fmt.Fprintln(stderr, err)
				return 1
			}
		}
	}
	if ended == len(chosen) {
		if err := shared.forget(); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
	}
	if failed > 0 {
		fmt.Fprintf(stderr, "%d of %d experiments failed\n", failed, len(chosen))
		return 1
	}
	return 0
}

func ids() (list []string) {
	for _, e := range experiments() {
		list = append(list, e.id)
	}
	return list
}

func choose(only string) ([]experiment, error) {
	all := experiments()
	if only == "" {
		return all, nil
	}
	var chosen []experiment
	for _, id := range strings.Split(only, ",") {
		i := slices.IndexFunc(all, func(e experiment) bool { return strings.EqualFold(e.id, strings.TrimSpace(id)) })
		if i < 0 {
			return nil, fmt.Errorf("there is no experiment %q: use %s", id, strings.Join(ids(), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// machine names what the figures were measured on.
func machine() string {
	return fmt.Sprintf("%s/%s, %d processors, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}
