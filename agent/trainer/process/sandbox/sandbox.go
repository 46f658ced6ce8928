package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Sandbox holds programs with one backend. Its methods may be called at once from several goroutines.
type Sandbox struct {
	backend Backend
	bwrap   string // its path
	exe     string // this binary, for what runs within
	report  Report
}

// Choose takes the strongest backend of this machine that proves itself; dir is a folder of its own for the proofs. With
// none it still gives a Sandbox, which only limits; its report says why.
func Choose(ctx context.Context, dir string) *Sandbox {
	found, bwrap, why := available()
	exe, err := os.Executable()
	if err != nil {
		found, why = nil, append(why, err.Error())
	}
	best := &Sandbox{backend: None, exe: exe, report: Report{Backend: None}}
	for _, b := range found {
		s := &Sandbox{backend: b, bwrap: bwrap, exe: exe}
		if s.report = s.prove(ctx, dir); s.report.Full() {
			return s
		}
		why = append(why, s.report.String())
		if s.report.Holds() && best.backend == None {
			best = s
		}
	}
	if best.backend == None {
		best.report.Why = strings.Join(why, "; ")
	}
	return best
}

// Open is the sandbox that only limits: no --sandbox was asked for.
func Open() *Sandbox {
	return &Sandbox{backend: None, report: Report{Backend: None, Why: "not asked for"}}
}

// Only is Choose for one backend, for tests.
func Only(ctx context.Context, b Backend, dir string) *Sandbox {
	found, bwrap, why := available()
	exe, err := os.Executable()
	s := &Sandbox{backend: b, bwrap: bwrap, exe: exe, report: Report{Backend: b}}
	if err != nil || b != None && !slices.Contains(found, b) {
		s.report.Why = strings.Join(why, "; ")
		return s
	}
	s.report = s.prove(ctx, dir)
	return s
}

// Report says what the sandbox proved.
func (s *Sandbox) Report() Report { return s.report }

// Holds reports whether there is a sandbox at all.
func (s *Sandbox) Holds() bool { return s.backend != None && s.report.Holds() }

// Wrap gives the words that start command under the policy. Without a helper they are the command's own.
func (s *Sandbox) Wrap(p Policy, command []string) []string {
	helper := Helper()
	if helper == "" {
		return command
	}
	p.trim()
	switch s.backend {
	case Bubblewrap:
		limits := errand{Policy: Policy{Data: p.Data, File: p.File}}
		return line(helper, limits, bubblewrapLine(s.bwrap, p, command))
	case Landlock:
		return line(helper, errand{Policy: p, Restrict: true}, command)
	}
	return line(helper, errand{Policy: Policy{Data: p.Data, File: p.File}}, command)
}

// trim takes out doubles and everything beyond MaxPaths.
func (p *Policy) trim() {
	for _, list := range []*[]string{&p.Read, &p.Write, &p.Devices, &p.Hide} {
		var out []string
		for _, path := range *list {
			if path = filepath.Clean(path); filepath.IsAbs(path) && !slices.Contains(out, path) && len(out) < MaxPaths {
				out = append(out, path)
			}
		}
		*list = out
	}
}
