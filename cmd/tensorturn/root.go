package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tensorturn/agent/doctor"
	"tensorturn/domain"
)

// app is what commands share: the terminal and the way to the hub.
type app struct {
	*terminal
	context string // path of operator.json
	verbose bool   // watching prints every event
	stream  bool   // watching prints every update as JSON
	refused error  // help was asked for a command that does not exist

	examine func(*doctor.Probes) // changes what the doctor looks with, in tests; may be nil
}

// execute runs the command line.
func (a *app) execute(ctx context.Context) error {
	err := newRoot(a).ExecuteContext(ctx)
	if err == nil {
		err = a.refused
	}
	return err
}

func newRoot(a *app) *cobra.Command {
	t := a.terminal
	root := &cobra.Command{
		Use:           "tensorturn",
		Short:         "train one model on all the machines you own",
		Long:          "tensorturn trains one model on all the machines one owner has, behind ordinary internet links.\n\n" + exitHelp,
		SilenceErrors: true, SilenceUsage: true, Version: version, Args: noSuchCommand, RunE: showHelp,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetOut(t.out)
	root.SetErr(t.err)
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(flagError)
	f := root.PersistentFlags()
	f.BoolVar(&t.json, "json", false, "print JSON on standard output: one object, or one line each for streams")
	f.BoolVarP(&t.quiet, "quiet", "q", false, "say nothing on standard error but errors")
	f.StringVar(&a.context, "context", contextPath(), "operator.json of the hub (or TENSORTURN_CONTEXT)")
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, got []string) {
		if c.HasSubCommands() && c.Flags().Parsed() { // "nonsense --help" is as wrong as "nonsense"
			if a.refused = noSuchCommand(c, c.Flags().Args()); a.refused != nil {
				return
			}
		}
		help(c, got)
	})
	root.AddCommand(
		hubCommand(a), agentCommand(a), tokenCommand(a), keyCommand(a), credentialCommand(a), machineCommand(a),
		runCommand(a), eventsCommand(a), webhookCommand(a), usageCommand(a), logCommand(a), modelCommand(a), doctorCommand(a), demoCommand(a), drillCommand(a), versionCommand(a),
	)
	return root
}

// examples are values of the kinds of flags, for those who gave something else.
var examples = map[string]string{
	"duration": "a time such as 90s, 15m or 36h", "int": "a whole number, such as 3", "int64": "a whole number, such as 3", "uint64": "a whole number, such as 3",
	"float64": "a number, such as 0.5", "bool": "nothing, or =false",
}

// flagError says in the flag's own words what is wrong with its value, and how one looks.
func flagError(c *cobra.Command, err error) error {
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return domain.Invalid(c.CommandPath(), err.Error(), "see: "+c.CommandPath()+" --help")
	}
	f := bad.GetFlag()
	if example, ok := examples[f.Value.Type()]; ok {
		return domain.Invalid(c.CommandPath(), fmt.Sprintf("--%s is %q", f.Name, domain.Clip(bad.GetValue(), domain.MaxNameLength)), "give "+example)
	}
	return domain.Invalid(c.CommandPath(), fmt.Sprintf("--%s: %v", f.Name, bad.Unwrap()), "see: "+c.CommandPath()+" --help")
}

// client opens the way to the hub.
func (a *app) client() (*client, error) {
	c, err := loadContext(a.context)
	if err != nil {
		return nil, err
	}
	return newClient(c)
}

// group is a command that only holds others.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: noSuchCommand, RunE: showHelp, SuggestionsMinimumDistance: 2}
	c.AddCommand(subs...)
	return c
}

func showHelp(c *cobra.Command, _ []string) error { return c.Help() }

// noSuchCommand refuses what is not a command of c, with the nearest one that is.
func noSuchCommand(c *cobra.Command, got []string) error {
	if len(got) == 0 {
		return nil
	}
	next := "see: " + c.CommandPath() + " --help"
	near := c.SuggestionsFor(got[0])
	for _, sub := range c.Commands() { // the opposite of a word is spelt like it: what a command says of itself goes first
		if slices.Contains(sub.SuggestFor, got[0]) {
			near = []string{sub.Name()}
		}
	}
	if len(near) > 0 {
		next = "did you mean: " + c.CommandPath() + " " + near[0] + "?"
	}
	return domain.Invalid(c.CommandPath(), fmt.Sprintf("there is no command %q", domain.Clip(got[0], 40)), next)
}

// args demands exactly the named arguments, and says which is missing.
func args(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, got []string) error {
		if len(got) < len(names) {
			return domain.Invalid(c.CommandPath(), names[len(got)]+" is missing", "usage: "+c.UseLine())
		}
		if len(got) > len(names) {
			return domain.Invalid(c.CommandPath(), "too many arguments: "+domain.Clip(got[len(names)], 80), "usage: "+c.UseLine())
		}
		return nil
	}
}
