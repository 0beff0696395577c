package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newForgetCommand(a *app) *cobra.Command {
	by := thisRequester()
	cmd := &cobra.Command{
		Use:   "forget REPLICA",
		Short: "Take a lost replica that will not come back off the list of problems",
		Long: `A replica whose registration expired, because it died or was cut off, is a problem for a day: status --check exits with 1 until it is
up again, it is forgotten, or as many replicas are up as [cluster].replicas expects. A replica that is up is not forgotten.`,
		Example: "  cronclave forget node-7 --reason 'the machine is gone'",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withOperator(cmd.Context(), func(o *operating) error {
				if err := o.Forget(cmd.Context(), args[0], by); err != nil {
					return err //nolint:wrapcheck // the error says that nothing was done
				}
				_, err := fmt.Fprintf(a.out, "forgot replica %s\n", args[0])
				return err //nolint:wrapcheck // the output says it
			})
		},
	}
	reasonFlag(cmd, &by)
	return cmd
}
