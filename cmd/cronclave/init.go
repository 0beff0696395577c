package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
)

// firstJobs is the configuration that init writes.
//
//go:embed init.toml
var firstJobs string

func newInitCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "init [PATH]",
		Short:   "Write a commented jobs.toml to start from",
		Example: "  cronclave init && cronclave run --embedded-redis",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: tomlFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := a.takePath(args); err != nil {
				return err
			}
			path, _ := a.configFile()
			return a.writeFirstJobs(path)
		},
	}
}

// writeFirstJobs writes the configuration to a new file. It never overwrites a file.
func (s streams) writeFirstJobs(path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // the file has no secrets, and other users may read it
	switch {
	case errors.Is(err, fs.ErrExist):
		return usageError("%s is there already; name another file: cronclave init PATH", path)
	case err != nil:
		return fmt.Errorf("write a configuration: %w", err)
	}
	_, err = f.WriteString(firstJobs)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write a configuration: %w", errors.Join(err, os.Remove(path))) // otherwise the next init would refuse the incomplete file
	}
	fmt.Fprintf(s.out, "wrote %[1]s; look at it, and try it without a Redis: cronclave run %[1]q --embedded-redis\n", path)
	return nil
}
