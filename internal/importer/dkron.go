package importer

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/units"
)

// readJSON returns the value of a text. Numbers keep their digits.
func readJSON(text string) (tree, error) {
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return tree{}, fmt.Errorf("malformed JSON: %w", err)
	}
	return tree{value}, nil
}

// readDkron reads the answer of GET /v1/jobs, or one job.
func readDkron(c *conversion, files []File) {
	type job struct {
		tree
		file string
	}
	var jobs []job
	names, read := map[string]string{}, map[string]bool{} // names here by names in dkron
	for _, f := range files {
		all, err := readJSON(f.Text)
		if err != nil {
			c.refuseFile(f.Name, "%v", err)
			continue
		}
		list := all.list()
		if all.get("name").set() {
			list = []tree{all}
		}
		for _, j := range list {
			jobs = append(jobs, job{j, f.Name})
			name := j.get("name").text()
			if names[name] == "" {
				names[name] = c.names.unique(name)
			}
		}
	}
	for _, j := range jobs {
		name := j.get("name").text()
		c.readDkronJob(j.tree, j.file, names, read[name])
		read[name] = true
	}
}

func (c *conversion) readDkronJob(j tree, file string, names map[string]string, again bool) {
	name := j.get("name").text()
	e := c.newEntry(file, fmt.Sprintf("job %q, schedule: %q", name, j.get("schedule").text()))
	e.name, e.description = names[name], cmp.Or(j.get("displayname").text(), name)
	if e.description == e.name {
		e.description = ""
	}
	if again {
		e.name = c.names.unique(name)
		e.refuse("a second job of the name %q", name)
	}
	for _, key := range j.get("metadata").keys() {
		if secretName(key) {
			e.note("metadata %s is left out: it looks like a secret", key)
			continue
		}
		e.tags = append(e.tags, key+"="+j.get("metadata", key).text())
	}
	e.disabled = j.get("disabled").isTrue()
	c.setDkronTime(e, j, names)
	e.setDkronNodes(j.get("tags"))
	if j.get("concurrency").text() == "forbid" {
		e.overlap = "skip"
	}
	if n, ok := j.get("retries").number(); ok && n > 0 {
		e.retry = &retry{max: min(n, 100), delay: "1s", maxDelay: "5s"}
	}
	if j.get("ephemeral").isTrue() {
		e.refuse("an ephemeral job, which is deleted after its first success")
	}
	if len(j.get("processors").keys()) > 0 {
		e.note("processors are left out: output goes to the log and the history")
	}
	e.setDkronProgram(j)
}

// setDkronTime sets the schedule, or the job before it: a job with a parent never follows its own schedule.
func (c *conversion) setDkronTime(e *entry, j tree, names map[string]string) {
	if parent := j.get("parent_job").text(); parent != "" {
		e.after = []string{cmp.Or(names[parent], parent)}
		return
	}
	text, zone := j.get("schedule").text(), j.get("timezone").text()
	words := strings.Fields(text)
	if strings.HasPrefix(text, "@") {
		zone = ""
	}
	for _, prefix := range []string{"TZ=", "CRON_TZ="} {
		if z, ok := strings.CutPrefix(append(words, "")[0], prefix); ok {
			zone, words = z, words[1:]
		}
	}
	words, err := dkronTime(words, j.get("name").text())
	if err != nil {
		e.refuse("%v", err)
	}
	e.setRobfigTime(words, true, c.useZone(e, zone))
	for key, field := range map[string]*string{"starts_at": &e.startsAt, "expires_at": &e.expiresAt} {
		at := j.get(key).text()
		if at == "" || strings.HasPrefix(at, "0001-") {
			continue
		}
		if _, err := time.Parse(time.RFC3339, at); err != nil {
			e.refuse("%s %q is no time with its offset", key, at)
			continue
		}
		*field = at
	}
}

// dkronTime returns a schedule in the words of robfig/cron.
func dkronTime(words []string, name string) ([]string, error) {
	switch {
	case len(words) == 0:
		return nil, errors.New("no schedule")
	case words[0] == "@minutely":
		return strings.Fields("0 * * * * *"), nil
	case words[0] == "@manually":
		return nil, errors.New("@manually: it runs on request alone")
	case words[0] == "@at":
		return nil, errors.New("@at: it runs once")
	case !strings.HasPrefix(words[0], "@") && len(words) != fieldCount:
		return nil, fmt.Errorf("a schedule of %d fields, not 6", len(words))
	}
	return expandHash(words, name), nil
}

