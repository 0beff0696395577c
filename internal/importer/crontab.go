package importer

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A crontab is the state of reading one file: the variables for the lines below.
type crontab struct {
	*conversion
	name   string
	system bool
	owner  string // the user whose crontab it is, known by the path; otherwise ""
	env    []variable
}

func readCrontabs(c *conversion, files []File) {
	for _, f := range files {
		if strings.HasSuffix(f.Name, "fcrontab") || strings.Contains(f.Text, "\n!") {
			c.refuseFile(f.Name, "a table of fcron has a syntax of its own: write its jobs by hand")
			continue
		}
		system, err := c.isSystem(f)
		if err != nil {
			c.refuseFile(f.Name, "%v", err)
			continue
		}
		t := &crontab{conversion: c, name: f.Name, system: system}
		if m := spoolPath.FindStringSubmatch(filepath.ToSlash(f.Name)); m != nil && c.System == nil {
			t.owner, t.system = m[1], false
		}
		lines := t.joinLines(f.Text)
		if c.Dialect == "supercronic" {
			t.readAssignments(lines)
		}
		for _, l := range lines {
			t.readLine(l)
		}
	}
}

// A numbered is a line with its number. unfinished is true for a last line without a newline.
type numbered struct {
	text       string
	number     int
	unfinished bool
}

