package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// version is set by the linker.
var version = "dev"

func newVersionCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version, and that of the zone data", Args: cobra.NoArgs, Example: "  cronclave version",
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version  string `json:"version"`
				ZoneData string `json:"zone_data"`
			}{strings.TrimPrefix(version, "v"), cronspec.BuiltIn().Version()}
			if asJSON {
				return a.printJSON(v)
			}
			fmt.Fprintf(a.out, "cronclave %s\nzone data %s\n", v.Version, v.ZoneData)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
