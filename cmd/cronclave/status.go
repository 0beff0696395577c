package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
)

// recentRuns is of how many ticks and runs of each job the text counts the outcomes.
const recentRuns = 10

func newStatusCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Print the replicas, the leader, the jobs, and warnings",
		Example: "  cronclave status --redis redis://10.0.0.5:6379/0 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.openOperator(cmd.Context())
			if err != nil {
				return err
			}
			defer o.close()
			req := operator.StatusRequest{Recent: recentRuns}
			if asJSON {
				req.Recent = 1
			}
			st, err := o.Status(cmd.Context(), req)
			switch {
			case err != nil:
				return o.exit(err)
			case asJSON:
				return a.printJSON(st)
			}
			return a.printStatus(st)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (s streams) printStatus(st *operator.Status) error {
	leader := "nobody"
	if st.Leader != nil {
		leader = st.Leader.Replica
	}
	fmt.Fprintf(s.out, "namespace %s at %s, leader %s\n", st.Namespace, stamp(st.Now), oneLine(leader))
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	if len(st.Replicas) > 0 {
		fmt.Fprintln(table, "\nREPLICA\tVERSION\tSTARTED\tSEEN\tCONFIG\tCLOCK\tRUNNING")
	}
	for _, r := range st.Replicas {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.12s\t%v\t%d\n", oneLine(r.Name), oneLine(r.Version), stamp(r.Started), ago(st.Now.Sub(r.Seen)), oneLine(r.ConfigDigest), r.Clock(), r.Running)
	}
	fmt.Fprintf(table, "\nJOB\tSCHEDULE\tLAST\tLAST %d\tNEXT\tHELD BY\n", recentRuns)
	for _, j := range st.Jobs {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", oneLine(j.Name), oneLine(scheduled(j.Schedule, j.After)), oneLine(lastRun(j.Last)), outcomesOf(j.Recent), nextOf(j), oneLine(heldBy(j.Holders)))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if err := printPauses(s.out, st.Jobs); err != nil {
		return err
	}
	for i, w := range st.Warnings {
		if i == 0 {
			fmt.Fprintln(s.out)
		}
		fmt.Fprintf(s.out, "warning: %s\n", strings.ReplaceAll(w.Message, "\n", "\n  ")) // which may have names from Redis in it
	}
	return nil
}

func lastRun(r *journal.Record) string {
	if r == nil {
		return "-"
	}
	at := askedTick(*r)
	if r.Tick.IsZero() {
		at = stamp(whenOf(*r)) + " " + at
	}
	return oneLine(at + " " + r.Outcome + " " + brief(r.Reason) + ofTries(*r))
}

// outcomesOf counts the records of each outcome, the most frequent one first. Tries that were followed by others are no outcomes.
func outcomesOf(records []journal.Record) string {
	if len(records) == 0 {
		return "-"
	}
	counts, retried := map[string]int{}, 0
	for _, r := range records {
		if r.Retried {
			retried++
			continue
		}
		counts[r.Outcome]++
	}
	outcomes := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, outcome := range outcomes {
		outcomes[i] = fmt.Sprintf("%d %s", counts[outcome], outcome)
	}
	if retried > 0 {
		outcomes = append(outcomes, fmt.Sprintf("%d retried", retried))
	}
	return strings.Join(outcomes, ", ")
}

// brief is the beginning of a reason, which may be the whole of what a program had to say: the history has it all.
func brief(reason string) string {
	return operator.FirstLine(reason, 40)
}

func nextOf(j operator.Job) string {
	if j.Next == nil {
		return "-"
	}
	return j.Next.Format("2006-01-02T15:04:05Z07:00")
}

func heldBy(holders []operator.Holder) string {
	if len(holders) == 0 {
		return "-"
	}
	var names []string
	for _, h := range holders {
		names = append(names, fmt.Sprintf("%s/%d", h.Replica, h.Slot))
	}
	return strings.Join(names, ", ")
}
