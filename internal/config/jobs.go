package config

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

// jobKeys returns the keys of the table of a job.
func jobKeys() schema.Section[draft] {
	s := schema.Section[draft]{
		Keys:  slices.Concat(tickKeys(), commandKeys(), environmentKeys(), machineKeys(), slotKeys(), attemptKeys(), stopKeys(), aboutKeys()),
		Later: []string{"http", "notify", "warn_after", "stale_after"},
	}
	for i := range s.Keys {
		s.Keys[i] = notingKey(s.Keys[i])
	}
	return s
}

// defaultKeys returns the keys of [defaults]: the keys of a job, but each may be set only once in the configuration.
func defaultKeys() schema.Section[draft] {
	s := jobKeys()
	s.Once = true
	return s
}

// aboutKeys returns the keys that describe a job or configure its output.
func aboutKeys() []schema.Key[draft] {
	return []schema.Key[draft]{
		schema.Bool("enabled", func(d *draft) *bool { return &d.Enabled }, "Whether the job runs at all."),
		schema.String("description", func(d *draft) *string { return &d.Description }, "What the job is for; the completion of job names shows it."),
		schema.Strings("tags", func(d *draft) *[]string { return &d.Tags }, "Labels of the job, by which `pause` and `resume` choose jobs."),
		schema.Table("output", func(d *draft) *Output { return &d.Output }, outputKeys(), "What becomes of what a run prints: see [output](#output)."),
	}
}

func outputKeys() schema.Section[Output] {
	return schema.Section[Output]{Keys: []schema.Key[Output]{
		schema.Size("keep", 64<<20, func(to *Output) *int64 { return &to.Keep }, "How much of the end of it the history keeps. Bounded by `[history].max_bytes`."),
		schema.Bool("log", func(to *Output) *bool { return &to.Log }, "Whether all of it goes to the replica's log, line by line."),
	}}
}

// jobReader reads jobs. It has everything that a job may refer to.
type jobReader struct {
	*schema.Reader
	keys       schema.Section[draft]
	base       draft // the job that results from [defaults]
	calendars  calendars
	pools      map[string]Pool
	mostOutput int64 // the value of [history].max_bytes
	files      *fileChecks
	machine    machineChecks
	now        func() time.Time
	defaults   map[string]string // default values by key, for the settings
	settings   Settings
}

// readJob reads the table of a job on top of the defaults, and checks the job as a whole. It also returns the links in the job's `after`.
func (r *jobReader) readJob(v document.Value) (Job, []link) {
	d := r.base.deriveJob()
	d.Name, d.File, d.Line = v.Name, v.File(), v.Line()
	r.keys.Read(r.Reader, v, &d)
	finishCommand(r.Reader, v, &d)
	finishUser(r.Reader, &d)
	finishAfter(r.Reader, v, &d)
	finishSchedule(r.Reader, v, &d, r.calendars, r.now)
	checkSlots(r.Reader, &d)
	finishPool(r.Reader, &d, r.pools)
	finishRetry(r.Reader, &d)
	finishCatchUp(r.Reader, v, &d)
	finishRecover(r.Reader, &d)
	r.files.ofJob(&d)
	r.machine.ofJob(&d)
	if keep, set := d.at["output"]; set && d.Output.Keep > r.mostOutput {
		r.Warn(keep.AtKey(), "output.keep is more than [history].max_bytes, which bounds the output of all runs of the job")
	}
	d.Digest = d.jobDigest()
	d.EnvComposed = d.composedVariables()
	r.settings.addJob(d.Name, d.jobSettings(r.keys, r.defaults))
	var links []link
	for _, e := range d.before {
		links = append(links, link{d.Name, e})
	}
	return d.Job, links
}
