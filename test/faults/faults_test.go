package main

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/projections/goodput"
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

// What was counted is weighed against what each slot could have trained at its own speed, with and without the hub's absences. Kinds of
// no time are not printed, and an absence that has not ended stays open.
func TestWeigh(t *testing.T) {
	r := goodput.Report{Slots: []goodput.Row{{Connected: 100, Speed: 10}, {Connected: 60, Speed: 20}},
		Total: goodput.Row{Connected: 160, Seconds: map[goodput.Kind]float64{goodput.Counted: 120, goodput.Idle: 39.96, goodput.Torn: 0.04}}}
	c := churned{counted: 1520}
	c.weigh(r, 10, 16)
	if c.possible != 90*10+50*20 || c.efficiency != 0.8 || c.strict != 1520.0/2200 || c.alone != 1520.0/(16*140) {
		t.Errorf("%+v", c)
	}
	var b bytes.Buffer
	printSeconds(&b, r.Total)
	if s := b.String(); !strings.Contains(s, "| trained, counted | 120.0 | 0.7500 |\n| without work") || strings.Contains(s, "broken off") || !strings.HasSuffix(s, "| all | 160.0 | |\n") {
		t.Errorf("%s", s)
	}
	p := &presence{hubGone: []gap{{from: time.Unix(1, 0), to: time.Unix(2, 0)}}}
	p.off("x")
	if all := p.absences(map[string]domain.MachineID{"x": "m-1"}); len(all) != 2 || all[0].Machine != "m-1" || !all[0].To.IsZero() || all[1].Machine != "" || all[1].To.Unix() != 2 {
		t.Errorf("%+v", all)
	}
}
