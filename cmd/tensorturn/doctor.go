package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"tensorturn/agent/doctor"
	"tensorturn/broker/health"
	"tensorturn/broker/identity"
	"tensorturn/domain"
)

// doctorOptions are what an owner tells the doctor.
type doctorOptions struct {
	dir, hub         string
	token, tokenFile string
	python           string
	sandbox          bool
	bundle           string
	logs             []string
}

func doctorCommand(a *app) *cobra.Command {
	var o doctorOptions
	c := &cobra.Command{Use: "doctor", Short: "find what hinders this machine's agent or hub, with the fix", Args: args(),
		Long: "Looks at the folder of an agent or of a hub, at the way between them, and at the machine; it changes nothing. Each finding has a\n" +
			"code that keeps its meaning. Before joining: doctor --hub URL --token-file FILE tries the way and the token, and uses nothing of it.\n\n" +
			"exit codes: 0 healthy (notes hinder nothing), 1 something hinders or could not be found out, others as everywhere",
		RunE: func(c *cobra.Command, _ []string) error { return a.doctor(c.Context(), o) }}
	f := c.Flags()
	f.StringVar(&o.dir, "dir", "", "folder of the agent or hub (default: the usual ones that are there)")
	f.StringVar(&o.hub, "hub", "", "https URL of a hub to look for, of a machine that has not joined")
	f.StringVar(&o.token, "token", "", "join token to try (visible to other users of this machine while the command runs)")
	f.StringVar(&o.tokenFile, "token-file", "", "file that holds the join token, - for standard input")
	f.StringVar(&o.python, "python", "", "interpreter of your own scripts, as given to agent start")
	f.BoolVar(&o.sandbox, "sandbox", false, "scripts shall run in a sandbox, as with agent start --sandbox: none is then a problem")
	f.StringVar(&o.bundle, "bundle", "", "also write a support archive (tar.gz) without secrets to this file")
	f.StringArrayVar(&o.logs, "log", nil, "a log file whose end goes into the archive; may be repeated")
	return c
}

// examined is the JSON of the command.
type examined struct {
	Healthy  bool            `json:"healthy"`
	Examined []doctor.Report `json:"examined"`
	Bundle   string          `json:"bundle,omitempty"`
}

func (a *app) doctor(ctx context.Context, o doctorOptions) error {
	patients, err := o.patients()
	if err != nil {
		return err
	}
	out := examined{Healthy: true, Examined: []doctor.Report{}}
	for _, p := range patients {
		r := doctor.Examine(ctx, p, a.probes(p))
		out.Examined, out.Healthy = append(out.Examined, r), out.Healthy && r.Healthy
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	var unwritten error
	if o.bundle != "" {
		if unwritten = writeBundle(o, patients, out.Examined); unwritten == nil {
			out.Bundle = o.bundle
		}
	}
	if a.json {
		if err := a.object(out); err != nil {
			return err
		}
	} else {
		a.showExamined(out)
	}
	if out.Bundle != "" && len(o.logs) == 0 {
		a.say("what hub and agent log goes to standard error and is not in the archive: add a file of it with --log FILE")
	}
	if unwritten != nil {
		a.json = false // the object above is the answer; the error goes to standard error only
		return unwritten
	}
	if !out.Healthy {
		return withExit(exitFailure, nil) // all is said
	}
	return nil
}

// showExamined prints a line for each check, and what to do below it in the same line.
func (a *app) showExamined(x examined) {
	problems := 0
	for _, r := range x.Examined {
		a.say("%s", strings.TrimSpace(fmt.Sprintf("%s in %s %s", r.Kind, r.Dir, r.Hub)))
		for _, f := range r.Findings {
			name := string(f.Code)
			if name == "" || f.State == doctor.Skipped {
				name = f.Check
			}
			line := fmt.Sprintf("%-8s %s: %s", f.State, name, f.Says)
			if f.Fix != "" {
				line += "; fix: " + f.Fix
			}
			a.print("%s", clean(strings.ReplaceAll(line, "\n", " ")))
			if f.State == doctor.Problem || f.State == doctor.Unknown {
				problems++
			}
		}
	}
	if x.Bundle != "" {
		a.say("support archive without secrets: %s; look into it before you send it", x.Bundle)
	}
	switch problems {
	case 0:
		a.say("nothing hinders this machine")
	case 1:
		a.say("1 thing hinders this machine")
	default:
		a.say("%d things hinder this machine", problems)
	}
}

// patients finds what the folder belongs to. Without --dir these are the usual folders that are there.
func (o doctorOptions) patients() ([]doctor.Patient, error) {
	dirs := []string{o.dir}
	if o.dir == "" {
		dirs = nil
		for _, d := range []string{agentDir(), hubDir()} {
			if _, err := os.Stat(d); err == nil {
				dirs = append(dirs, d)
			}
		}
		if len(dirs) == 0 || o.hub != "" {
			dirs = []string{agentDir()}
		}
	}
	var out []doctor.Patient
	for _, dir := range dirs {
		p, err := o.patient(dir)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// isHub reports whether the folder is a hub's: it holds the hub's keys, whole or not.
func isHub(dir string) bool {
	for _, f := range []string{"operator.json", "keys"} {
		if _, err := os.Stat(filepath.Join(dir, f)); err == nil {
			return true
		}
	}
	return false
}

func (o doctorOptions) patient(dir string) (doctor.Patient, error) {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	if _, err := os.Stat(filepath.Join(dir, agentKeysFile)); err != nil && isHub(dir) {
		return hubPatient(dir), nil
	}
	p := doctor.Patient{Kind: doctor.Agent, Dir: dir, MinFree: doctor.AgentFree, Interpreter: o.python, WantSandbox: o.sandbox}
	if _, err := os.Stat(dir); os.IsNotExist(err) {
		p.Missing = true
	}
	if o.token != "" || o.tokenFile != "" {
		var err error
		if p.Token, err = readToken(o.token, o.tokenFile); err != nil {
			return p, err
		}
	}
	keys, err := identity.LoadAgentKeys(filepath.Join(dir, agentKeysFile))
	switch {
	case domain.KindOf(err) == domain.KindNotFound:
	case err != nil:
		p.Bad = err
	case keys.Enrolled():
		p.Joined, p.Hub, p.CA, p.Credential = true, keys.Hub, keys.CA, keys.Credential
		p.Proof = proofOfSelf(keys)
	default:
		p.Hub = keys.Hub
	}
	if o.hub != "" && !p.Joined {
		p.Hub = strings.TrimRight(o.hub, "/")
		if err := identity.CheckHubURL(p.Hub); err != nil {
			return p, err
		}
	}
	if o.hub != "" && p.Joined && strings.TrimRight(o.hub, "/") != p.Hub {
		return p, domain.Conflict("doctor", dir+" has joined "+p.Hub, "leave out --hub, or name an empty folder with --dir")
	}
	return p, nil
}

func hubPatient(dir string) doctor.Patient {
	p := doctor.Patient{Kind: doctor.Hub, Dir: dir, MinFree: health.DefaultMinFree}
	c, err := loadContext(filepath.Join(dir, "operator.json"))
	if err != nil {
		p.Bad = err
		return p
	}
	p.Hub, p.CA, p.OperatorKey = strings.TrimRight(c.URL, "/"), []byte(c.CA), c.Key
	last, err := readStart(dir)
	if err != nil {
		p.Bad = err
		return p
	}
	p.Start = "tensorturn hub start --dir " + dir
	if last.Flags == nil && p.Hub != "" { // it last ran before starts were kept: at the least its machines shall find it
		p.Start += " --public-url " + p.Hub
	}
	return p
}
