package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/units"
)

// factIndent is the column at which the values of a job's facts begin, after their names.
const factIndent = 13

// Job prints all details of one job in a status, and the problems of the cluster.
func (p Printer) Job(st *cluster.Status, j cluster.Job) {
	p.printLine(jobMark(j), fmt.Sprintf("job %s: %s", p.cutText(j.Name, 64), lastText(st, j.Last)+conditionsText(j)))
	p.printProblems(st)
	if len(st.Problems) > 0 {
		fmt.Fprintln(p.Out)
	}
	fact := func(name, text string) {
		for n, line := range p.splitLines(text, factIndent) {
			if n > 0 {
				name = ""
			}
			fmt.Fprintf(p.Out, "  %-10s %s\n", name, line)
		}
	}
	fact("schedule", fmt.Sprintf("%s (%s)", Scheduled(j.Schedule, j.After), j.Timezone))
	if j.Next != nil {
		fact("next", fmt.Sprintf("%s, %s", p.formatTime(*j.Next), inText(st.Now, *j.Next)))
	} else {
		fact("next", nextText(st, j))
	}
	if j.UsualMS != nil {
		fact("usually", "takes "+(time.Duration(*j.UsualMS)*time.Millisecond).String())
	}
	if j.Paused {
		fact("paused", pauseOf(p, st, j))
	}
	if len(j.Tags) > 0 {
		fact("tags", strings.Join(j.Tags, ", "))
	}
	if len(j.Where) > 0 {
		fact("where", cluster.FormatLabels(j.Where))
	}
	fact("slots", fmt.Sprintf("%d of %d held", len(j.Holders), max(j.Parallel, 1)))
	for _, h := range j.Holders {
		tick := "outside the schedule"
		if h.Tick != nil {
			tick = "tick " + p.formatTime(*h.Tick)
		}
		fact("", fmt.Sprintf("%s/%d: %s, token %d, lease until %s unless it is renewed", h.Replica, h.Slot, tick, h.Token, p.formatTime(h.Expires)))
	}
	for _, pool := range st.Pools {
		if pool.Name == j.Pool {
			fact("pool", fmt.Sprintf("%s: %d of %d slots held, %d waiting", pool.Name, len(pool.Holders), pool.Slots, pool.Waiters))
		}
	}
	p.printRecent(st, j)
	if st.Settings != nil {
		p.printSettings(st.Settings)
	}
}

func (p Printer) printRecent(st *cluster.Status, j cluster.Job) {
	if len(j.Recent) == 0 {
		return
	}
	fmt.Fprintln(p.Out)
	t := newTable("BEGAN", "TICK", "REPLICA", "OUTCOME", "DURATION", "WHY")
	for _, r := range j.Recent {
		tick := "-"
		if !r.Tick.IsZero() {
			tick = p.formatTime(r.Tick)
		}
		t.addRow(markOf(r.Outcome), agoText(st.Now, r.When()), tick, p.cutText(cmp.Or(r.Replica, "-"), 14), markOf(r.Outcome).sign+" "+string(r.Outcome), durationText(r), p.cutText(Why(r), 24))
	}
	t.print(p)
}

func pauseOf(p Printer, st *cluster.Status, j cluster.Job) string {
	until := "it is resumed"
	if j.PausedUntil != nil {
		until = p.formatTime(*j.PausedUntil)
	}
	by := ""
	if j.PausedBy != "" {
		by = "by " + p.cutText(j.PausedBy, 24) + " "
	}
	text := by + "since " + Span(st.Now.Sub(*j.PausedSince)) + ", until " + until
	if j.PausedReason != "" {
		text += ": " + j.PausedReason
	}
	return text
}

// settingIndent is the column at which the values of settings begin, after their keys.
const settingIndent = 20

