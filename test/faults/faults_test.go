package main

import (
	"bytes"
	"flag"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"tensorturn/domain"
)

var program string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asTrainer { // this program is an owner's trainer as well
		beTrainer(os.Args[2:])
		return
	}
	flag.Parse()
	dir, err := os.MkdirTemp("", "tensorturn-faults-")
	if err == nil {
		defer os.RemoveAll(dir)
		program, err = buildWithClock("../..", dir)
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// The rows that take a few seconds. All thirty: make faults.
func TestQuickRows(t *testing.T) {
	o := options{quick: true, seed: 1, root: "../.."}
	chosen, err := choose(rows(), o)
	if err != nil || len(chosen) < 4 {
		t.Fatalf("%d quick rows, %v", len(chosen), err)
	}
	for _, r := range chosen {
		t.Run(r.fault, func(t *testing.T) {
			t.Parallel()
			var talk bytes.Buffer
			got := perform(r, program, o, &talk)
			if !got.good(false) {
				t.Errorf("%s\n%s\n%v", got.line(false), talk.String(), got.err)
			}
			t.Log(got.line(false))
		})
	}
}

// The table has thirty rows, and each says what is expected and what makes it fail.
func TestTable(t *testing.T) {
	all := rows()
	if len(all) != 30 {
		t.Errorf("%d rows", len(all))
	}
	for i, r := range all {
		if r.id != i+1 || r.part == "" || r.fault == "" || r.expect == "" || r.mutation == "" || r.run == nil {
			t.Errorf("row %d is not whole: %+v", i+1, r)
		}
	}
	if _, err := choose(all, options{rows: "0"}); err == nil {
		t.Error("row 0 is there")
	}
	if _, err := choose(all, options{rows: "31"}); err == nil {
		t.Error("row 31 is there")
	}
}

// A row that fails is told as one, also when it is only expected to.
func TestChurnHasALetterForEachMachine(t *testing.T) {
	for _, n := range []int{0, -1, maxChurn + 1} {
		if err := other(options{what: "churn", machines: n}); err == nil || !strings.Contains(err.Error(), "1 to 26") {
			t.Errorf("%d machines: %v", n, err)
		}
	}
	if names := churnNames(maxChurn); names[0] != "a" || names[maxChurn-1] != "z" {
		t.Errorf("the machines are %v", names)
	}
}

func TestVerdicts(t *testing.T) {
	bad := row{id: 1, run: func(w *world) { w.Fatalf("broken") }}
	fine := row{id: 2, run: func(w *world) { w.see("fine") }}
	away := row{id: 3, missing: func() string { return "needs wings" }}
	o := options{root: "../.."}
	for _, c := range []struct {
		row     row
		mutated bool
		want    string
		good    bool
	}{{bad, false, "FAIL", false}, {fine, false, "pass", true}, {bad, true, "found", true}, {fine, true, "MISSED", false}, {away, false, "not run", true}} {
		o.mutate = c.mutated
		got := perform(c.row, program, o, &bytes.Buffer{})
		if got.verdict(c.mutated) != c.want || got.good(c.mutated) != c.good || !strings.Contains(got.line(c.mutated), c.want) {
			t.Errorf("row %d: %s", c.row.id, got.line(c.mutated))
		}
	}
}

// What a loss of power leaves, by the rules of disk.
func TestLossOfPower(t *testing.T) {
	hexed := func(s string) string {
		var b strings.Builder
		for i := range len(s) {
			b.WriteString(`\x` + string("0123456789abcdef"[s[i]>>4]) + string("0123456789abcdef"[s[i]&15]))
		}
		return `"` + b.String() + `"`
	}
	open := func(path string, fd string) string {
		return "1 1.0 openat(AT_FDCWD, " + hexed(path) + ", O_RDWR|O_CREAT, 0600) = " + fd
	}
	trace := strings.Join([]string{
		open("/d/a", "3"), "1 1.1 pwrite64(3, " + hexed("first") + ", 5, 0) = 5", "1 1.2 fsync(3) = 0",
		"1 1.3 pwrite64(3, " + hexed("LATER") + ", 5, 5 <unfinished ...>", "2 1.4 lseek(9, 0, SEEK_SET) = 0", "1 1.5 <... pwrite64 resumed>) = 5",
		open("/d/b", "4"), "1 1.6 write(4, " + hexed("never synced") + ", 12) = 12",
	}, "\n") + "\n"
	calls, err := readTrace(strings.NewReader(trace))
	if err != nil || len(calls) != 7 {
		t.Fatalf("%d calls, %v", len(calls), err)
	}
	for _, c := range []struct {
		lost bool
		want map[string]string
	}{{false, map[string]string{"a": "first"}}, {true, map[string]string{}}} {
		d := newDisk("/d")
		for _, call := range calls {
			if err := d.apply(call, c.lost); err != nil {
				t.Fatal(err)
			}
		}
		dir := t.TempDir()
		if err := d.loss(nil, dir); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != len(c.want) {
			t.Errorf("%d files are left, want %v", len(entries), c.want)
		}
		for name, text := range c.want {
			if b, err := os.ReadFile(dir + "/" + name); err != nil || string(b) != text {
				t.Errorf("%s holds %q %v", name, b, err)
			}
		}
	}
}

// The ledger of seconds: every second of a slot that is there is booked once, under the right name.
func TestSecondsOfASlot(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }
	a := &account{sums: seconds{}, at: began, now: between, held: map[domain.ChunkID]float64{}}
	a.until(at(1), preparing)
	a.trained(at(4), map[domain.ChunkID]float64{1: 2})       // 1 s between, 1 s preparing, 2 s training
	a.until(at(5), noHub)                                    // the hub dies
	a.until(at(7), noLink)                                   // and is back
	a.trained(at(9), map[domain.ChunkID]float64{2: 2, 3: 2}) // 1 s waited for nothing: four of the last five were training
	a.until(at(9.5), sending)
	a.broke(at(10), starting) // killed in the middle
	a.away = true
	a.until(at(20), starting)
	a.away = false
	a.until(at(21), sending)
	a.until(at(22), turned)
	a.sums[counted] += a.held[1] + a.held[2]
	delete(a.held, 1)
	delete(a.held, 2)
	a.lose() // 3 was not adopted
	a.until(at(23), idle)
	a.rename(turned, others)
	a.flush()
	want := seconds{between: 1 + 1, preparing: 1, counted: 4, thrown: 2, torn: 0.5, sending: 0.5 + 1, starting: 1, others: 1}
	total := 0.0
	for k, v := range want {
		if math.Abs(a.sums[k]-v) > 1e-9 {
			t.Errorf("%s: %.2f s, want %.2f", k, a.sums[k], v)
		}
	}
	for _, v := range a.sums {
		total += v
	}
	if total != 13 { // 23 less the ten away
		t.Errorf("booked %.2f s of 13: %v", total, a.sums)
	}
}
