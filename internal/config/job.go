package config

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// draft is a job in the making: [defaults], and what a job's own table has changed so far.
type draft struct {
	Job
	at    map[string]value // where each key is set, in the job's table or in [defaults]
	wrong map[string]bool  // keys that have a fault, so that nothing need be concluded from them
	named map[string]bool  // variables that this table's own env names
	filed map[string]value // where each variable of env_from_file is

	exprs  []expression
	except []expression
	before []expression // the jobs that it runs after
	pool   expansion
	argv   []string // command, if it is a list
	script string   // command, if it is a string
	shell  []string
	hidden hidden
}

// expression is one of a schedule, with its place.
type expression struct {
	value
	expansion
}

// newDraft returns a job of which nothing is set.
func newDraft(zone *time.Location) draft {
	return draft{
		Job: Job{
			Enabled: true, InheritEnv: true, Location: zone, OKExitCodes: []int{0},
			Env: make(map[string]string), EnvFromFile: make(map[string]string),
			Parallel: 1, PerTick: 1, PerReplica: 1,
			Timeout: 24 * time.Hour, KillGrace: 10 * time.Second, Lease: 30 * time.Second,
			Output:        Output{Keep: 16 << 10, Log: true},
			Retry:         Retry{Max: noMax},
			CatchUpWindow: 24 * time.Hour,
		},
		at:     make(map[string]value),
		wrong:  make(map[string]bool),
		named:  make(map[string]bool),
		filed:  make(map[string]value),
		shell:  []string{"/bin/sh", "-c"},
		hidden: hidden{env: make(map[string]string), files: make(map[string]string)},
	}
}

// derive returns a draft that starts from this one and shares nothing that a job changes.
func (d *draft) derive() draft {
	c := *d
	c.Env, c.EnvFromFile = maps.Clone(d.Env), maps.Clone(d.EnvFromFile)
	c.at, c.wrong, c.filed = maps.Clone(d.at), maps.Clone(d.wrong), maps.Clone(d.filed)
	c.hidden.env, c.hidden.files = maps.Clone(d.hidden.env), maps.Clone(d.hidden.files)
	c.EnvTaken, c.named = make(map[string]bool), make(map[string]bool)
	return c
}

// defaultKeys are those of [defaults]: any job key, each once in the configuration.
func defaultKeys() section[draft] {
	s := jobKeys()
	s.once = true
	return s
}

// jobKeys are the keys of a job's table.
func jobKeys() section[draft] {
	s := section[draft]{
		keys: slices.Concat(aboutKeys(), tickKeys(), commandKeys(), environmentKeys(), machineKeys(), slotKeys(), attemptKeys(), stopKeys()),
		later: []string{
			"http", "notify", "warn_after", "stale_after",
		},
	}
	for i := range s.keys {
		set := s.keys[i].read
		s.keys[i].read = func(r *reader, v value, d *draft) { d.noting(r, v, set) }
	}
	return s
}

// aboutKeys describe a job and set the handling of its output.
func aboutKeys() []key[draft] {
	return []key[draft]{
		boolKey("enabled", func(d *draft) *bool { return &d.Enabled }, "Whether the job runs at all."),
		stringKey("description", func(d *draft) *string { return &d.Description }, "What the job is for; the completion of job names shows it."),
		{
			name: "tags", kind: kindStrings, doc: "Labels of the job, by which `pause` and `resume` choose jobs.",
			read: func(r *reader, v value, d *draft) { assign(&d.Tags)(r.words(v)) },
		},
		{
			name: "output", kind: kindTable, doc: "What becomes of what a run prints: see [output](#output).",
			read: func(r *reader, v value, d *draft) { read(r, v, outputKeys(), &d.Output) },
		},
	}
}

// commandKeys say what a job executes.
func commandKeys() []key[draft] {
	return []key[draft]{
		{
			name: "command", kind: "list of strings, or string", read: readCommand,
			doc: "A list is a program and its arguments, and runs directly; a string runs with `shell`. Required.",
		},
		{
			name: "shell", kind: kindStrings, read: readShell, standard: func(d *draft) any { return d.shell },
			doc: "The program and arguments before a `command` that is a string.",
		},
		{
			name: "dir", kind: kindPath, standard: says[draft](prose("the replica's")), doc: "The folder in which the command runs.",
			read: func(r *reader, v value, d *draft) { d.readPath(r, v, &d.Dir) },
		},
		{
			name: "ok_exit_codes", kind: "list of integers", allowed: "0 to 255", read: readExitCodes, standard: func(d *draft) any { return d.OKExitCodes },
			doc: "Exit codes of a run that ended `ok`.",
		},
	}
}

// noting reads a key and notes where it is, and whether it has a fault.
func (d *draft) noting(r *reader, v value, set func(*reader, value, *draft)) {
	before := len(r.faults)
	d.at[v.name] = v
	set(r, v, d)
	d.wrong[v.name] = slices.ContainsFunc(r.faults[before:], func(f Fault) bool { return !f.Warning })
}

