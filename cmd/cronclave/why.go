package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/console"
)

func newWhyCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "why JOB TIME",
		Short: "Explain what became of a job at an instant, and for which reason",
		Long: `Explain what became of a job at an instant: that it is no tick of the job, and for which reason, or how the tick ended, on which replica, with which
token, and for which reason it did not run. TIME is RFC 3339, or a date and a time by the clock of the job's zone.`,
		Example: "  cronclave why nightly-backup '2026-11-01 03:00'",
		Args:    cobra.MinimumNArgs(2),

		ValidArgsFunction: a.completeJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 3 { // a TIME without quotes is two arguments: date and time
				return usageError("why takes a JOB and a TIME")
			}
			return a.withOperator(cmd.Context(), func(o *operating) error {
				story, err := o.Why(cmd.Context(), args[0], strings.Join(args[1:], " "))
				switch {
				case err != nil:
					return err
				case asJSON:
					return a.printJSON(story)
				}
				console.Printer{Out: a.out, Colour: a.useColour()}.Story(story)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
