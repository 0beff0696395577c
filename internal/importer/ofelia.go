package importer

import (
	"cmp"
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
	unclear           string // a value that cannot be read for sure; otherwise ""
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
			text, ok := iniValue(strings.TrimSpace(value))
			if !ok {
				current.unclear = key
			}
			current.keys[key] = append(current.keys[key], text)
		}
	}
	return jobs
}

// iniValue removes the quotes around a value. It returns false for a value that the readers of the two ofelias read differently.
func iniValue(value string) (string, bool) {
	if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
		return value[1 : n-1], !strings.ContainsAny(value[1:n-1], `"\`)
	}
	return value, !strings.ContainsAny(value, "\"\\;#`")
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
	if j.unclear != "" {
		e.refuse("%s has a quote, a backslash, ; or #, which mcuadros/ofelia and netresearch/ofelia read differently: quote the whole value", j.unclear)
	}
	e.setRobfigTime(strings.Fields(j.get("schedule")), true, c.useZone(e, ""))
	e.timeout = "none"
	if limit := j.get("max-runtime"); limit != "" {
		if d, err := time.ParseDuration(limit); err != nil || d <= 0 {
			e.refuse("max-runtime = %s is no duration", limit)
		} else {
			e.timeout = units.FormatDuration(d)
		}
	}
	argv, ok := splitArgs(j.get("command"))
	if !ok || len(argv) == 0 {
		e.refuse("a job without a command, or with a word that ofelia does not split as a shell does")
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
	user := j.get("user")
	if user == "" {
		user = "root"
		e.note("without user, mcuadros/ofelia runs it as root, and netresearch/ofelia as nobody")
	}
	e.argv = append(e.argv, "-u", user)
	for _, v := range j.keys["environment"] {
		e.argv = append(e.argv, "-e", v)
	}
	if dir := cmp.Or(j.get("working-dir"), j.get("dir")); dir != "" {
		e.argv = append(e.argv, "-w", dir)
	}
	if j.get("tty") == "true" {
		e.note("tty is left out")
	}
	e.argv = append(append(e.argv, container), argv...)
	e.note("docker and the container %s must be on each machine that may run it: see where", container)
}

// ofeliaWord matches a word of a command that ofelia and a shell read in the same way, without a bracket or an operator at its beginning.
var ofeliaWord = regexp.MustCompile(`^\s*(?:'([^'\\]*)'|([^\s'"\\` + "`" + `|><#{(\[][^\s'"\\` + "`" + `]*))(?:\s+|$)`)

func splitArgs(text string) (words []string, ok bool) {
	for text != "" {
		m := ofeliaWord.FindStringSubmatch(text)
		if m == nil {
			return nil, false
		}
		words, text = append(words, m[1]+m[2]), text[len(m[0]):]
	}
	return words, true
}
