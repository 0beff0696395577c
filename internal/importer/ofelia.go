package importer

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/units"
)

var ofeliaSection = regexp.MustCompile(`^\[\s*(job-[a-z-]+)\s*"?([^"\]]+)"?\s*\]`)

// An ofeliaJob is a section of an ofelia file, or the labels of one job. Keys are in lower case.
type ofeliaJob struct {
	kind, name, place string
	keys              map[string][]string
}

// readOfelia reads files in INI, and labels of containers in YAML.
func readOfelia(c *conversion, files []File) {
	for _, f := range files {
		if strings.Contains(f.Text, "ofelia.job-") {
			c.refuseFile(f.Name, "labels of containers: write them as sections of a file, as [job-exec \"NAME\"]")
			continue
		}
		for _, j := range readSections(f) {
			c.readOfeliaJob(j)
		}
	}
}

func readSections(f File) (jobs []*ofeliaJob) {
	var current *ofeliaJob
	n := 0
	for line := range strings.Lines(f.Text) {
		n++
		text := strings.TrimSpace(line)
		switch {
		case text == "" || text[0] == '#' || text[0] == ';':
		case text[0] == '[':
			current = nil
			if m := ofeliaSection.FindStringSubmatch(text); m != nil {
				current = &ofeliaJob{kind: m[1], name: strings.TrimSpace(m[2]), place: fmt.Sprintf("%s:%d", f.Name, n), keys: map[string][]string{}}
				jobs = append(jobs, current)
			}
		case current != nil:
			key, value, _ := strings.Cut(text, "=")
			key = strings.ToLower(strings.TrimSpace(key))
			current.keys[key] = append(current.keys[key], iniValue(strings.TrimSpace(value)))
		}
	}
	return jobs
}

// iniValue removes the quotes around a value, or a comment behind it.
func iniValue(value string) string {
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		return strings.ReplaceAll(value[1:len(value)-1], `\"`, `"`)
	}
	if len(value) >= 2 && value[0] == '`' && value[len(value)-1] == '`' {
		return value[1 : len(value)-1]
	}
	for _, mark := range []string{" ;", " #"} {
		if before, _, found := strings.Cut(value, mark); found {
			value = strings.TrimSpace(before)
		}
	}
	return value
}

func (j *ofeliaJob) get(key string) string {
	if values := j.keys[key]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

func (c *conversion) readOfeliaJob(j *ofeliaJob) {
	e := c.newEntry(j.place, fmt.Sprintf("[%s %q] schedule = %s", j.kind, j.name, j.get("schedule")))
	e.name = c.names.unique(j.name)
	if e.name != j.name {
		e.description = j.name
	}
	t, err := robfigTime(j.get("schedule"), true)
	if err != nil {
		e.refuse("%v", err)
	}
	e.setTime(t, c.useZone(e, ""))
	e.timeout = "none"
	if limit := j.get("max-runtime"); limit != "" {
		if d, err := time.ParseDuration(limit); err != nil || d <= 0 {
			e.refuse("max-runtime = %s is no duration", limit)
		} else {
			e.timeout = units.FormatDuration(d)
		}
	}
	argv, err := splitShellwords(j.get("command"))
	if err != nil || len(argv) == 0 {
		e.refuse("a job without a command, or with a quote that is not closed")
		return
	}
	switch j.kind {
	case "job-local":
		e.setOfeliaLocal(j, argv)
	case "job-exec":
		e.setOfeliaExec(j, argv)
	default:
		e.argv = argv
		e.refuse("%s starts a container of its own: write the command that does", j.kind)
	}
}

func (e *entry) setOfeliaLocal(j *ofeliaJob, argv []string) {
	e.argv, e.dir = argv, j.get("dir")
	for _, v := range j.keys["environment"] {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			e.refuse("environment = %s is no NAME=VALUE", name)
			continue
		}
		e.setEnv(name, value)
	}
}

// setOfeliaExec sets a command that runs the job in its container, as ofelia does.
func (e *entry) setOfeliaExec(j *ofeliaJob, argv []string) {
	container := j.get("container")
	if container == "" {
		e.refuse("a job-exec without a container")
		return
	}
	e.argv = []string{"docker", "exec"}
	if user := j.get("user"); user != "" {
		e.argv = append(e.argv, "-u", user)
	}
	for _, v := range j.keys["environment"] {
		e.argv = append(e.argv, "-e", v)
	}
	if dir := j.get("dir"); dir != "" {
		e.argv = append(e.argv, "-w", dir)
	}
	if j.get("tty") == "true" {
		e.note("tty is left out")
	}
	e.argv = append(append(e.argv, container), argv...)
	e.note("docker and the container %s must be on each machine that may run it: see where", container)
}

// splitShellwords splits a command at blanks, with quotes, and without expansions.
func splitShellwords(text string) (words []string, err error) {
	var b strings.Builder
	in, quote := false, rune(0)
	escaped := false
	for _, r := range text {
		switch {
		case escaped:
			b.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, in = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, in = r, true
		case quote == 0 && (r == ' ' || r == '\t' || r == '\n'):
			if in {
				words = append(words, b.String())
			}
			b.Reset()
			in = false
		default:
			b.WriteRune(r)
			in = true
		}
	}
	if quote != 0 || escaped {
		return nil, fmt.Errorf("a quote that is not closed")
	}
	if in {
		words = append(words, b.String())
	}
	return words, nil
}