// joinLines returns the lines that are neither empty nor comments. In busybox, a backslash at the end joins a line with the next, also in a comment.
func (t *crontab) joinLines(text string) (lines []numbered) {
	n, start, joined := 0, 0, ""
	for line := range strings.Lines(text) {
		if n++; joined == "" {
			start = n
		}
		bare, finished := strings.CutSuffix(line, "\n")
		if rest, continued := strings.CutSuffix(bare, `\`); continued && finished && t.Dialect == "busybox" {
			joined += rest
			continue
		}
		bare = strings.TrimLeft(joined+strings.TrimRight(bare, "\r"), " \t")
		if joined = ""; bare != "" && bare[0] != '#' {
			lines = append(lines, numbered{bare, start, !finished})
		}
	}
	if bare := strings.TrimLeft(joined, " \t"); bare != "" && bare[0] != '#' {
		lines = append(lines, numbered{bare, start, false})
	}
	return lines
}

var (
	spoolPath  = regexp.MustCompile(`/(?:cron/crontabs|spool/cron|cron/tabs)/([A-Za-z0-9_][A-Za-z0-9_-]*)$`)
	systemPath = regexp.MustCompile(`^/etc/crontab$|(^|/)(cron\.d/[^/]+|debian/([^/]+\.)?cron\.d)$`)
	sureUsers  = regexp.MustCompile(`^(root|www-data|nobody|ubuntu|debian|apache)$`)
	// sharedNames has names of users that are also names of programs.
	sharedNames = regexp.MustCompile(`^(daemon|nginx|http|postgres|mysql|backup|news|uucp|list|mail|operator|app|node)$`)
	userName    = regexp.MustCompile(`^[a-z_][a-z0-9_-]*$`)
	programName = regexp.MustCompile(`^(.*bin/[^/]+|bash|sh|zsh|dash|ksh|python[0-9.]*|php[0-9.]*|perl|ruby|node)$`)
)

// A userWord says how likely it is that the word before a command is a user.
type userWord int

const (
	noUser        userWord = iota
	userOrProgram          // a name of a user and of a program
	likelyUser             // a word before the name of a program
	sureUser               // a name of a user that is no program's
	userWords
)

// isSystem reports whether the lines of a file have a field for the user: by the options, by the path, or because each line names a user. It returns an error
// if the file may be either.
func (c *conversion) isSystem(f File) (bool, error) {
	switch {
	case c.System != nil:
		return *c.System, nil
	case systemPath.MatchString(filepath.ToSlash(f.Name)):
		return true, nil
	case c.Dialect == "busybox", c.Dialect == "supercronic":
		return false, nil
	}
	var lines [userWords]int
	for line := range strings.Lines(f.Text) {
		words := strings.Fields(line)
		if len(words) > 0 && !strings.HasPrefix(words[0], "#") && !isAssignment(line) {
			lines[userWordOf(words, strings.HasSuffix(f.Name, "etc/crontab"))]++
		}
	}
	switch {
	case lines[sureUser] == 0 && lines[likelyUser] == 0 && (lines[userOrProgram] == 0 || lines[noUser] > 0):
		return false, nil
	case lines[sureUser] > 0 && lines[noUser] == 0 && f.Name != stdin:
		c.warn("%s is read as a system crontab, because each line names a user; --system=false reads it as a user's", f.Name)
		return true, nil
	}
	return false, errors.New("a word before a command may be a user: write --system if it is, and --system=false if it is part of the command")
}

// userWordOf judges the words of a line. perhapsSystem is for a file that is named like a system crontab.
func userWordOf(words []string, perhapsSystem bool) userWord {
	at := fieldCount - 1
	if strings.HasPrefix(words[0], "@") {
		at = 1
	}
	if len(words) <= at+1 || strings.HasPrefix(words[at+1], "-") { // no command begins with "-", so the word before it is one
		return noUser
	}
	switch word := words[at]; {
	case sureUsers.MatchString(word):
		return sureUser
	case sharedNames.MatchString(word):
		return userOrProgram
	case userName.MatchString(word) && !startsPrograms(word) && (perhapsSystem || programName.MatchString(words[at+1])):
		return likelyUser
	}
	return noUser
}

var assignmentLine = regexp.MustCompile(`^\s*("[^"=]+"|'[^'=]+'|[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)$`)

func isAssignment(line string) bool {
	return assignmentLine.MatchString(strings.TrimRight(line, "\r\n"))
}

// readAssignments reads all assignments first, because supercronic applies the last one to the whole file.
func (t *crontab) readAssignments(lines []numbered) {
	for _, l := range lines {
		if isAssignment(l.text) {
			t.readAssignment(l)
		}
	}
}

// readAssignment reads NAME=VALUE. Nothing is expanded in a value.
func (t *crontab) readAssignment(l numbered) {
	m := assignmentLine.FindStringSubmatch(l.text)
	name, value := strings.Trim(m[1], `"'`), strings.TrimRight(m[2], " \t")
	if quoted, ok := unquoteValue(value); ok {
		value = quoted
	} else if t.Dialect != "supercronic" && t.Dialect != "systemd-cron" && t.Dialect != "busybox" {
		t.refuseLine(l)
		return
	}
	if value == "" && m[2] == "" && cmp.Or(t.Dialect, "debian") == "debian" {
		t.refuseLine(l)
		return
	}
	t.env = slices.DeleteFunc(t.env, func(v variable) bool { return v.name == name })
	t.env = append(t.env, variable{name, value})
}

// refuseLine adds an entry for a line for which the dialect refuses the whole file.
func (t *crontab) refuseLine(l numbered) {
	t.newEntry(fmt.Sprintf("%s:%d", t.name, l.number), l.text).
		refuse("%s takes this for no assignment, and refuses the whole file for it: nothing of it runs there", t.dialect.name)
}

// unquoteValue removes the quotes around a value. It returns false if a quote is not closed at the end.
func unquoteValue(value string) (string, bool) {
	if value == "" || value[0] != '"' && value[0] != '\'' {
		return value, true
	}
	if len(value) < 2 || strings.IndexByte(value[1:], value[0]) != len(value)-2 {
		return value, false
	}
	return value[1 : len(value)-1], true
}

func (t *crontab) readLine(l numbered) {
	if isAssignment(l.text) {
		if t.Dialect != "supercronic" {
			t.readAssignment(l)
		}
		return
	}
	e := t.newEntry(fmt.Sprintf("%s:%d", t.name, l.number), l.text)
	if l.unfinished && !slices.Contains([]string{"busybox", "supercronic", "systemd-cron"}, t.Dialect) {
		e.refuse("%s does not run a last line that no newline ends", t.dialect.name)
	}
	text := l.text
	switch {
	case t.Dialect == "cronie":
		text = strings.TrimPrefix(text, "-") // no syslog
	case t.Dialect == "busybox" && strings.Contains(text, "#"):
		m := busyboxComment.FindStringSubmatch(text)
		if m == nil {
			e.refuse("busybox crond ends a line at #, also inside a command")
			break
		}
		text = m[1]
	}
	times, command, err := t.splitSchedule(text)
	if err != nil {
		e.refuse("%v", err)
	}
	t.setProgram(e, command)
	e.setTime(times, t.useZone(e, t.zoneVariable()))
	t.setDelay(e)
}

// busyboxComment has the text before a comment that a shell, too, would ignore.
var busyboxComment = regexp.MustCompile(`^([^#'"]*[ \t])#`)

// zoneVariable returns the zone that a variable sets for the schedule, or "".
func (t *crontab) zoneVariable() string {
	zone := t.variable("CRON_TZ")
	switch t.Dialect {
	case "cronie", "supercronic":
		return zone
	case "systemd-cron":
		return cmp.Or(zone, t.variable("TZ"))
	}
	if zone != "" {
		t.warn("%s: %s ignores CRON_TZ for schedules", t.name, t.dialect.name)
	}
	return ""
}

// setDelay sets the jitter for RANDOM_DELAY.
func (t *crontab) setDelay(e *entry) {
	delay := t.variable("RANDOM_DELAY")
	if delay == "" || t.Dialect != "cronie" && t.Dialect != "systemd-cron" {
		return
	}
	if n, err := number(delay); err != nil || n > 1440 {
		e.refuse("RANDOM_DELAY %q is no number of minutes up to 1440", delay)
	} else if n > 0 {
		e.jitter = fmt.Sprintf("%dm", n)
		e.note("RANDOM_DELAY: the delay differs from tick to tick here; there it is one for all runs")
	}
}

func (t *crontab) variable(name string) string {
	for _, v := range t.env {
		if v.name == name {
			return v.value
		}
	}
	return ""
}

// splitSchedule parses the schedule at the beginning of a line, and returns the rest. The rest is returned even if there is an error, as far as it is known.
func (t *crontab) splitSchedule(line string) (times calendarTime, rest string, err error) {
	if strings.HasPrefix(line, "@") {
		words, rest := cutWords(line, 1)
		times, err := t.nickname(words[0])
		return times, rest, err
	}
	counts := []int{5}
	if t.Dialect == "supercronic" {
		counts = []int{7, 6, 5}
	}
	for _, n := range counts {
		words, after := cutWords(line, n)
		if len(words) < n || after == "" && n > 5 {
			rest, err = "", errors.New("a line with fewer than five fields")
			continue
		}
		times, err = t.fields(words)
		if rest = after; err == nil || n > 5 && areFields(words) {
			return times, rest, err
		}
	}
	return times, rest, err
}

var (
	fieldShape = regexp.MustCompile(`(?i)^(?:[0-9*?,/#-]|l|w|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sun|mon|tue|wed|thu|fri|sat)[a-z]*)+$`)
	yearShape  = regexp.MustCompile(`^[0-9*?,/-]+$`)
)

// areFields reports whether words that end with a year may be fields that supercronic reads and this package does not.
func areFields(words []string) bool {
	return yearShape.MatchString(words[len(words)-1]) && !slices.ContainsFunc(words, func(w string) bool { return !fieldShape.MatchString(w) })
}

func (t *crontab) nickname(word string) (calendarTime, error) {
	fields, known := nicknames()[word]
	if t.Dialect == "systemd-cron" {
		more := map[string]string{"@minutely": "* * * * *", "@weekly": "0 0 * * 1", "@quarterly": "0 0 1 1,4,7,10 *", "@semi-annually": "0 0 1 1,7 *", "@bi-annually": "0 0 1 1,7 *"}
		if f, ok := more[word]; ok {
			fields, known = f, true
		}
	}
	switch {
	case word == "@reboot":
		return calendarTime{}, errors.New("@reboot has no equivalent, because a job belongs to the cluster: use a unit of the machine's service manager")
	case !known:
		return calendarTime{}, fmt.Errorf("%q is no schedule of %s", shorten(word), t.dialect.name)
	}
	m, err := dialects()["debian"].parseMoment(strings.Fields(fields))
	if err != nil {
		return calendarTime{}, err
	}
	return m.express()
}

// fields parses five fields. In supercronic a sixth, at the end, is the year, and a seventh, in front, the seconds.
func (t *crontab) fields(words []string) (calendarTime, error) {
	var years yearRange
	if len(words) > 5 {
		var err error
		if years, err = parseYears(words[len(words)-1]); err != nil {
			return calendarTime{}, err
		}
		words = words[:len(words)-1]
	}
	m, err := t.dialect.parseMoment(words)
	if err != nil {
		return calendarTime{}, err
	}
	m.years = years
	return m.express()
}

// parseYears parses a year field: "*", one year, or a range.
func parseYears(text string) (yearRange, error) {
	if text == "*" || text == "?" {
		return yearRange{}, nil
	}
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	first, err := number(low)
	last, err2 := number(high)
	if err != nil || err2 != nil || first < 1970 || last > 2099 || first > last {
		return yearRange{}, fmt.Errorf("%q is no year, or range of years", shorten(text))
	}
	return yearRange{first, last}, nil
}

// cutWords returns the first n words of a line, and the rest of it.
func cutWords(line string, n int) (words []string, rest string) {
	rest = line
	for range n {
		rest = strings.TrimLeft(rest, " \t")
		if rest == "" {
			return words, ""
		}
		end := strings.IndexAny(rest, " \t")
		if end < 0 {
			end = len(rest)
		}
		words = append(words, rest[:end])
		rest = rest[end:]
	}
	return words, strings.TrimLeft(rest, " \t")
}

const longestDebianCommand = 998

// setProgram sets the command of a line, with its user, shell, standard input and environment.
func (t *crontab) setProgram(e *entry, command string) {
	if t.system {
		words, rest := cutWords(command, 1)
		if len(words) == 0 || rest == "" {
			e.refuse("a line of a system crontab without a user and a command")
			return
		}
		e.user, command = words[0], rest
		if strings.HasPrefix(e.user, "*") || strings.ContainsAny(e.user, "/'\"$&|;()") {
			e.refuse("%q is no user: is this a user's crontab, or does the schedule have another number of fields?", shorten(e.user))
			e.user = ""
		}
	}
	e.user = cmp.Or(e.user, t.owner)
	command = t.dropFlags(e, command)
	if command == "" {
		e.refuse("a line without a command")
		return
	}
	if cmp.Or(t.Dialect, "debian") == "debian" && len(command) > longestDebianCommand {
		e.refuse("the command is longer than the %d characters that %s takes", longestDebianCommand, t.dialect.name)
	}
	e.timeout = "none"
	e.shell = nil
	if shell := t.variable("SHELL"); shell != "" && shell != "/bin/sh" {
		e.shell = []string{shell, "-c"}
	}
	t.setInput(e, command)
	t.setEnvironment(e)
	t.setHome(e)
}

// setHome lets the job start in the home of its user, as crons do. HOME is not always set: without it, "cd" alone would stay in the folder of the replica.
func (t *crontab) setHome(e *entry) {
	switch {
	case t.Dialect == "supercronic":
		t.warn("supercronic starts jobs in its own folder, and as its own user: write dir and user")
		return
	case e.dir == "" && !likeSh(e.shell):
		e.refuse("a SHELL that is not like sh, for a job that starts in the home of its user: write HOME=")
	case e.dir == "":
		e.script = "cd \"${HOME:?}\" || exit\n" + e.script
	}
	if e.user == "" && e.refused == "" {
		e.note("write user = \"...\": it is not known whose crontab this was")
		t.warn("%s: it is not known whose crontab this is: write user in each job, because without it the user of the replica runs it", t.name)
	}
}

// likeSh reports whether the shell of a job reads the syntax of sh.
func likeSh(shells []string) bool {
	shell := append(slices.Clone(shells), "sh")[0]
	return strings.HasSuffix(shell, "sh") && !strings.HasSuffix(shell, "csh") && !strings.HasSuffix(shell, "fish")
}

var cronFlags = regexp.MustCompile(`^-[nqs]+$`)

// dropFlags removes the flags before a command: -n and -q are about mail and log, and -s is what cronclave does anyway.
func (t *crontab) dropFlags(e *entry, command string) string {
	for t.Dialect == "openbsd" || t.Dialect == "cronie" {
		words, rest := cutWords(command, 1)
		if len(words) == 0 || !cronFlags.MatchString(words[0]) || t.Dialect == "cronie" && words[0] != "-n" {
			break
		}
		e.note("%s is left out: there is no mail of output", words[0])
		command = rest
	}
	return command
}

// setInput splits a command at its first %: what follows is its standard input.
func (t *crontab) setInput(e *entry, command string) {
	e.script, e.program = command, command
	if t.Dialect == "busybox" || t.Dialect == "supercronic" {
		return
	}
	if t.Dialect == "systemd-cron" {
		e.script = strings.ReplaceAll(command, `\%`, `%`)
		if e.script != command || !strings.Contains(command, "%") {
			return
		}
		e.refuse("systemd-cron passes %% on as it is, and other crons end the command there")
		return
	}
	body, input := splitPercent(command, cmp.Or(t.Dialect, "debian") != "debian")
	e.script = body
	if strings.TrimSpace(body) == "" {
		e.refuse("a line without a command")
	}
	if input == "" {
		return
	}
	if !likeSh(e.shell) {
		e.refuse("a %% that gives standard input, with a SHELL that is not like sh")
		return
	}
	var quoted []string
	for line := range strings.SplitSeq(strings.TrimSuffix(input, "\n"), "\n") {
		quoted = append(quoted, shellQuote(line))
	}
	e.script = fmt.Sprintf("printf '%%s\\n' %s | {\n%s\n}\n", strings.Join(quoted, " "), body)
	e.note("the text after %% is the command's standard input")
}

// splitPercent splits a command at its first % without a backslash. In the input, further ones are newlines. Without keepBackslashes, \\ is an escape, too.
func splitPercent(command string, keepBackslashes bool) (body, input string) {
	var b strings.Builder
	i := 0
	for ; i < len(command) && command[i] != '%'; i++ {
		if command[i] == '\\' && i+1 < len(command) {
			next := command[i+1]
			if next != '%' && (next != '\\' || keepBackslashes) {
				b.WriteByte('\\')
			}
			b.WriteByte(next)
			i++
			continue
		}
		b.WriteByte(command[i])
	}
	if i >= len(command) {
		return b.String(), ""
	}
	const escaped = "\x00"
	input = strings.ReplaceAll(command[i+1:], `\%`, escaped)
	input = strings.ReplaceAll(input, "%", "\n")
	return b.String(), strings.ReplaceAll(input, escaped, "%")
}

func shellQuote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !strings.ContainsRune(safeInShell, r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

const safeInShell = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-"

var userVariable = regexp.MustCompile(`\$\{?(?:USER|LOGNAME)\b`)

// setEnvironment sets the variables. Apart from busybox and supercronic, a cron starts its jobs with an environment of its own.
func (t *crontab) setEnvironment(e *entry) {
	path := map[string]string{"cronie": "/usr/bin:/bin:/usr/sbin:/sbin", "busybox": "", "supercronic": "", "systemd-cron": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"}
	if own, ok := path[t.Dialect]; !ok || own != "" {
		e.ownEnv = true
		e.setEnv("PATH", cmp.Or(own, "/usr/bin:/bin"))
	}
	if m := userVariable.FindString(e.program); m != "" && e.user == "" && t.Dialect != "supercronic" {
		e.refuse("%s has no value, because it is not known whose crontab this was", m)
	}
	for _, v := range t.env {
		switch v.name {
		case "SHELL", "LOGNAME", "USER":
		case "MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING", "CRON_TZ", "RANDOM_DELAY":
			if strings.Contains(e.program, v.name) && t.Dialect != "busybox" {
				e.setEnv(v.name, v.value)
			}
		case "HOME":
			if t.Dialect == "busybox" {
				continue
			}
			if t.Dialect != "supercronic" {
				e.dir = v.value
			}
			e.setEnv(v.name, v.value)
		case "PATH":
			e.setEnv(v.name, v.value)
		default:
			if t.Dialect != "busybox" { // which skips other assignments
				e.setEnv(v.name, v.value)
			}
		}
	}
	switch {
	case t.Dialect == "systemd-cron":
		e.dir = "/"
	case e.dir == "" && e.user == "root":
		e.dir = "/root"
	}
	if e.dir != "" && !filepath.IsAbs(e.dir) {
		e.refuse("HOME %q is no absolute path", e.dir)
	}
}
