package importer

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cronclave/cronclave/internal/config"
)

// An entry is one job of a source, carried or refused. Its fields are keys of a job in cronclave; a zero value is not written.
type entry struct {
	place   string   // FILE:LINE, or FILE and an object
	source  []string // the original text, for the comment above a refused job
	refused string   // the reason; "" if the entry is carried
	notes   []string // differences of this job from the original

	program           string // the command from which a name is derived; "" means argv or script
	name, description string
	tags              []string
	disabled          bool

	ticks
	process
	policies
}

// ticks has the values of the keys that say when a job runs.
type ticks struct {
	original         []string // the lines of the source that say it, if they are lines of their own
	schedule, except []string
	calendar         []string // dates of the job's own calendar
	startsAt         string
	expiresAt        string
	after            []string
	zone             string
}

// process has the values of the keys that say what runs, and as whom.
type process struct {
	argv   []string
	script string
	shell  []string

	dir, user, group, umask string
	env                     []variable
	envFile                 string
	envFromFile             []variable
	ownEnv                  bool // the job does not inherit the replica's environment
	keepsPrivileges         bool // programs cannot gain rights
	memory                  string
	nice, pids              int
}

// policies has the values of the other keys.
type policies struct {
	jitter, startDeadline, catchUp, catchUpWindow, timeout, killGrace string
	overlap, pool                                                     string
	parallel, perTick                                                 int
	retry                                                             *retry
	okExitCodes                                                       []int
}

// A variable is a variable of the environment, with its value or with the file that has it.
type variable struct{ name, value string }

type retry struct {
	max             int
	delay, maxDelay string
}

// refuse sets the reason for which the entry is not carried. The first reason stays.
func (e *entry) refuse(format string, args ...any) {
	if e.refused == "" {
		e.refused = fmt.Sprintf(format, args...)
	}
}

// note adds a remark once.
func (e *entry) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(e.notes, text) {
		e.notes = append(e.notes, text)
	}
}

// setTime sets the schedule, with the years as bounds in the job's zone.
func (e *entry) setTime(t calendarTime, zone *time.Location) {
	e.schedule, e.except, e.calendar = t.exprs, t.except, t.dates
	newYear := func(year int) string { return time.Date(year, 1, 1, 0, 0, 0, 0, zone).Format(time.RFC3339) }
	if t.years.first > 0 {
		e.startsAt = newYear(t.years.first)
	}
	if t.years.last > 0 {
		e.expiresAt = newYear(t.years.last + 1)
	}
}

// setEnv adds a variable. A later one of the same name replaces it. A value that looks like a secret is not printed: the job reads it from a file.
func (e *entry) setEnv(name, value string) {
	e.unsetEnv(name)
	if secretName(name) && value != "" || hasSecret(value) {
		e.secretEnv(name)
		return
	}
	e.env = append(e.env, variable{name, value})
}

// secretEnv adds a variable whose value the user has to put into a file.
func (e *entry) secretEnv(name string) {
	e.unsetEnv(name)
	e.envFromFile = append(e.envFromFile, variable{name, "/etc/cronclave/secrets/" + name})
	e.note("put the value of %s into the file that env_from_file names", name)
}

func (e *entry) unsetEnv(name string) {
	keep := func(list []variable) (kept []variable) {
		for _, v := range list {
			if v.name != name {
				kept = append(kept, v)
			}
		}
		return kept
	}
	e.env, e.envFromFile = keep(e.env), keep(e.envFromFile)
}

func (e *entry) getEnv(name string) (value string, known bool) {
	for _, v := range e.env {
		if v.name == name {
			return v.value, true
		}
	}
	return "", false
}

// A namer hands out names of jobs, each once.
type namer map[string]int

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// unique returns a valid name that was not handed out before.
func (n namer) unique(wish string) string {
	const longest = 110
	name := strings.Trim(notInNames.ReplaceAllString(wish, "-"), "-_")
	if len(name) > longest {
		name = name[:longest]
	}
	if !config.ValidName(name) {
		name = "job"
	}
	for {
		n[name]++
		if n[name] == 1 {
			return name
		}
		next := fmt.Sprintf("%s-%d", name, n[name])
		if n[next] == 0 {
			n[next] = 1
			return next
		}
	}
}

