package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/importer"
	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/internal/units"
)

func newImportCommand(a *app) *cobra.Command {
	var strict, system bool
	o := importer.Options{}
	cmd := &cobra.Command{
		Use:   "import SOURCE FILE...",
		Short: "Print a configuration for the jobs of another scheduler",
		Long: `Print TOML for the jobs of another scheduler. SOURCE is ` + strings.Join(importer.Sources(), ", ") + `.
FILE is a file, a folder, or - for the standard input. What cannot be carried without a change of meaning becomes comments: the original
line, and one reason. Values that look like secrets are not printed. docs/import.md has what becomes of each feature.`,
		Example: "  cronclave import crontab /var/spool/cron/crontabs/ann --timezone Europe/Berlin > ann.toml\n" +
			"  cronclave import crontab /etc/crontab /etc/cron.d --timezone Europe/Berlin\n" +
			"  systemctl cat backup.timer backup.service | cronclave import systemd - --timezone Europe/Berlin",
		Args: cobra.MinimumNArgs(2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return importer.Sources(), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Source = args[0]
			if cmd.Flags().Changed("system") {
				o.System = &system
			}
			return a.importJobs(cmd.Context(), o, args[1:], strict)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Dialect, "dialect", "debian", "whose rules a crontab follows: "+strings.Join(importer.Dialects(), ", "))
	flags.BoolVar(&system, "system", false, "crontabs have a field for the user, or with =false none (default: by the path, or if each line names a usual user)")
	flags.StringVar(&o.Timezone, "timezone", "", "the zone of times without one, such as Europe/Berlin (default: UTC, with a warning)")
	flags.BoolVar(&strict, "strict", false, "exit with 1 if something was not carried")
	_ = cmd.RegisterFlagCompletionFunc("dialect", cobra.FixedCompletions(importer.Dialects(), cobra.ShellCompDirectiveNoFileComp)) // no error, because the flag exists
	return cmd
}

// importJobs prints the configuration to stdout, and the counts and warnings to stderr.
func (a *app) importJobs(ctx context.Context, o importer.Options, paths []string, strict bool) error {
	if !slices.Contains(importer.Sources(), o.Source) {
		return usageError("%q is no source; the sources are %s", o.Source, strings.Join(importer.Sources(), ", "))
	}
	var files []importer.File
	var left []string
	for _, path := range paths {
		more, out, err := a.readImported(ctx, o.Source, path)
		if err != nil {
			return err
		}
		files, left = append(files, more...), append(left, out...)
	}
	result, err := importer.Convert(files, o)
	if err != nil {
		return exitError{exitUsage, err}
	}
	if _, err := io.WriteString(a.out, result.Text); err != nil {
		return err //nolint:wrapcheck // the error names the writer
	}
	for _, w := range result.Warnings {
		fmt.Fprintln(a.err, "cronclave: warning:", w)
	}
	if len(left) > 0 {
		fmt.Fprintf(a.err, "cronclave: left out: %s\n", strings.Join(left, ", "))
	}
	fmt.Fprintf(a.err, "cronclave: %s carried, %d not\n", units.Count(result.Carried, "job"), result.Refused)
	if strict && result.Refused > 0 {
		return exitError{code: exitFailed}
	}
	return nil
}

// maxImported bounds each file.
const maxImported = 16 << 20

// readImported reads a file, the files of a folder, or the standard input. left has the names in a folder that are not read: names that the source does not
// read, folders, and links that lead nowhere.
func (a *app) readImported(ctx context.Context, source, path string) (files []importer.File, left []string, err error) {
	if path == "-" {
		text, err := io.ReadAll(io.LimitReader(a.in, maxImported+1))
		if err == nil && len(text) > maxImported {
			err = fmt.Errorf("it has more than %d bytes", maxImported)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read the standard input: %w", err)
		}
		return []importer.File{{Name: "stdin", Text: string(text)}}, nil, nil
	}
	names := []string{path}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if names, left, err = importedNames(source, path); err != nil {
			return nil, nil, err
		}
	}
	for _, name := range names {
		target, err := filepath.EvalSymlinks(name)
		switch {
		case name != path && errors.Is(err, fs.ErrNotExist):
			left = append(left, name)
			continue
		case source == "systemd" && target == os.DevNull: // masked
			files = append(files, importer.File{Name: name})
			continue
		}
		text, err := safefile.Read(ctx, name, safefile.Policy{MaxBytes: maxImported})
		if err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", name, err)
		}
		files = append(files, importer.File{Name: name, Text: string(text)})
	}
	return files, left, nil
}

// debianNames is run-parts' rule, which Debian's cron applies to /etc/cron.d.
var debianNames = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// importedNames returns the files in a folder that the source reads, and the names that it leaves out. Drop-ins of systemd are one folder deeper.
func importedNames(source, folder string) (names, left []string, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, nil, fmt.Errorf("read the folder %s: %w", folder, err)
	}
	extensions := map[string][]string{
		"systemd": {".timer", ".service", ".conf"}, "kubernetes": {".yaml", ".yml", ".json"}, "yacron": {".yaml", ".yml"}, "dkron": {".json"},
		"cronicle": {".json", ".txt", ".gz", ".xyops"}, "ofelia": {".ini", ".conf"},
	}
	for _, entry := range entries {
		name := entry.Name()
		path := filepath.Join(folder, name)
		wanted := slices.Contains(extensions[source], filepath.Ext(name))
		if source == "crontab" {
			wanted = debianNames.MatchString(name)
		}
		switch {
		case entry.IsDir() && source == "systemd" && (strings.HasSuffix(name, ".timer.d") || strings.HasSuffix(name, ".service.d")):
			deeper, out, err := importedNames(source, path)
			if err != nil {
				return nil, nil, err
			}
			names, left = append(names, deeper...), append(left, out...)
		case entry.IsDir():
			left = append(left, name+"/")
		case wanted:
			names = append(names, path)
		default:
			left = append(left, name)
		}
	}
	return names, left, nil
}