// expandHash replaces "~" by the value that dkron computes from the name: the same sum in every field.
func expandHash(words []string, name string) []string {
	sum := 0
	for _, r := range name {
		sum += int(r)
	}
	values := [fieldCount]int{sum % 60, sum % 60, sum % 24, sum%28 + 1, sum%12 + 1, sum % 7}
	expanded := make([]string, len(words))
	for i, w := range words {
		if len(words) == fieldCount {
			w = strings.ReplaceAll(w, "~", fmt.Sprint(values[i]))
		}
		expanded[i] = w
	}
	return expanded
}

// setDkronNodes notes on how many nodes the job runs there: the lowest count of its tags, and every node without a count.
func (e *entry) setDkronNodes(tags tree) {
	fewest := 0
	for _, key := range tags.keys() {
		value, count, counted := strings.Cut(tags.get(key).text(), ":")
		n, err := number(count)
		if counted && (err != nil || n == 0) {
			e.refuse("the tag %s: %q has no valid count, so it runs on no node", key, tags.get(key).text())
		}
		if counted && (fewest == 0 || n < fewest) {
			fewest = n
		}
		e.note("it ran on nodes with %s = %q: see where", key, value)
	}
	switch {
	case fewest == 0:
		e.note("there it runs on every such node, here on one of them; per_tick = \"all\" is every replica that where allows")
	case fewest > 1:
		e.parallel, e.perTick = min(fewest, 1000), min(fewest, 1000)
	}
}

func (e *entry) setDkronProgram(j tree) {
	settings := j.get("executor_config")
	executor := j.get("executor").text()
	if command := j.get("command").text(); command != "" && executor == "" { // version 0.9
		settings = tree{map[string]any{"command": command, "shell": j.get("shell").text()}}
		executor = "shell"
		if len(j.get("environment_variables").list()) > 0 {
			settings.value.(map[string]any)["env"] = strings.Join(j.get("environment_variables").texts(), ",")
		}
	}
	if executor != "shell" {
		e.refuse("the executor %q: only shell has an equivalent", executor)
		return
	}
	command := settings.get("command").text()
	if settings.get("shell").isTrue() {
		e.script = command
	} else {
		argv, err := splitShellwords(command)
		if err != nil {
			e.refuse("%v", err)
		}
		e.argv = argv
	}
	if strings.TrimSpace(command) == "" {
		e.refuse("a job without a command")
	}
	for part := range strings.SplitSeq(settings.get("env").text(), ",") {
		if name, value, ok := strings.Cut(part, "="); ok {
			e.setEnv(strings.TrimSpace(name), value)
		} else if part != "" {
			e.refuse("env has a part that is no NAME=VALUE, because it is split at commas")
		}
	}
	e.dir, e.user = settings.get("cwd").text(), settings.get("su").text()
	e.timeout = "none"
	if text := settings.get("timeout").text(); text != "" && text != "0" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			e.refuse("timeout %q is no duration", text)
		} else {
			e.timeout = units.FormatDuration(d)
		}
	}
	e.setDkronInput(settings.get("payload").text())
	if limit := settings.get("mem_limit").text(); limit != "" {
		if m := sizeText.FindStringSubmatch(strings.TrimSuffix(limit, "B")); m != nil {
			e.memory = m[1] + map[string]string{"": "B", "K": "KiB", "M": "MiB", "G": "GiB", "T": "TiB"}[m[2]]
		}
	}
}

// setDkronInput gives the job its payload as standard input.
func (e *entry) setDkronInput(payload string) {
	if payload == "" {
		return
	}
	text, err := base64.StdEncoding.DecodeString(payload)
	if err != nil || strings.Contains(string(text), "\x00") || hasSecret(string(text)) {
		e.refuse("the payload is no text, or holds what looks like a secret")
		return
	}
	command := e.script
	if command == "" {
		quoted := make([]string, len(e.argv))
		for i, w := range e.argv {
			quoted[i] = shellQuote(w)
		}
		command = strings.Join(quoted, " ")
	}
	e.program, e.argv = command, nil
	e.script = fmt.Sprintf("printf '%%s' %s | {\n%s\n}\n", shellQuote(string(text)), command)
}

// splitShellwords splits a command at blanks, with quotes, and without expansions. What the go-shellwords of dkron reads differently is an error.
func splitShellwords(text string) (words []string, err error) {
	var b strings.Builder
	in, quote := false, rune(0)
	escaped := false
	for _, r := range text {
		switch {
		case escaped && (r == 't' || r == 'n'), quote == 0 && !escaped && strings.ContainsRune(";&|<>()`", r):
			return nil, errors.New("a command with a character of the shell, and without shell: true")
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
		return nil, errors.New("a quote that is not closed")
	}
	if in {
		words = append(words, b.String())
	}
	return words, nil
}