var (
	// commandEnd matches what is between two commands of a shell, and the head of a case up to its first pattern.
	commandEnd = regexp.MustCompile(`[;\n]|\|\|?|&&|\bcase\s.*?\sin\s[^)]*\)`)
	assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
	// prefixes matches keywords of the shell, and programs that start another one and have only options and assignments before it.
	prefixes = regexp.MustCompile(`^(zsh|dash|ksh|python[0-9.]*|php[0-9.]*|perl|ruby|node|nohup|chronic|cronic|cronlock|run-one|setsid|eatmydata|command|` +
		`if|then|elif|else|while|until|do|true|umask|eval)$`)
	// wrappers lists the programs that start the program that a job is named after, and that have operands of their own.
	wrappers = map[string]wrapper{
		"bash": {"oO", "", 0}, "sh": {"o", "", 0}, "set": {"o", "", 0}, "exec": {"a", "", 0},
		"env":         {"uC", "unset chdir", 0},
		"sudo":        {"ugCDhpRrTtU", "user group close-from chdir host prompt chroot role type", 0},
		"doas":        {"uC", "", 0},
		"su":          {"sgGwT", "shell group supp-group", 1},
		"runuser":     {"ugGswT", "user group supp-group shell", 0},
		"gosu":        {"", "", 1},
		"su-exec":     {"", "", 1},
		"setuidgid":   {"", "", 1},
		"setpriv":     {"", "reuid regid ruid rgid euid egid groups inh-caps ambient-caps bounding-set securebits pdeathsig", 0},
		"nice":        {"n", "adjustment", 0},
		"ionice":      {"cn", "class classdata", 0},
		"chrt":        {"TPD", "", 1},
		"taskset":     {"", "", 1},
		"timeout":     {"ks", "kill-after signal", 1},
		"flock":       {"wE", "timeout wait conflict-exit-code", 1},
		"setlock":     {"", "", 1},
		"lckdo":       {"WE", "", 1},
		"stdbuf":      {"ioe", "input output error", 0},
		"time":        {"fo", "format output", 0},
		"systemd-cat": {"tp", "identifier priority stderr-priority", 0},
		"systemd-run": {"puHME", "property unit description slice uid gid nice working-directory setenv service-type", 0},
	}
	// unnamed lists the first words of commands without a program that a job is named after.
	unnamed = regexp.MustCompile(`^(cd|test|\[\[?|sleep|\.|source|export|exit|read|for|select|case|function|fi|done|esac)$`)
)

// A wrapper is a program that starts another one. short has the letters of its options with an operand, and long their long names. Before the other program,
// it has a number of operands.
type wrapper struct {
	short, long string
	operands    int
}

// takesNext reports whether the next word is the operand of an option.
func (w wrapper) takesNext(option string) bool {
	if name, long := strings.CutPrefix(option, "--"); long {
		return slices.Contains(strings.Fields(w.long), name)
	}
	at := strings.IndexAny(option, w.short)
	return at > 0 && at == len(option)-1
}

// startsPrograms reports whether a word is a wrapper or a keyword before the program that a job is named after.
func startsPrograms(word string) bool {
	_, wraps := wrappers[word]
	return wraps || prefixes.MatchString(word)
}

// programOf returns a name for a command: the base name of the first program that is no wrapper, keyword, directory change or test.
func programOf(command string) string {
	for _, simple := range commandEnd.Split(command, -1) {
		var last wrapper
		for words := strings.Fields(simple); len(words) > 0; words = words[1:] {
			bare := strings.Trim(words[0], `"'(){}`)
			base := path.Base(bare)
			switch {
			case strings.HasPrefix(bare, "-"):
				if last.takesNext(bare) && len(words) > 1 {
					words = words[1:]
				}
				continue
			case last.operands > 0 && bare != "":
				last.operands--
				continue
			case words[0] == "}" || bare != "" && unnamed.MatchString(base):
				words = words[:1]
				continue
			case bare == "" || assignment.MatchString(bare) || bare[0] < 'A' && bare[0] != '/' && bare[0] != '.':
				continue
			case !startsPrograms(base):
				return strings.TrimSuffix(base, path.Ext(base))
			}
			last = wrappers[base]
			if base == "su" || base == "runuser" { // the user may also stand behind the command
				if at := slices.IndexFunc(words, func(w string) bool { return w == "-c" || w == "-lc" || w == "--command" }); at > 0 {
					last, words = wrapper{}, words[at:]
				}
			}
		}
	}
	return "job"
}

// printable returns text that may stand in a comment of TOML.
func printable(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return utf8.RuneError
		}
		return r
	}, text)
}
