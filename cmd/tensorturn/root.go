package main

import (
	"github.com/spf13/cobra"

	"tensorturn/domain"
)

// app is what commands share: the terminal and the way to the hub.
type app struct {
	*terminal
	context string // path of operator.json
}

func newRoot(t *terminal) *cobra.Command {
	a := &app{terminal: t}
	root := &cobra.Command{
		Use:           "tensorturn",
		Short:         "train one model on all the machines you own",
		Long:          "tensorturn trains one model on all the machines one owner has, behind ordinary internet links.\n\n" + exitHelp,
		SilenceErrors: true, SilenceUsage: true, Version: version,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetOut(t.out)
	root.SetErr(t.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return domain.Invalid(c.CommandPath(), err.Error(), "see: "+c.CommandPath()+" --help")
	})
	f := root.PersistentFlags()
	f.BoolVar(&t.json, "json", false, "print one JSON object on standard output")
	f.BoolVarP(&t.quiet, "quiet", "q", false, "say nothing on standard error but errors")
	f.StringVar(&a.context, "context", contextPath(), "operator.json of the hub (or TENSORTURN_CONTEXT)")
	root.AddCommand(
		hubCommand(a), agentCommand(a), tokenCommand(a), credentialCommand(a), machineCommand(a),
		runCommand(a), logCommand(a), modelCommand(a), demoCommand(a),
	)
	return root
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
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(subs...)
	return c
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
