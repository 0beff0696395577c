package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/console"
)

func newAuditCommand(a *app) *cobra.Command {
	var most int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "audit", Short: "Print the acts of users (trigger, cancel, pause, resume, exec, forget), newest first", Args: cobra.NoArgs, Example: "  cronclave audit -n 100",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if most < 1 {
				return usageError("-n %d: it must be at least 1", most)
			}
			return a.withOperator(cmd.Context(), func(o *operating) error {
				now, err := o.Now(cmd.Context())
				if err != nil {
					return err
				}
				acts, lost, err := o.Acts(cmd.Context(), most)
				switch {
				case err != nil:
					return err
				case lost != "":
					fmt.Fprintln(a.err, "cronclave: warning:", lost)
				}
				if asJSON {
					return a.printJSON(acts)
				}
				console.Printer{Out: a.out}.Acts(now, acts)
				return nil
			})
		},
	}
	cmd.Flags().IntVarP(&most, "number", "n", 20, "how many acts, 1,000 at most")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
