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
		keys: map[string]func(*reader, value, *draft){
			"schedule":      readSchedule,
			"after":         readAfter,
			"except":        readExcept,
			"starts_at":     func(r *reader, v value, d *draft) { assign(&d.StartsAt)(r.instant(v)) },
			"expires_at":    func(r *reader, v value, d *draft) { assign(&d.ExpiresAt)(r.instant(v)) },
			"timezone":      func(r *reader, v value, d *draft) { assign(&d.Location)(parsed(r, v, "a string", parseZone)) },
			"command":       readCommand,
			"shell":         readShell,
			"dir":           func(r *reader, v value, d *draft) { d.readPath(r, v, &d.Dir) },
			"env":           readEnv,
			"env_file":      func(r *reader, v value, d *draft) { d.readPath(r, v, &d.EnvFile) },
			"env_from_file": readEnvFromFile,
			"inherit_env":   func(r *reader, v value, d *draft) { assign(&d.InheritEnv)(r.boolean(v)) },
			"user":          func(r *reader, v value, d *draft) { assign(&d.User)(r.word(v, "a string")) },
			"group":         func(r *reader, v value, d *draft) { assign(&d.Group)(r.word(v, "a string")) },
			"no_new_privs": func(r *reader, v value, d *draft) {
				if on, ok := r.boolean(v); ok {
					d.NoNewPrivs = &on
				}
			},
			"umask": func(r *reader, v value, d *draft) {
				assign(&d.Umask)(parsed(r, v, `a string such as "027"`, parseUmask))
			},
			"nice":            readNice,
			"limits":          func(r *reader, v value, d *draft) { read(r, v, limitsKeys(), &d.Limits) },
			"where":           func(r *reader, v value, d *draft) { assign(&d.Where)(r.labels(v)) },
			"ok_exit_codes":   readExitCodes,
			"enabled":         func(r *reader, v value, d *draft) { assign(&d.Enabled)(r.boolean(v)) },
			"description":     func(r *reader, v value, d *draft) { assign(&d.Description)(r.word(v, "a string")) },
			"tags":            func(r *reader, v value, d *draft) { assign(&d.Tags)(r.words(v)) },
			"parallel":        func(r *reader, v value, d *draft) { assign(&d.Parallel)(r.integer(v, 1, 1000)) },
			"per_tick":        func(r *reader, v value, d *draft) { assign(&d.PerTick)(r.integer(v, 1, 1000)) },
			"per_replica":     func(r *reader, v value, d *draft) { assign(&d.PerReplica)(r.integer(v, 1, 1000)) },
			"pool":            readPool,
			"overlap":         readOverlap,
			"start_deadline":  func(r *reader, v value, d *draft) { assign(&d.StartDeadline)(r.limit(v, "auto")) },
			"timeout":         func(r *reader, v value, d *draft) { assign(&d.Timeout)(r.limit(v, "none")) },
			"kill_grace":      func(r *reader, v value, d *draft) { assign(&d.KillGrace)(r.duration(v, 0)) },
			"lease":           func(r *reader, v value, d *draft) { assign(&d.Lease)(r.within(v, time.Second, MaxLease)) },
			"on_lease_lost":   func(r *reader, v value, d *draft) { assign(&d.OutlivesLease)(r.either(v, "stop", "continue")) },
			"jitter":          func(r *reader, v value, d *draft) { assign(&d.Jitter)(r.duration(v, 0)) },
			"output":          func(r *reader, v value, d *draft) { read(r, v, outputKeys(), &d.Output) },
			"catch_up":        func(r *reader, v value, d *draft) { assign(&d.CatchUp)(r.choice(v, "none", "latest", "all")) },
			"catch_up_window": func(r *reader, v value, d *draft) { assign(&d.CatchUpWindow)(r.duration(v, time.Second)) },
			"recover":         readRecover,
			"retry":           func(r *reader, v value, d *draft) { read(r, v, retryKeys(), &d.Retry) },
		},
		later: []string{
			"http", "notify", "warn_after", "stale_after",
		},
	}
	for key, set := range s.keys {
		s.keys[key] = func(r *reader, v value, d *draft) { d.noting(r, v, set) }
	}
	return s
}

// noting reads a key and notes where it is, and whether it has a fault.
func (d *draft) noting(r *reader, v value, set func(*reader, value, *draft)) {
	before := len(r.faults)
	d.at[v.name] = v
	set(r, v, d)
	d.wrong[v.name] = slices.ContainsFunc(r.faults[before:], func(f Fault) bool { return !f.Warning })
}

func outputKeys() section[Output] {
	return section[Output]{keys: map[string]func(*reader, value, *Output){
		"keep": func(r *reader, v value, to *Output) { assign(&to.Keep)(r.size(v, 64<<20)) },
		"log":  func(r *reader, v value, to *Output) { assign(&to.Log)(r.boolean(v)) },
	}}
}

// readSchedule reads an expression or a list of them. What they mean is found out when the job's name and zone are known.
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

// textsOf is what expressions say, with their variables replaced.
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
