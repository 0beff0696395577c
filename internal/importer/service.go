package importer

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cronclave/cronclave/internal/units"
)

// A service is the service that a timer starts, and the entry that its command goes into.
type service struct {
	unit *unit
	*entry
	instance string
}

const servicePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"

func (s service) read() {
	kind := strings.ToLower(s.unit.last("Service.Type"))
	switch kind {
	case "", "simple", "exec", "oneshot":
	default:
		s.refuse("a service of the type %s", kind)
	}
	if s.unit.isTrue("Service.RemainAfterExit") {
		s.refuse("RemainAfterExit=yes: it runs once after the boot, and then never again")
	}
	for _, key := range []string{"ExecCondition", "ExecStartPre", "ExecStartPost", "ExecStopPost"} {
		if key != "ExecStartPre" && s.unit.last("Service."+key) != "" {
			s.refuse("%s= has no equivalent", key)
		}
	}
	s.ownEnv = true
	s.readEnvironment()
	s.readCommands(kind == "oneshot")
	s.readSettings()
	s.readLimits(kind == "oneshot")
	s.listLost()
}

// readCommands sets the command. Several commands become one script that ends at the first failure.
func (s service) readCommands(oneshot bool) {
	lines := slices.Concat(s.unit.all("Service.ExecStartPre"), s.unit.all("Service.ExecStart"))
	s.refuseManagerVariables(strings.Join(lines, "\n"))
	if len(s.unit.all("Service.ExecStart")) == 0 {
		s.refuse("a service without a command")
		return
	}
	if len(s.unit.all("Service.ExecStart")) > 1 && !oneshot {
		s.refuse("several commands, which only a oneshot service may have")
	}
	var commands []execLine
	for _, line := range lines {
		parsed, err := s.parseExec(line)
		if err != nil {
			s.refuse("%v", err)
			return
		}
		commands = append(commands, parsed...)
	}
	if len(commands) == 1 && commands[0].plain() {
		s.argv = commands[0].argv()
		return
	}
	var b strings.Builder
	for i, c := range commands {
		line := c.shell()
		switch {
		case c.ignored:
			line += " || true"
		case i == len(commands)-1:
			line = "exec " + line
		}
		b.WriteString(line + "\n")
	}
	s.script, s.shell = b.String(), []string{"/bin/sh", "-ec"}
	s.program = strings.Join(commands[len(commands)-1].argv(), " ")
}

// An execLine is one command of ExecStart=.
type execLine struct {
	words   []execWord
	ignored bool // a failure is a success
}

// managerVariable matches variables that systemd sets, in a command or in the script of a shell.
var managerVariable = regexp.MustCompile(`\$\{?((?:STATE|RUNTIME|CACHE|LOGS|CONFIGURATION|CREDENTIALS)_DIRECTORY|HOME|USER|LOGNAME|SHELL|` +
	`INVOCATION_ID|MAINPID|MANAGERPID|JOURNAL_STREAM|NOTIFY_SOCKET|WATCHDOG_[A-Z]+|LISTEN_[A-Z]+|TRIGGER_[A-Z_]+|SYSTEMD_[A-Z_]+|MONITOR_[A-Z_]+)\b`)

// refuseManagerVariables refuses commands with a variable that systemd sets and cronclave does not: it would be empty, as in "rm -r ${STATE_DIRECTORY}/x".
func (s service) refuseManagerVariables(commands string) {
	for _, m := range managerVariable.FindAllStringSubmatch(commands, -1) {
		_, known := s.getEnv(m[1])
		ofUser := slices.Contains([]string{"HOME", "USER", "LOGNAME", "SHELL"}, m[1]) && s.unit.last("Service.User") != ""
		if !known && !ofUser {
			s.refuse("the variable %s is systemd's: it has no value here", m[1])
		}
	}
}

// An execWord is a word of a command: parts of plain text, and the names of variables whose values are not known, in turn.
type execWord struct{ parts []string }

