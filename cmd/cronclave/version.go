package main

import (
	_ "embed"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// version is set by the linker in releases.
var version = "dev"

// licenses has the licences of everything that is linked into the program. `go test ./cmd/cronclave -run TestLicenses -update` writes it.
//
//go:embed licenses.txt
var licenses string

func newVersionCommand(a *app) *cobra.Command {
	var asJSON, asked bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version, and that of the zone data", Args: cobra.NoArgs, Example: "  cronclave version",
		RunE: func(*cobra.Command, []string) error {
			if asked {
				_, err := io.WriteString(a.out, licenses)
				return err //nolint:wrapcheck // the error names the writer
			}
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
	cmd.Flags().BoolVar(&asked, "licenses", false, "print the licences of all that is linked into the program")
	return cmd
}
