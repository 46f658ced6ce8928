// Command tensorturn is the one binary: hub, agent, and the client of a hub's API. One file per command; they wire
// packages together and decide nothing.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"tensorturn/agent/device"
	"tensorturn/agent/trainer/process/sandbox"
)

// version is set at link time.
var version = "dev"

func main() {
	if len(os.Args) > 1 && os.Args[1] == sandbox.HelperWord {
		os.Exit(sandbox.Main(os.Args[1:])) // the agent's own helper: it becomes an owner's program, so nothing else may have begun
	}
	if len(os.Args) > 1 && os.Args[1] == device.HelperWord {
		os.Exit(device.Main(os.Args[1:])) // another helper: it asks a driver that may hang
	}
	os.Exit(execute())
}

// execute runs the command line and gives the exit code. A first SIGINT or SIGTERM cancels the context, so that the
// hub drains and an agent contributes what it has; a second one ends the process.
func execute() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	t := newTerminal(os.Stdin, os.Stdout, os.Stderr)
	err := (&app{terminal: t}).execute(ctx)
	if err != nil && errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return exitInterrupted
	}
	return t.fail(err)
}
