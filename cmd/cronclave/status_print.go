package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

func (a *app) printStatus(st *status) error {
	leader := "nobody"
	if st.Leader != nil {
		leader = st.Leader.Replica
	}
	fmt.Fprintf(a.out, "namespace %s at %s, leader %s\n", st.Namespace, stamp(st.Now), oneLine(leader))
	table := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	if len(st.Replicas) > 0 {
		fmt.Fprintln(table, "\nREPLICA\tVERSION\tSTARTED\tSEEN\tCONFIG\tCLOCK\tRUNNING")
	}
	for _, r := range st.Replicas {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.12s\t%v\t%d\n", oneLine(r.Name), oneLine(r.Version), stamp(r.Started), ago(st.Now.Sub(r.Seen)), oneLine(r.ConfigDigest), r.clock(), r.Running)
	}
	fmt.Fprintf(table, "\nJOB\tSCHEDULE\tLAST\tLAST %d\tNEXT\tHELD BY\n", recentRuns)
	for _, j := range st.Jobs {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", oneLine(j.Name), oneLine(scheduled(j.Schedule, j.After)), oneLine(lastRun(j.Last)), outcomesOf(j.recent), nextOf(j), oneLine(heldBy(j.Holders)))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if err := printPauses(a.out, st.Jobs); err != nil {
		return err
	}
	for i, w := range st.Warnings {
		if i == 0 {
			fmt.Fprintln(a.out)
		}
		fmt.Fprintf(a.out, "warning: %s\n", strings.ReplaceAll(w.Message, "\n", "\n  ")) // which may have names from Redis in it
	}
	return nil
}

// scheduled tells people when a job runs.
func scheduled(schedule, after []string) string {
	if len(after) > 0 {
		return "after " + strings.Join(after, ", ")
	}
	return strings.Join(schedule, " | ")
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

// outcomesOf tells how often records have each outcome, the most frequent one first. Tries that were followed by others are no outcomes.
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

// ago is how long ago something was, in whole seconds.
func ago(d time.Duration) string { return fmt.Sprint(max(d, 0).Round(time.Second), " ago") }

// brief is the beginning of a reason, which may be the whole of what a program had to say: the history has it all.
func brief(reason string) string {
	return shortened(reason, 40)
}

// shortened is the first line of a text, with so many characters at most.
func shortened(text string, most int) string {
	line, _, _ := strings.Cut(text, "\n")
	if letters := []rune(line); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return line
}

func nextOf(j statusJob) string {
	if j.Next == nil {
		return "-"
	}
	return j.Next.Format("2006-01-02T15:04:05Z07:00")
}

func heldBy(holders []statusHolder) string {
	if len(holders) == 0 {
		return "-"
	}
	var names []string
	for _, h := range holders {
		names = append(names, fmt.Sprintf("%s/%d", h.Replica, h.Slot))
	}
	return strings.Join(names, ", ")
}
