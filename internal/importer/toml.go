package importer

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cronclave/cronclave/internal/config"
)

// check reports why the configuration of an entry is faulty, or nil.
func (e *entry) check() error {
	if len(e.schedule) == 0 && len(e.after) == 0 {
		return errors.New("no schedule")
	}
	if e.dir != "" && !filepath.IsAbs(e.dir) {
		return fmt.Errorf("the folder %q is no absolute path", e.dir)
	}
	alone := *e
	if len(e.after) > 0 { // the jobs before it are checked with the whole file
		alone.after, alone.schedule = nil, []string{"@daily"}
	}
	alone.pool = ""
	_, err := config.Parse("import", alone.table(), config.Options{})
	return faultOf(err)
}

// faultOf returns the first fault without its place, because the place is in a text that nobody sees.
func faultOf(err error) error {
	var faults config.Faults
	if !errors.As(err, &faults) {
		return err
	}
	for _, f := range faults {
		if !f.Warning {
			return errors.New(f.Message)
		}
	}
	return err
}

// block returns the text of an entry: its notes and its table, or comments if it was refused.
func (e *entry) block() string {
	var b strings.Builder
	for _, line := range e.source {
		fmt.Fprintf(&b, "# %s: %s\n", printable(e.place), printable(line))
	}
	if e.refused != "" {
		fmt.Fprintf(&b, "# not carried: %s\n", printable(maskSecrets(e.refused)))
		return b.String() + e.commented()
	}
	for _, n := range e.notes {
		fmt.Fprintf(&b, "# %s\n", printable(n))
	}
	return b.String() + e.table()
}

// commented returns the table of a refused entry as comments, with everything but the schedule.
func (e *entry) commented() string {
	if len(e.argv) == 0 && e.script == "" {
		return ""
	}
	rest := *e
	rest.schedule, rest.except, rest.calendar, rest.startsAt, rest.expiresAt = nil, nil, nil, "", ""
	var b strings.Builder
	for line := range strings.Lines(rest.table()) {
		b.WriteString("# " + printable(strings.TrimSuffix(line, "\n")) + "\n")
	}
	return b.String()
}

// A table collects the lines of a table of TOML.
type table struct{ strings.Builder }

func (t *table) text(key, value string) {
	if value != "" {
		fmt.Fprintf(t, "%s = %s\n", key, quoteText(value))
	}
}

func (t *table) number(key string, n int) {
	if n != 0 {
		fmt.Fprintf(t, "%s = %d\n", key, n)
	}
}

// list writes a list of strings; with one element, and if single is set, it writes a string.
func (t *table) list(key string, values []string, single bool) {
	switch {
	case len(values) == 0:
	case single && len(values) == 1:
		t.text(key, values[0])
	default:
		fmt.Fprintf(t, "%s = %s\n", key, quoteList(values, quoteText))
	}
}

func (t *table) variables(key string, of []variable) {
	if len(of) == 0 {
		return
	}
	items := make([]string, len(of))
	for i, v := range of {
		items[i] = quoteKey(v.name) + " = " + quoteText(v.value)
	}
	fmt.Fprintf(t, "%s = { %s }\n", key, strings.Join(items, ", "))
}

// table returns the TOML of a job, and of its calendar.
func (e *entry) table() string {
	t := &table{}
	except := slices.Clone(e.except)
	if len(e.calendar) > 0 {
		calendar := "not-" + e.name
		fmt.Fprintf(t, "[calendars.%s]\ndates = %s\n\n", calendar, quoteList(e.calendar, quoteText))
		except = append(except, calendar)
	}
	fmt.Fprintf(t, "[jobs.%s]\n", e.name)
	t.text("description", e.description)
	t.list("tags", e.tags, false)
	if e.disabled {
		t.WriteString("enabled = false\n")
	}
	t.list("schedule", e.schedule, true)
	t.list("after", e.after, false)
	if len(e.after) == 0 {
		t.text("timezone", e.zone)
		t.list("except", except, true)
		t.text("starts_at", e.startsAt)
		t.text("expires_at", e.expiresAt)
		t.text("jitter", e.jitter)
		t.text("catch_up", e.catchUp)
		t.text("catch_up_window", e.catchUpWindow)
	}
	t.text("start_deadline", e.startDeadline)
	e.writeProgram(t)
	e.writePolicies(t)
	return t.String()
}

