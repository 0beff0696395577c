package importer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/units"
)

// readYacron reads the files of yacron and cronstable.
func readYacron(c *conversion, files []File) {
	for _, f := range files {
		docs, err := readYAML(f.Text)
		if err != nil {
			c.refuseFile(f.Name, "%s", strings.Join(strings.Fields(err.Error()), " "))
		}
		for _, d := range docs {
			if d.get("include").set() {
				c.warn("%s includes other files: name them, too", f.Name)
			}
			for _, job := range d.get("jobs").list() {
				c.readYacronJob(f, tree{withDefaults(d.get("defaults").value, job.value)})
			}
		}
	}
}

// withDefaults returns a value with its defaults: maps are merged, at every level, and lists are appended.
func withDefaults(defaults, own any) any {
	switch base := defaults.(type) {
	case map[string]any:
		over, ok := own.(map[string]any)
		if !ok && own != nil {
			return own
		}
		merged := maps.Clone(base)
		for key, value := range over {
			merged[key] = value
			if old, both := base[key]; both {
				merged[key] = withDefaults(old, value)
			}
		}
		return merged
	case []any:
		if list, ok := own.([]any); ok {
			return slices.Concat(base, list)
		}
	}
	return own
}

func (c *conversion) readYacronJob(f File, job tree) {
	name := job.get("name").text()
	e := c.newEntry(f.Name, fmt.Sprintf("job %q, schedule: %s", name, describe(job.get("schedule"))))
	e.name = c.names.unique(name)
	if e.name != name {
		e.description = name
	}
	e.disabled = job.get("enabled").text() == "false"
	c.setYacronTime(e, job)
	command := job.get("command")
	if argv := command.texts(); len(argv) > 0 {
		e.argv = argv
	} else {
		e.script = strings.TrimSpace(command.text())
		if shell := job.get("shell").text(); shell != "" && shell != "/bin/sh" {
			e.shell = []string{shell, "-c"}
		}
	}
	if e.script == "" && len(e.argv) == 0 {
		e.refuse("a job without a command")
	}
	for _, v := range job.get("environment").list() {
		e.setEnv(v.get("key").text(), v.get("value").text())
	}
	e.envFile, e.user, e.group = job.get("env_file").text(), job.get("user").text(), job.get("group").text()
	e.setYacronPolicies(job)
}

// describe returns a schedule in one line: its text, or the fields of its map.
func describe(schedule tree) string {
	if text := schedule.text(); text != "" {
		return fmt.Sprintf("%q", text)
	}
	var parts []string
	for _, key := range schedule.keys() {
		parts = append(parts, key+"="+schedule.get(key).text())
	}
	return strings.Join(parts, " ")
}

func (c *conversion) setYacronTime(e *entry, job tree) {
	zone := job.get("timezone").text()
	if zone == "" && job.get("utc").text() != "false" {
		zone = "UTC"
	}
	location := c.useZone(e, zone)
	schedule := job.get("schedule")
	words := strings.Fields(schedule.text())
	if keys := schedule.keys(); len(keys) > 0 {
		words = nil
		for _, key := range []string{"minute", "hour", "dayOfMonth", "month", "dayOfWeek", "year"} {
			words = append(words, cmp.Or(schedule.get(key).text(), "*"))
		}
		if schedule.get("second").set() {
			words = append([]string{schedule.get("second").text()}, words...)
		}
	}
	t, err := yacronTime(words)
	if err != nil {
		e.refuse("%v", err)
	}
	e.setTime(t, location)
}

// yacronTime parses five fields; six with the year last; or seven with the seconds first and the year last.
func yacronTime(words []string) (t calendarTime, err error) {
	if len(words) == 0 {
		return t, fmt.Errorf("no schedule")
	}
	if strings.HasPrefix(words[0], "@") {
		fields, known := nicknames()[words[0]]
		if !known || words[0] == "@midnight" || len(words) > 1 {
			return t, fmt.Errorf("%q has no equivalent", shorten(strings.Join(words, " ")))
		}
		words = strings.Fields(fields)
	}
	var years yearRange
	if len(words) == 6 || len(words) == 7 {
		if years, err = parseYears(words[len(words)-1]); err != nil {
			return t, err
		}
		words = words[:len(words)-1]
	}
	m, err := parseCrontab.parseMoment(words)
	if err != nil {
		return t, err
	}
	m.years = years
	return m.express()
}

func (e *entry) setYacronPolicies(job tree) {
	switch policy := job.get("concurrencyPolicy").text(); policy {
	case "", "Allow", "Forbid":
	case "Replace":
		e.overlap = "replace"
	default:
		e.refuse("concurrencyPolicy %q", policy)
	}
	fails := job.get("failsWhen")
	switch {
	case fails.get("always").isTrue(), fails.get("producesStdout").isTrue():
		e.refuse("failsWhen: only an exit code decides here")
	case fails.get("nonzeroReturn").text() == "false":
		e.refuse("failsWhen.nonzeroReturn: false has no equivalent")
	case fails.get("producesStderr").text() != "false":
		e.note("there any text on stderr fails the job (producesStderr); here the exit code alone decides")
	}
	if policy := job.get("clusterPolicy").text(); policy == "EveryNode" {
		e.note("clusterPolicy EveryNode: there every node runs it, here one of them; per_tick = \"all\" is every replica")
	}
	e.timeout = secondsOr(e, job.get("executionTimeout"), "none")
	e.killGrace = secondsOr(e, job.get("killTimeout"), "30s")
	again := job.get("onFailure", "retry")
	if n, ok := again.get("maximumRetries").number(); ok && n > 0 {
		if multiplier := again.get("backoffMultiplier").text(); multiplier != "" && multiplier != "2" {
			e.note("backoffMultiplier %s: the pause doubles here", multiplier)
		}
		e.retry = &retry{max: min(n, 100), delay: secondsOr(e, again.get("initialDelay"), "1s"), maxDelay: secondsOr(e, again.get("maximumDelay"), "300s")}
	} else if again.get("maximumRetries").text() == "-1" {
		e.refuse("retries without an end")
	}
	for _, key := range []string{"mail", "sentry", "webhook", "shell"} {
		for _, event := range []string{"onFailure", "onPermanentFailure", "onSuccess"} {
			if job.get(event, "report", key).set() {
				e.note("%s.report is left out; see [notify.NAME]", event)
			}
		}
	}
}

// secondsOr returns a number of seconds as a duration, which may have a fraction, or a default.
func secondsOr(e *entry, t tree, missing string) string {
	text := t.text()
	if text == "" {
		return missing
	}
	d, err := time.ParseDuration(text + "s")
	if err != nil || d <= 0 {
		e.refuse("%q is no number of seconds", text)
		return missing
	}
	return units.FormatDuration(d)
}
