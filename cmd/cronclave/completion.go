package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/console"
)

func namesOf(cfg *config.Config) []string {
	names := make([]string, len(cfg.Jobs))
	for i, j := range cfg.Jobs {
		names[i] = j.Name
	}
	return names
}

// noJob returns the error for an unknown job. It suggests the most similar name.
func noJob(name string, known []string) error {
	return exitError{exitUsage, cluster.UnknownJob(name, known)}
}

func tomlFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return []cobra.Completion{"toml"}, cobra.ShellCompDirectiveFilterFileExt
}

// addCompletion disables file completion, except for the commands and flags that take a file.
func addCompletion(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	for flag, complete := range map[string]cobra.CompletionFunc{
		"config":     tomlFiles,
		"log-level":  cobra.FixedCompletions([]string{"trace", "debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp),
		"log-format": cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp),
	} {
		_ = root.RegisterFlagCompletionFunc(flag, complete) // no error, because the flag exists
	}
}

func addExamples(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for line, example := range map[string]string{
		"help":                  "cronclave help run",
		"completion":            "cronclave completion bash",
		"completion bash":       "source <(cronclave completion bash)",
		"completion zsh":        `cronclave completion zsh > "${fpath[1]}/_cronclave"`,
		"completion fish":       "cronclave completion fish > ~/.config/fish/completions/cronclave.fish",
		"completion powershell": "cronclave completion powershell | Out-String | Invoke-Expression",
	} {
		if cmd, _, err := root.Find(strings.Fields(line)); err == nil {
			cmd.Example = "  " + example
		}
	}
}

// completeJobs completes names of configured jobs, each name once: up to most names, or any number if most is not positive. If the configuration is faulty, it
// offers nothing, because a shell cannot show an error during completion.
func (a *app) completeJobs(most int) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		path, _ := a.configFile()
		cfg, err := config.Load(path, config.Options{KeepUnset: true})
		if err != nil || most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var offers []cobra.Completion
		for _, j := range cfg.Jobs {
			if strings.HasPrefix(j.Name, begun) && !slices.Contains(args, j.Name) {
				when := console.Scheduled(j.Schedule, j.After)
				if j.Everywhere {
					when += ", on every replica"
				}
				offers = append(offers, cobra.CompletionWithDesc(j.Name, cmp.Or(j.Description, when)))
			}
		}
		return offers, cobra.ShellCompDirectiveNoFileComp
	}
}
