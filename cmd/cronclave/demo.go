package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/demo"
)

func newDemoCommand(a *app) *cobra.Command {
	length, yes := time.Minute, false
	cmd := &cobra.Command{
		Use:   "demo [FILE]",
		Short: "Watch three replicas share a schedule; one is killed, and its job taken over",
		Long: `Starts three replicas, processes of their own, and an embedded Redis, and shows who wins which tick with which
token. A replica that runs a job is killed with SIGKILL; the next tick of the job runs elsewhere, with a
greater token. It ends by itself, with a summary that is counted from what the jobs wrote. Ctrl-C ends it before.

With a FILE its commands really run. One replica is killed during a run; that command goes on until it or the
demo ends. The file's [redis] is ignored.`,
		Example: "  cronclave demo --for 30s",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: tomlFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range []string{"config", "redis", "namespace", "log-level", "log-format"} {
				if cmd.Flags().Changed(name) {
					return usageError("demo takes no --%s: it brings all it needs; a FILE is named as in: cronclave demo FILE --yes", name)
				}
			}
			if length < time.Second || length > demo.Longest {
				return usageError("--for %v: it must be from 1s to %v", length, demo.Longest)
			}
			if len(args) == 0 {
				return a.runDemo(cmd.Context(), "", length)
			}
			if !yes {
				return usageError("demo %s runs the commands of that file, and kills a replica while it runs one of them: add --yes if you mean it", args[0])
			}
			return a.runDemo(cmd.Context(), args[0], length)
		},
	}
	durationFlag(cmd.Flags(), &length, "for", "how long it lasts")
	cmd.Flags().BoolVar(&yes, "yes", false, "really run the commands of FILE")
	return cmd
}

// runDemo runs a demo with the configuration at path, or with the built-in one if path is "".
func (a *app) runDemo(ctx context.Context, path string, length time.Duration) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, which the replicas run: %w", err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	ctx, done := console.WhileWritable(ctx, a.out)
	defer done()
	err = demo.Run(ctx, demo.Config{Out: a.out, Path: path, Length: length, Program: program, Signals: signals,
		Colour: a.useColour()})
	var faults config.Faults
	switch {
	case err == nil, errors.As(err, &faults):
		return err
	case errors.Is(err, demo.ErrUnsuitable):
		return exitError{exitUsage, err}
	case errors.Is(err, demo.ErrBroken):
		return exitError{code: exitFailed}
	}
	return exitError{exitFailed, err}
}

// newDemoWorkCommand returns the command that the jobs of the demo execute.
func newDemoWorkCommand(a *app) *cobra.Command {
	var length time.Duration
	cmd := &cobra.Command{
		Use:    "demo-work",
		Short:  "A job of the demo: says when it starts and when it ends",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := demo.Work(cmd.Context(), length)
			switch {
			case errors.Is(err, demo.ErrNoDemo):
				return exitError{exitUsage, err}
			case err != nil:
				return exitError{exitFailed, err}
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&length, "for", 0, "how long it lasts")
	return cmd
}
