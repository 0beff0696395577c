package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/internal/dial"
	"github.com/cronclave/cronclave/internal/notify"
)

func newNotifyCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "notify", Short: "Try the targets of notifications", Args: cobra.NoArgs, Example: "  cronclave notify test oncall",
		RunE: func(*cobra.Command, []string) error { return usageError("say what to do: cronclave notify test NAME") },
	}
	test := &cobra.Command{
		Use:   "test NAME",
		Short: "Send a test event to a target, and say what came back and what it proves",
		Long: `Send an event with the name test to [notify.NAME], once and from this machine, whatever the target's on has. Other machines may reach
the target in another way, so try it where replicas run. The exit code is 1 if the target refuses the event, 69 if it gives no answer or asks to come back later.

A ping goes to the check of the first job with the target: as a log entry to healthchecks, as a success to the other services.`,
		Example: "  cronclave notify test oncall",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: a.completeTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			a.trust = trustOfRoot()
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			target, known := cfg.Notify[args[0]]
			if !known {
				return unknownTarget(args[0], cfg)
			}
			return a.testTarget(cmd.Context(), cfg, target, asJSON)
		},
	}
	test.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(test)
	return cmd
}

// unknownTarget returns the error for a name that no target has. It suggests the most similar name.
func unknownTarget(name string, cfg *config.Config) error {
	known := slices.Sorted(maps.Keys(cfg.Notify))
	switch near := schema.Nearest(name, known); {
	case near != "":
		return usageError("no target %q; did you mean %q?", name, near)
	case len(known) == 0:
		return usageError("no target %q: the configuration has no [notify.NAME]", name)
	}
	return usageError("no target %q; there are: %s", name, strings.Join(known, ", "))
}

// tested is the JSON output of notify test.
type tested struct {
	Target  string `json:"target"`
	Kind    string `json:"kind"`
	Verdict string `json:"verdict"` // "done", "never", "later" or "unknown"
	Answer  string `json:"answer"`
	Proves  string `json:"proves,omitempty"`
}

func (a *app) testTarget(ctx context.Context, cfg *config.Config, target config.Notify, asJSON bool) error {
	dialer := dial.New(dial.Config{})
	defer dialer.Close()
	sender, err := notify.NewSender(target, notify.SenderConfig{Version: programVersion(), Trust: a.trust, Dial: dialer.DialContext, Output: a.err})
	if err != nil {
		return err
	}
	result := sender.Send(ctx, testMessage(cfg, target))
	words := map[notify.Verdict]string{notify.Done: "done", notify.Never: "never", notify.Later: "later", notify.Unknown: "unknown"}
	shown := tested{Target: target.Name, Kind: target.Kind, Verdict: words[result.Verdict], Answer: result.Answer}
	if result.Verdict == notify.Done {
		shown.Proves = notify.Proves(target.Kind)
	}
	if asJSON {
		if err := a.printJSON(shown); err != nil {
			return err
		}
	}
	switch result.Verdict {
	case notify.Done:
		if !asJSON {
			fmt.Fprintf(a.out, "%s: %s. %s\n", target.Name, result.Answer, shown.Proves)
		}
		return nil
	case notify.Never:
		advice := ""
		if result.Gone && target.Kind != "command" {
			advice = "; the target does not exist, or its token is wrong"
		}
		return fmt.Errorf("target %s refused the event: %s%s", target.Name, result.Answer, advice)
	case notify.Unknown:
		return exitError{exitUnavailable, fmt.Errorf("target %s may have taken the event: %s", target.Name, result.Answer)}
	}
	return exitError{exitUnavailable, fmt.Errorf("target %s did not take the event now: %s", target.Name, result.Answer)}
}

// testMessage returns the event `test`. Only a ping is about a job, because the URL of a check may contain the name of its job.
func testMessage(cfg *config.Config, target config.Notify) notify.Message {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	e := notify.Event{ID: hex.EncodeToString(id), Name: notify.Test, At: time.Now(), Text: fmt.Sprintf("test of the target %s by %s", target.Name, thisRequester().By)}
	for _, j := range cfg.Jobs {
		if target.Kind == "ping" && slices.Contains(j.Notify, target.Name) {
			e.Job = cmp.Or(e.Job, j.Name)
		}
	}
	return notify.Message{Namespace: cfg.Namespace, Events: []notify.Event{e}, Link: cfg.Server.URL}
}

func (a *app) completeTargets(_ *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	path, _ := a.configFile()
	cfg, err := config.Load(path, config.Options{KeepUnset: true})
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var offers []cobra.Completion
	for _, name := range slices.Sorted(maps.Keys(cfg.Notify)) {
		if strings.HasPrefix(name, begun) {
			offers = append(offers, cobra.CompletionWithDesc(name, cfg.Notify[name].Kind))
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp
}