func (e *entry) writeProgram(t *table) {
	raw := func(s string) string { return quote(s, false) } // variables are not replaced in commands
	if len(e.argv) > 0 {
		fmt.Fprintf(t, "command = %s\n", quoteList(e.argv, raw))
	} else if e.script != "" {
		fmt.Fprintf(t, "command = %s\n", raw(e.script))
		if len(e.shell) > 0 {
			fmt.Fprintf(t, "shell = %s\n", quoteList(e.shell, raw))
		}
	}
	t.text("dir", e.dir)
	t.text("user", e.user)
	t.text("group", e.group)
	if e.user != "" && !e.keepsPrivileges { // the default with user is true, and the sources do not deny rights to set-user-ID programs
		t.WriteString("no_new_privs = false\n")
	}
	if e.ownEnv {
		t.WriteString("inherit_env = false\n")
	}
	t.variables("env", e.env)
	t.text("env_file", e.envFile)
	t.variables("env_from_file", e.envFromFile)
	t.text("umask", e.umask)
	t.number("nice", e.nice)
	var limits []string
	if e.memory != "" {
		limits = append(limits, "memory = "+quoteText(e.memory))
	}
	if e.pids > 0 {
		limits = append(limits, "pids = "+strconv.Itoa(e.pids))
	}
	if len(limits) > 0 {
		fmt.Fprintf(t, "limits = { %s }\n", strings.Join(limits, ", "))
	}
}

func (e *entry) writePolicies(t *table) {
	t.text("overlap", e.overlap)
	t.number("parallel", e.parallel)
	t.number("per_tick", e.perTick)
	t.text("pool", e.pool)
	t.text("timeout", e.timeout)
	t.text("kill_grace", e.killGrace)
	if e.retry != nil {
		items := []string{"max = " + strconv.Itoa(e.retry.max)}
		if e.retry.delay != "" {
			items = append(items, "delay = "+quoteText(e.retry.delay))
		}
		if e.retry.maxDelay != "" {
			items = append(items, "max_delay = "+quoteText(e.retry.maxDelay))
		}
		fmt.Fprintf(t, "retry = { %s }\n", strings.Join(items, ", "))
	}
	if len(e.okExitCodes) > 0 {
		codes := make([]string, len(e.okExitCodes))
		for i, c := range e.okExitCodes {
			codes[i] = strconv.Itoa(c)
		}
		fmt.Fprintf(t, "ok_exit_codes = [%s]\n", strings.Join(codes, ", "))
	}
}

func quoteList(values []string, quoteOne func(string) string) string {
	items := make([]string, len(values))
	for i, v := range values {
		items[i] = quoteOne(v)
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func quoteKey(name string) string {
	if config.ValidName(name) {
		return name
	}
	return quote(name, false)
}

// quoteText quotes a value in which cronclave replaces variables, so that it means itself.
func quoteText(s string) string { return quote(s, true) }

func quote(s string, replaced bool) string {
	if replaced {
		s = strings.ReplaceAll(s, "${", "$${")
	}
	plain := strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0
	if plain && !strings.Contains(s, "'") && strings.ContainsAny(s, `"\`) {
		return "'" + s + "'"
	}
	if strings.Contains(s, "\n") && !strings.Contains(s, "'''") && strings.IndexFunc(s, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }) < 0 && !strings.HasSuffix(s, "'") {
		return "'''\n" + s + "'''"
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) { // byte by byte, so that the parser finds what is not UTF-8
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.Write([]byte{'\\', c})
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
