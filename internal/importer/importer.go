// Package importer turns the jobs of other schedulers into a configuration. An entry that it cannot carry without a change of meaning becomes a comment with
// the original line and one reason, because a wrong schedule is worse than none.
package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// A Result is the configuration, and what was found out about it.
type Result struct {
	Text             string
	Carried, Refused int
	// Warnings are sentences for the user, besides the comments in Text.
	Warnings []string
}

type source struct {
	read  func(*conversion, []File)
	intro []string // differences between every job of the source and of cronclave
	zone  string   // the zone of a time without a zone, in words; "" if each time has one
}

const (
	everyHost = `Where these jobs were on several machines, each machine ran them. Here one replica of the cluster runs each tick; with per_tick = "all", each replica does.`
	overlaps  = "A run that lasts into the next tick: there a second run starts beside it; here that tick is skipped (overlap, parallel)."
	gaps      = "When a clock changes, times of the skipped hour are one run here, and of repeated times only the first counts; a job with * in minute or hour follows the clock."
	mails     = "Output is not mailed: cronclave history has it. MAILTO is left out."
)

func sources() map[string]source {
	return map[string]source{
		"crontab":    {readCrontabs, []string{everyHost, overlaps, gaps, mails}, "the host's zone"},
		"systemd":    {readUnits, []string{"Units are read as units of the system: without User=, they run as root.", everyHost, gaps, "A calendar event that the skipped hour of a spring day swallows runs there not at all, and here once, after it."}, "the host's zone"},
		"kubernetes": {readManifests, []string{"The command ran in a container: it must be on each machine of the cluster.", gaps}, "the zone of the controller manager, usually UTC"},
		"dkron":      {readDkron, []string{overlaps, gaps}, "the zone of the leader's host"},
		"cronicle":   {readCronicle, []string{overlaps, gaps}, "the server's zone"},
		"ofelia":     {readOfelia, []string{overlaps, gaps}, "the zone of ofelia's container, usually UTC"},
		"yacron":     {readYacron, []string{overlaps, gaps}, ""},
	}
}

// Sources returns the names of the sources, sorted.
func Sources() []string { return sortedKeys(sources()) }

// Dialects returns the names of the dialects of a crontab, sorted.
func Dialects() []string { return sortedKeys(dialects()) }

// Convert returns the configuration for the jobs in the files. An error is about the options; whatever the files contain becomes comments.
func Convert(files []File, o Options) (*Result, error) {
	_, r, err := convert(files, o)
	return r, err
}

func convert(files []File, o Options) (*conversion, *Result, error) {
	s, ok := sources()[o.Source]
	if !ok {
		return nil, nil, fmt.Errorf("%q is none of %s", o.Source, strings.Join(Sources(), ", "))
	}
	d, ok := dialects()[cmp.Or(o.Dialect, "debian")]
	if !ok {
		return nil, nil, fmt.Errorf("--dialect %q: it is one of %s", o.Dialect, strings.Join(Dialects(), ", "))
	}
	zone, err := cronspec.LoadLocation(cmp.Or(o.Timezone, "UTC"))
	if err != nil {
		return nil, nil, fmt.Errorf("--timezone %q: %w", o.Timezone, err)
	}
	c := &conversion{Options: o, dialect: d, zone: zone, names: namer{}, pools: map[string]int{}, intro: s.intro}
	s.read(c, files)
	return c, c.finish(s, files), nil
}

// finish checks each entry, and then the whole text. An entry whose configuration is faulty is refused.
func (c *conversion) finish(s source, files []File) *Result {
	for _, e := range c.entries {
		e.complete(c.names)
	}
	c.refuseOrphans()
	if c.unzoned && s.zone != "" {
		c.warn("times are in %s, which is not known here: UTC is written; use --timezone", s.zone)
	}
	if len(c.entries) == 0 {
		c.warn("there are no jobs in these files")
	}
	text := c.text(s, files)
	if _, err := config.Parse("import", text, config.Options{}); err != nil {
		for _, e := range c.entries { // not reachable as far as known: each entry was checked alone
			e.refuse("the configuration would be faulty: %v", faultOf(err))
		}
		c.pools = nil
		text = c.text(s, files)
	}
	r := &Result{Text: text, Warnings: c.warnings}
	r.Carried, r.Refused = c.count()
	return r
}

func (c *conversion) count() (carried, refused int) {
	for _, e := range c.entries {
		if e.refused == "" {
			carried++
		} else {
			refused++
		}
	}
	return carried, refused
}

// complete names an entry that has no name, and refuses an entry with a secret or a fault. It deletes what an entry with a secret has beside its place and times.
func (e *entry) complete(names namer) {
	if e.name == "" {
		e.name = names.unique(programOf(cmp.Or(e.program, e.script, strings.Join(e.argv, " "))))
	}
	if slices.ContainsFunc(append(e.source, e.script, strings.Join(e.argv, " ")), hasSecret) {
		e.source, e.argv, e.script = slices.DeleteFunc(e.original, hasSecret), nil, ""
		if len(e.source) == 0 {
			e.source = []string{"schedule: " + strings.Join(e.schedule, "; ")}
		}
		e.refused = "it holds what looks like a secret; put that into a file, name the file in env_from_file, and write the command with the variable"
	}
	if e.refused == "" {
		if err := e.check(); err != nil {
			e.refuse("cronclave check refuses it: %v", err)
		}
	}
}

// refuseOrphans refuses jobs that run after a refused job or after themselves, and disables jobs that run after a disabled one.
func (c *conversion) refuseOrphans() {
	scheduled := map[string]*entry{} // carried jobs that a schedule starts, directly or through others
	for again := true; again; {
		again = false
		for _, e := range c.entries {
			if e.refused != "" || scheduled[e.name] != nil || slices.ContainsFunc(e.after, func(before string) bool { return scheduled[before] == nil }) {
				continue
			}
			for _, before := range e.after {
				if scheduled[before].disabled && !e.disabled {
					e.disabled = true
					e.note("disabled, because %s is", before)
				}
			}
			scheduled[e.name], again = e, true
		}
	}
	for _, e := range c.entries {
		if scheduled[e.name] == nil {
			e.refuse("it runs after %s, which was not carried", strings.Join(e.after, ", "))
		}
	}
}

func (c *conversion) text(s source, files []File) string {
	var b strings.Builder
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	carried, refused := c.count()
	fmt.Fprintf(&b, "# From %s: %s\n# Carried: %d. Not carried: %d", c.Source, printable(strings.Join(names, ", ")), carried, refused)
	if refused > 0 {
		b.WriteString(" (search for \"not carried\")")
	}
	b.WriteString(".\n#\n")
	for _, line := range slices.Concat(c.intro, c.warnings) {
		fmt.Fprintf(&b, "# - %s\n", printable(line))
	}
	for _, pool := range sortedKeys(c.pools) {
		fmt.Fprintf(&b, "\n[pools.%s]\nslots = %d\n", pool, c.pools[pool])
	}
	for _, e := range c.entries {
		b.WriteString("\n" + e.block())
	}
	return b.String()
}