// printSettings prints the settings of a job, and their differences between replicas. A form is a variant of the settings that some replicas share.
func (p Printer) printSettings(s *cluster.JobSettings) {
	fmt.Fprintln(p.Out)
	title := "configuration: " + Agreement(s)
	if s.Agreement != cluster.SettingsAgree || s.Fault != "" {
		p.printItem(warning, title)
	} else {
		for _, line := range p.splitLines(title, 0) {
			p.printLine(plain, line)
		}
	}
	for _, f := range s.Forms {
		if note := FormNote(f); note != "" {
			p.printItem(warning, p.replicasOf(f)+": "+note)
		}
	}
	if s.More > 0 {
		p.printItem(warning, units.Count(s.More, "more form")+" not shown")
	}
	for _, key := range s.Keys() {
		if slices.Contains(s.Differing, key) {
			p.printDiffering(s, key)
			continue
		}
		value, _ := usualForm(s).Setting(key)
		p.printSetting(plain, key, value)
	}
}

// NoSuchKey is printed instead of a value if the version of a replica does not have the key.
const NoSuchKey = "no such key in this version"

func (p Printer) printDiffering(s *cluster.JobSettings, key string) {
	name := key
	for _, f := range s.Forms {
		if f.State != cluster.FormKnown {
			continue
		}
		value, ok := f.Setting(key)
		if !ok {
			value = NoSuchKey
		}
		p.printSetting(warning, name, p.replicasOf(f)+": "+value)
		name = ""
	}
}

// printSetting prints a key and its value. If key is "", the value belongs to the key above.
func (p Printer) printSetting(m mark, key, value string) {
	sign := m.sign
	if sign == "" || key == "" {
		sign = " "
	}
	for _, line := range p.splitLines(value, settingIndent) {
		p.printLine(m, strings.TrimRight(fmt.Sprintf("%s %-*s %s", sign, settingIndent-3, key, line), " "))
		sign, key = " ", ""
	}
}

// usualForm returns the first form with known settings. It is the most common one, because Forms begins with the most common forms.
func usualForm(s *cluster.JobSettings) (known cluster.JobForm) {
	if i := slices.IndexFunc(s.Forms, func(f cluster.JobForm) bool { return f.State == cluster.FormKnown }); i >= 0 {
		known = s.Forms[i]
	}
	return known
}

func (p Printer) replicasOf(f cluster.JobForm) string { return p.cutText(Replicas(f), 40) }

const mostNames = 6

// Replicas lists the replicas that have a form, up to six by name.
func Replicas(f cluster.JobForm) string {
	if more := len(f.Replicas) - mostNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(f.Replicas[:mostNames], ", "), more)
	}
	return strings.Join(f.Replicas, ", ")
}

// notShown describes differences that are not visible in the settings.
const notShown = "something that is not shown: an argument of the command, a value of a variable, a day of a calendar, or the slots of a pool"

// Agreement describes the result of the comparison of a job's settings on all replicas.
func Agreement(s *cluster.JobSettings) string {
	if s.Fault != "" {
		return agreementText(s) + ": " + s.Fault
	}
	return agreementText(s)
}

func agreementText(s *cluster.JobSettings) string {
	switch {
	case s.Fault != "" && len(s.Forms) == 0:
		return "not known"
	case len(s.Forms) == 0:
		return "not known, since no replica is up"
	case s.Agreement == cluster.SettingsDiffer && s.Hidden():
		return "the replicas differ, some of them only in " + notShown + "; give all the same files"
	case s.Agreement == cluster.SettingsDiffer:
		return "the replicas differ; give all the same files"
	case s.Agreement == cluster.SettingsHidden:
		return "the replicas differ in " + notShown
	case s.Agreement == cluster.SettingsUnknown:
		return "not known of all replicas"
	case s.Agreement == cluster.SettingsAbsent:
		return "no replica has the job"
	}
	return "the same on " + Replicas(s.Forms[0])
}

// FormNote returns the reason why the settings of a form are missing; "" if they are known.
func FormNote(f cluster.JobForm) string {
	switch f.State {
	case cluster.FormAbsent:
		return "no such job in the configuration"
	case cluster.FormUnknown:
		return "not known: not published yet, an older version, or too many jobs"
	}
	return ""
}
