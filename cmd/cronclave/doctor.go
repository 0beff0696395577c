package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/redisconn"
)

func newDoctorCommand(a *app) *cobra.Command {
	var asJSON bool
	var layout string
	cmd := &cobra.Command{
		Use:   "doctor [URL]",
		Short: "Judge a Redis-like server: what it is, how it is set, which promises hold on it",
		Long: `Judge the Redis of URL, --redis, CRONCLAVE_REDIS or the configuration within two seconds: settings, clock, rights of its user, scripts,
messages, acknowledgements and addresses; then which promises (P1 to P9, docs/guarantees.md) hold there, and what to change. Of a
quorum it judges each master. It needs no CONFIG, and writes only keys of the namespace that it deletes again.

Signs: ✗ a promise does not hold, or a person must act; ! a cost; · a limit of every Redis of this kind. Exit code 0: all promises hold,
perhaps at a cost. 1: there is a ✗, or Redis hides a setting. 69: Redis can't be reached.`,
		Example: "  cronclave doctor redis://10.0.0.5:6379/0\n  cronclave doctor -c /etc/cronclave/jobs.toml --json",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && a.redisURL != "" {
				return usageError("a URL and --redis name the same: leave one of them out")
			}
			if layout != "" && layout != "wide" {
				return usageError("-o %q: it must be wide", layout)
			}
			if len(args) > 0 {
				a.redisURL = args[0]
			}
			return a.printDiagnosis(cmd.Context(), layout == "wide", asJSON)
		},
	}
	cmd.Flags().StringVarP(&layout, "format", "o", "", "wide: nothing cut to fit 100 characters")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) printDiagnosis(ctx context.Context, wide, asJSON bool) error {
	cfg, _, err := a.loadIfAny()
	if err != nil {
		return err
	}
	conn, err := a.openRedis(cfg)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is under way
	d := conn.Diagnose(ctx, cfg.Namespace)
	if asJSON {
		err = a.printJSON(d)
	} else {
		var text strings.Builder
		console.Printer{Out: &text, Colour: a.useColour(), Wide: wide}.Diagnosis(d)
		_, err = io.WriteString(a.out, text.String())
	}
	switch {
	case err != nil:
		return fmt.Errorf("print the judgement: %w", err)
	case d.Verdict == redisconn.VerdictUnreachable:
		return exitError{code: exitUnavailable}
	case d.Verdict == redisconn.VerdictFault:
		return exitError{code: exitFailed}
	}
	return nil
}