func outputKeys() section[Output] {
	return section[Output]{keys: []key[Output]{
		{
			name: "keep", kind: kindSize, allowed: "up to 64MiB", standard: func(of *Output) any { return bytes(of.Keep) },
			doc:  "How much of the end of it the history keeps. Bounded by `[history].max_bytes`.",
			read: func(r *reader, v value, to *Output) { assign(&to.Keep)(r.size(v, 64<<20)) },
		},
		boolKey("log", func(to *Output) *bool { return &to.Log }, "Whether all of it goes to the replica's log, line by line."),
	}}
}

// readSchedule reads an expression or a list of them. They are parsed when the job's name and zone are known.
func readSchedule(r *reader, v value, d *draft) {
	assign(&d.exprs)(r.expressions(v, `an expression in a string, such as "0 3 * * *", or a list of them`))
}

// expressions reads a string, or a non-empty list of them.
func (r *reader) expressions(v value, want string) ([]expression, bool) {
	one := func(item value) (expression, bool) {
		e, ok := r.text(item, want)
		return expression{item, e}, ok
	}
	if _, isString := v.raw.(string); isString {
		e, ok := one(v)
		return []expression{e}, ok
	}
	return list(r, v, want, one)
}

// textsOf are the texts of expressions, with their variables replaced.
func textsOf(exprs []expression) []string {
	var texts []string
	for _, e := range exprs {
		texts = append(texts, e.text)
	}
	return texts
}

// readCommand reads a list, or a string for the shell. Neither has its variables replaced.
func readCommand(r *reader, v value, d *draft) {
	const want = `a list of strings such as ["/usr/bin/backup", "--all"], or a string for the shell`
	if script, isString := v.raw.(string); isString {
		if r.argument(v, script) {
			d.script, d.argv = script, nil
		}
		if strings.TrimSpace(script) == "" {
			r.fault(v, "%q is empty", v.name)
		}
		return
	}
	if argv, ok := r.verbatim(v, want); ok {
		d.script, d.argv = "", argv
	}
}

func readShell(r *reader, v value, d *draft) {
	assign(&d.shell)(r.verbatim(v, `a list of strings such as ["/bin/bash", "-eo", "pipefail", "-c"]`))
}

// verbatim reads the list of a program and its arguments as they are. A ${NAME} there looks as if it were replaced.
func (r *reader) verbatim(v value, want string) ([]string, bool) {
	argv, ok := list(r, v, want, func(item value) (string, bool) {
		s, ok := item.raw.(string)
		if !ok {
			r.mistyped(item, want)
			return "", false
		}
		for _, m := range variable.FindAllStringIndex(s, -1) {
			if _, _, _, ok := parseVariable(s[m[0]:m[1]]); ok && r.count.warnings < maxFaults {
				r.warn(item, item.offset(m[0]), "%s is not replaced in %s, it is passed on as it is; set env, or write the command as a string for the shell", s[m[0]:m[1]], v.name)
			}
		}
		return s, r.argument(item, s)
	})
	if ok && argv[0] == "" {
		r.fault(v.items()[0], "%q names no program", v.name)
		return nil, false
	}
	return argv, ok
}

// argument refuses what the system can't pass on to a program.
func (r *reader) argument(v value, s string) bool {
	if i := strings.IndexByte(s, 0); i >= 0 {
		r.faultAt(v, v.offset(i), "%q must not hold a NUL character", v.name)
		return false
	}
	return true
}

func readExitCodes(r *reader, v value, d *draft) {
	assign(&d.OKExitCodes)(list(r, v, "a list of whole numbers such as [0, 1]", func(item value) (int, bool) {
		return r.integer(item, 0, 255)
	}))
}

func readOverlap(r *reader, v value, d *draft) {
	if v.raw == "allow" {
		r.fault(v, `overlap "allow" is none of the policies; let runs overlap by parallel, the number of runs at once, and per_tick`)
		return
	}
	d.Overlap, _ = r.choice(v, "skip", "queue", "replace")
	if d.Overlap == "skip" {
		d.Overlap = ""
	}
}

// limit reads a duration longer than zero, or a word that stands for 0.
func (r *reader) limit(v value, word string) (time.Duration, bool) {
	want := `a duration in a string, such as "90s", or "` + word + `"`
	if s, isString := v.raw.(string); isString && s == word {
		return 0, true
	}
	return parsed(r, v, want, func(s string) (time.Duration, error) { return parseLimit(s, word) })
}

// readPath reads a path and keeps for the digest how it is written.
func (d *draft) readPath(r *reader, v value, to *string) {
	path, ok := r.path(v)
	assign(to)(path, ok)
	d.hidden.files[v.name], _ = v.raw.(string)
}