func (c execLine) plain() bool {
	return !c.ignored && !slices.ContainsFunc(c.words, func(w execWord) bool { return len(w.parts) > 1 })
}

func (c execLine) argv() (argv []string) {
	for _, w := range c.words {
		text := ""
		for i, p := range w.parts {
			if i%2 == 1 {
				p = "$" + p
			}
			text += p
		}
		argv = append(argv, text)
	}
	return argv
}

func (c execLine) shell() string {
	words := make([]string, len(c.words))
	for i, w := range c.words {
		for k, p := range w.parts {
			switch {
			case k%2 == 1:
				words[i] += `"${` + p + `}"`
			case p != "" || len(w.parts) == 1:
				words[i] += shellQuote(p)
			}
		}
	}
	return strings.Join(words, " ")
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)

// parseExec parses the value of ExecStart=, which is no shell command: quotes and escapes are systemd's, and only a lone ";" separates commands.
func (s service) parseExec(line string) ([]execLine, error) {
	words, err := splitQuoted(line)
	if err != nil {
		return nil, err
	}
	var commands []execLine
	current := execLine{}
	literal := false // ":" turns variables off
	for _, w := range words {
		if w.text == ";" && !w.quoted {
			if len(current.words) > 0 {
				commands = append(commands, current)
			}
			current, literal = execLine{}, false
			continue
		}
		text := w.text
		if text == `\;` {
			text = ";"
		}
		if len(current.words) == 0 {
			text, literal, err = s.cutPrefixes(text, &current)
			if err != nil {
				return nil, err
			}
		}
		if text, err = s.expandSpecifiers(text); err != nil {
			return nil, err
		}
		expanded, err := s.expandVariables(text, literal)
		if err != nil {
			return nil, err
		}
		if len(current.words) == 0 && (len(expanded) != 1 || expanded[0].parts[0] != text) {
			return nil, errors.New("a variable as the name of a program")
		}
		current.words = append(current.words, expanded...)
	}
	if len(current.words) > 0 {
		commands = append(commands, current)
	}
	if len(commands) == 0 {
		return nil, errors.New("a service without a command")
	}
	return commands, nil
}

// cutPrefixes reads the characters before the path of a program.
func (s service) cutPrefixes(text string, c *execLine) (rest string, literal bool, err error) {
	for text != "" {
		switch text[0] {
		case '-':
			c.ignored = true
		case ':':
			literal = true
		case '+', '!':
			s.note("the prefix %c gives the command more rights than the service; here it has the rights of user", text[0])
		case '@', '|':
			return "", false, fmt.Errorf("the prefix %c of a command has no equivalent", text[0])
		default:
			return text, literal, nil
		}
		text = text[1:]
	}
	return "", false, errors.New("a service without a command")
}

// expandVariables replaces $NAME and ${NAME} in a word. $NAME counts only if it is the whole word, and becomes the words of its value.
func (s service) expandVariables(text string, literal bool) ([]execWord, error) {
	if literal || !strings.Contains(text, "$") {
		return []execWord{{[]string{text}}}, nil
	}
	if name := variableName.FindString(text[1:]); text[0] == '$' && name != "" && len(name) == len(text)-1 {
		value, known := s.getEnv(name)
		words, err := splitQuoted(value)
		if !known || err != nil {
			return nil, fmt.Errorf("$%s becomes several words, and its value is not known here", name)
		}
		var expanded []execWord
		for _, w := range words {
			expanded = append(expanded, execWord{[]string{w.text}})
		}
		return expanded, nil
	}
	var w execWord
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		name := ""
		if strings.HasPrefix(text[i:], "${") {
			name = variableName.FindString(text[i+2:])
		}
		switch {
		case strings.HasPrefix(text[i:], "$$"):
			b.WriteByte('$')
			i++
		case name != "" && strings.HasPrefix(text[i+2+len(name):], "}"):
			i += len("${}") + len(name) - 1
			value, known := s.getEnv(name)
			if b.WriteString(value); known {
				continue
			}
			if s.envFile == "" && !slices.ContainsFunc(s.envFromFile, func(v variable) bool { return v.name == name }) && !managerVariable.MatchString("$"+name) {
				return nil, fmt.Errorf("the variable %s has no value", name)
			}
			w.parts = append(w.parts, b.String(), name)
			b.Reset()
		default:
			b.WriteByte(text[i])
		}
	}
	w.parts = append(w.parts, b.String())
	return []execWord{w}, nil
}

