package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

// benchLimit ends a bench that hangs.
const benchLimit = 8 * time.Minute

// bench is one run of the command.
type bench struct {
	ctx    context.Context
	bin    string // the built product
	quick  bool
	talk   io.Writer
	report *report
}

// section is a part of the table that can be run alone.
type section struct {
	name string
	run  func(*bench, *bed)
}

var sections = []section{
	{"speeds", (*bench).speeds},
	{"merge", (*bench).merges},
	{"memory", (*bench).memory},
	{"log", (*bench).logs},
	{"start", (*bench).starts},
	{"blobs", (*bench).blobs},
	{"trainer", (*bench).trainers},
	{"torch", (*bench).besideTorch},
	{"serving", (*bench).serving},
}

func main() { os.Exit(command(os.Args[1:], os.Stdout, os.Stderr)) }

func command(args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	asJSON := f.Bool("json", false, "print one JSON object instead of the table")
	only := f.String("only", "", "sections to run, separated by commas: "+strings.Join(names(), ", "))
	quick := f.Bool("quick", false, "small sizes: shows that the bench works, not how fast anything is")
	bin := f.String("binary", "bin/tensorturn", "the built product")
	child := f.String("merge-child", "", "merge in this folder, print the peak memory, end: how the bench starts itself")
	start := f.String("start-child", "", "start a hub's service in this folder, print what it took, end")
	bare := f.String("bare-child", "", "answer HTTPS requests with the constant in this folder until standard input ends")
	if err := f.Parse(args); err != nil {
		return 2
	}
	if *child != "" {
		return mergeChild(*child, stdout, stderr)
	}
	if *bare != "" {
		return bareIn(*bare, os.Stdin, stderr)
	}
	if *start != "" {
		return startIn(*start, stdout, stderr)
	}
	chosen, err := choose(*only)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, benchLimit)
	defer cancel()
	b := &bench{ctx: ctx, bin: *bin, quick: *quick, talk: stderr, report: &report{Machine: thisMachine(), Date: time.Now().UTC(), Quick: *quick}}
	for _, s := range chosen {
		fmt.Fprintf(stderr, "measuring %s\n", s.name)
		b.section(s)
	}
	if *asJSON {
		err = b.report.json(stdout)
	} else {
		err = b.report.table(stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	if err != nil || len(b.report.Failed) > 0 || !b.quick && b.report.missed() > 0 {
		return 1
	}
	return 0
}

func names() []string {
	var ns []string
	for _, s := range sections {
		ns = append(ns, s.name)
	}
	return ns
}

func choose(only string) ([]section, error) {
	if only == "" {
		return sections, nil
	}
	wanted := strings.Split(only, ",")
	var chosen []section
	for _, s := range sections {
		if slices.Contains(wanted, s.name) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) != len(wanted) {
		return nil, fmt.Errorf("--only %s: the sections are %s", only, strings.Join(names(), ", "))
	}
	return chosen, nil
}

// section runs one section; its failure is part of the report and leaves the others alone.
func (b *bench) section(s section) {
	before := load()
	began := time.Now()
	if err := inBed(b.talk, func(d *bed) { s.run(b, d) }); err != nil {
		b.report.Failed = append(b.report.Failed, s.name+": "+err.Error())
	}
	b.report.Loads = append(b.report.Loads, sectionLoad{s.name, before, load(), time.Since(began).Seconds()})
}