type quotedWord struct {
	text   string
	quoted bool
}

// splitQuoted splits a line at blanks, with the quotes and the C escapes of systemd.
func splitQuoted(line string) (words []quotedWord, err error) {
	var b strings.Builder
	inWord, quote, quoted := false, byte(0), false
	end := func() {
		if inWord {
			words = append(words, quotedWord{b.String(), quoted})
		}
		b.Reset()
		inWord, quoted = false, false
	}
	for i := 0; i < len(line); i++ {
		ch := line[i]
		switch {
		case ch == '\\' && i+1 < len(line):
			text, n, ok := cEscape(line[i+1:])
			if !ok {
				return nil, fmt.Errorf("an escape that systemd does not know: %q", shorten(line[i:]))
			}
			if line[i+1] == ';' {
				text = `\;`
			}
			b.WriteString(text)
			inWord = true
			i += n
		case quote != 0 && ch == quote:
			quote = 0
		case quote == 0 && (ch == '"' || ch == '\''):
			quote, inWord, quoted = ch, true, true
		case quote == 0 && (ch == ' ' || ch == '\t'):
			end()
		default:
			b.WriteByte(ch)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote that is not closed")
	}
	end()
	return words, nil
}

// cEscape returns the text of an escape sequence without its backslash, and its length.
func cEscape(s string) (text string, n int, ok bool) {
	if i := strings.IndexByte(`abfnrtv\"'s;`, s[0]); i >= 0 {
		return "\a\b\f\n\r\t\v\\\"' ;"[i : i+1], 1, true
	}
	for prefix, digits := range map[byte]int{'x': 2, 'u': 4, 'U': 8} {
		if s[0] == prefix && len(s) > digits {
			v, err := strconv.ParseUint(s[1:1+digits], 16, 32)
			if err == nil && v > 0 && v <= utf8.MaxRune {
				return string(rune(v)), 1 + digits, true
			}
		}
	}
	if len(s) >= 3 {
		if v, err := strconv.ParseUint(s[:3], 8, 8); err == nil && v > 0 {
			return string([]byte{byte(v)}), 3, true
		}
	}
	return "", 0, false
}

// expandSpecifiers replaces the specifiers that do not depend on the host.
func (s service) expandSpecifiers(text string) (string, error) {
	name := s.unit.name
	stem := strings.TrimSuffix(name, path.Ext(name))
	prefix, _, _ := strings.Cut(stem, "@")
	last := prefix[strings.LastIndex(prefix, "-")+1:]
	known := map[byte]string{
		'%': "%", 'n': name, 'N': stem, 'p': prefix, 'P': unescapeUnit(prefix), 'j': last, 'J': unescapeUnit(last), 'i': s.instance, 'I': unescapeUnit(s.instance),
		't': "/run", 'S': "/var/lib", 'C': "/var/cache", 'L': "/var/log", 'E': "/etc", 'T': "/tmp", 'V': "/var/tmp",
	}
	switch user := s.unit.last("Service.User"); user { // without a user, %h suggests a unit of a user's own manager
	case "":
	case "root":
		known['u'], known['U'], known['h'], known['g'], known['G'] = "root", "0", "/root", "root", "0"
	default:
		known['u'] = user
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '%' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		value, ok := known[text[i]]
		if !ok {
			return "", fmt.Errorf("the specifier %%%c depends on the host or the user's manager", text[i])
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

// unescapeUnit reverses systemd-escape: "-" is "/", and \xHH a byte.
func unescapeUnit(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '-' {
			b.WriteByte('/')
			continue
		}
		if strings.HasPrefix(text[i:], `\x`) && i+4 <= len(text) {
			if v, err := strconv.ParseUint(text[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// readEnvironment sets the variables. In systemd, a file of EnvironmentFile= wins over Environment=; here, env wins. So they do not go together.
func (s service) readEnvironment() {
	files := s.unit.all("Service.EnvironmentFile")
	switch {
	case len(files) == 0:
		s.setEnv("PATH", servicePath)
		setDirectories(s.entry, s.unit)
	case len(files) > 1:
		s.refuse("several files of EnvironmentFile=: env_file takes one")
	case s.unit.last("Service.Environment") != "":
		s.refuse("Environment= beside EnvironmentFile=: the file wins there, and env wins here")
	}
	for _, line := range s.unit.all("Service.Environment") {
		words, err := splitQuoted(line)
		if err != nil {
			s.refuse("Environment=: %v", err)
		}
		for _, w := range words {
			text, err := s.expandSpecifiers(w.text)
			name, value, ok := strings.Cut(text, "=")
			if err != nil || !ok || !variableName.MatchString(name) {
				s.refuse("Environment= has a word that is no NAME=VALUE, or a specifier of the host")
				continue
			}
			s.setEnv(name, value)
		}
	}
	for _, file := range files {
		name, optional := strings.CutPrefix(file, "-")
		expanded, err := s.expandSpecifiers(name)
		if err != nil || !path.IsAbs(expanded) || strings.ContainsAny(expanded, "*?[") {
			s.refuse("EnvironmentFile=%s is no single file", file)
			continue
		}
		s.envFile = expanded
		if optional {
			s.note("%s must be there: without it the job does not start", expanded)
		}
	}
	for _, key := range []string{"AmbientCapabilities", "PassEnvironment", "LoadCredential", "SetCredential", "LoadCredentialEncrypted"} {
		if s.unit.last("Service."+key) != "" {
			s.refuse("%s= has no equivalent", key)
		}
	}
}

// setDirectories sets the variables for the folders that systemd makes.
func setDirectories(e *entry, u *unit) {
	for _, d := range [][2]string{{"State", "/var/lib/"}, {"Cache", "/var/cache/"}, {"Logs", "/var/log/"}, {"Configuration", "/etc/"}} {
		if value := strings.Join(u.all("Service."+d[0]+"Directory"), " "); value != "" && !strings.ContainsAny(value, " \t:%") {
			e.setEnv(strings.ToUpper(d[0])+"_DIRECTORY", d[1]+value)
			e.note("%s%s must be there", d[1], value)
		}
	}
}

func (s service) readSettings() {
	for key, field := range map[string]*string{"User": &s.user, "Group": &s.group, "WorkingDirectory": &s.dir} {
		value := s.unit.last("Service." + key)
		expanded, err := s.expandSpecifiers(value)
		if err != nil {
			s.refuse("%s=: %v", key, err)
		}
		*field = expanded
		if strings.ContainsAny(expanded, " \t#") {
			s.refuse("%s=%s: a comment behind a value is part of it", key, expanded)
		}
	}
	s.dir = strings.TrimPrefix(s.dir, "-")
	root := s.user == "" || s.user == "root"
	switch {
	case s.dir == "":
		s.dir = "/"
	case s.dir == "~" && root:
		s.dir = "/root"
	case s.dir == "~":
		s.refuse("WorkingDirectory=~: write the home of %s", s.user)
	}
	s.user = cmp.Or(s.user, "root")
	s.keepsPrivileges = s.unit.isTrue("Service.NoNewPrivileges")
	if s.unit.isTrue("Service.DynamicUser") {
		s.refuse("DynamicUser=yes has no equivalent")
	}
	if umask := s.unit.last("Service.UMask"); umask != "" {
		s.umask = fmt.Sprintf("%03s", strings.TrimLeft(umask, "0"))
	}
	if nice := s.unit.last("Service.Nice"); nice != "" {
		n, err := strconv.Atoi(nice)
		if err != nil {
			s.refuse("Nice=%s is no number", nice)
		}
		s.nice = n
	}
	for _, word := range strings.Fields(strings.Join(s.unit.all("Service.SuccessExitStatus"), " ")) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 0 || n > 255 {
			s.refuse("SuccessExitStatus=%s is no exit code", word)
			return
		}
		if len(s.okExitCodes) == 0 {
			s.okExitCodes = []int{0}
		}
		s.okExitCodes = append(s.okExitCodes, n)
	}
}

var (
	sizeText = regexp.MustCompile(`^([0-9]+)([KMGT]?)$`)
	lostKeys = regexp.MustCompile(`^Service\.(Protect|Private|Restrict|SystemCall|Capability|ReadOnly|ReadWrite|Inaccessible|Bind|Temporary|Lock|MemoryDeny|` +
		`Sandbox|IOScheduling|IOWeight|CPU|Limit|Slice|Delegate|Device|IPAddress|RootDirectory|StateDirectory|RuntimeDirectory|LogsDirectory|CacheDirectory|ConfigurationDirectory|Standard|Syslog|Kill|OOM|MemoryHigh|MemorySwap)`)
)

// readLimits sets the time-outs and limits. RuntimeMaxSec= has no effect on a oneshot service, for which TimeoutStartSec= is the limit.
func (s service) readLimits(oneshot bool) {
	key := "Service.RuntimeMaxSec"
	if oneshot {
		key = "Service.TimeoutStartSec"
		if s.unit.last(key) == "" {
			key = "Service.TimeoutSec"
		}
	}
	s.timeout = "none"
	if text := s.unit.last(key); text != "" && text != "infinity" && text != "0" {
		if d, err := timeSpan(text); err != nil {
			s.refuse("%s=%s is no time", key, text)
		} else {
			s.timeout = units.FormatDuration(d)
		}
	}
	if text := s.unit.last("Service.TimeoutStopSec"); text != "" && text != "infinity" {
		if d, err := timeSpan(text); err == nil {
			s.killGrace = units.FormatDuration(d)
		}
	}
	if text := s.unit.last("Service.MemoryMax"); text != "" && text != "infinity" {
		if m := sizeText.FindStringSubmatch(text); m == nil {
			s.refuse("MemoryMax=%s is no size", text)
		} else {
			s.memory = m[1] + map[string]string{"": "B", "K": "KiB", "M": "MiB", "G": "GiB", "T": "TiB"}[m[2]]
		}
	}
	if text := s.unit.last("Service.TasksMax"); text != "" && text != "infinity" {
		n, err := strconv.Atoi(text)
		if err != nil {
			s.refuse("TasksMax=%s is no number", text)
		}
		s.pids = n
	}
	if restart := s.unit.last("Service.Restart"); restart != "" && restart != "no" {
		if restart != "on-failure" {
			s.refuse("Restart=%s has no equivalent", restart)
		}
		s.retry = &retry{max: 5}
		if d, err := timeSpan(s.unit.last("Service.RestartSec")); err == nil && d > 0 {
			s.retry.delay = units.FormatDuration(d)
			s.retry.maxDelay = s.retry.delay
		}
		s.note("Restart=on-failure: at most 5 more tries here")
	}
}

// listLost names the settings that are lost, because many of them are security.
func (s service) listLost() {
	var lost []string
	for key := range s.unit.settings {
		if lostKeys.MatchString(key) {
			lost = append(lost, strings.TrimPrefix(key, "Service."))
		}
		if strings.HasPrefix(key, "Unit.Condition") || strings.HasPrefix(key, "Unit.Assert") {
			s.refuse("%s= decides there whether it runs", strings.TrimPrefix(key, "Unit."))
		}
	}
	slices.Sort(lost)
	if len(lost) > 0 {
		s.note("lost, some of it security: %s", strings.Join(lost, ", "))
	}
	if s.unit.last("Unit.OnFailure") != "" {
		s.note("OnFailure=%s is left out; see [notify.NAME]", s.unit.last("Unit.OnFailure"))
	}
}
