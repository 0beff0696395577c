package config

import (
	"errors"
	"maps"
	"slices"
)

// labels reads a table of labels: those that a replica has, or those that a job requires. A job's own table takes the place of that of [defaults] as
// a whole, so that an empty one lets the job run anywhere.
func (r *reader) labels(v value) (labels map[string]string, ok bool) {
	table, ok := v.raw.(map[string]any)
	if !ok {
		r.mistyped(v, `a table of strings such as { zone = "a" }`)
		return nil, false
	}
	labels = make(map[string]string, len(table))
	for _, name := range slices.Sorted(maps.Keys(table)) {
		item, _ := v.get(name)
		if _, err := validName(name); err != nil {
			r.faultAt(item, item.at.key, "label %q %v", name, err)
			ok = false
		}
		text, fine := r.word(item, "a string")
		labels[name], ok = text, ok && fine
	}
	return labels, ok
}

// KeepsPrivileges returns whether programs that the command executes get no more rights than the command has, as by a set-user-ID bit. no_new_privs
// sets it; by default it is true where the job has a user.
func (j *Job) KeepsPrivileges() bool {
	if j.NoNewPrivs != nil {
		return *j.NoNewPrivs
	}
	return j.User != ""
}

// finishUser warns of a job that gets the environment of another user without asking for it.
func (r *reader) finishUser(d *draft) {
	user, set := d.at["user"]
	if _, said := d.at["inherit_env"]; set && d.User != "" && !said && len(d.Command) > 0 {
		r.warn(user, user.at.key, "user is set and inherit_env is not: the job inherits the replica's environment, with its secrets; "+
			"write inherit_env = false, or inherit_env = true to keep it")
	}
}

// machineKeys say where a job runs, as which user, and what it may take of the machine.
func machineKeys() []key[draft] {
	return []key[draft]{
		{
			name: "where", kind: "table of strings", doc: "Labels that a replica must have to run the job. `{}` takes back that of `[defaults]`.",
			read: func(r *reader, v value, d *draft) { assign(&d.Where)(r.labels(v)) },
		},
		stringKey("user", func(d *draft) *string { return &d.User }, "The user that the command runs as; cronclave must be root. Sets `HOME`, `USER`, `LOGNAME` and `SHELL`."),
		stringKey("group", func(d *draft) *string { return &d.Group }, "The group that the command runs as; cronclave must be root.").by("the user's"),
		{
			name: "no_new_privs", kind: kindBool, standard: says[draft](prose("true with `user`, else false")), read: readNoNewPrivs,
			doc: "No program that the command starts gets more rights than it has, as by set-user-ID bits (sudo).",
		},
		{
			name: "umask", kind: kindString, allowed: "three octal digits, such as `\"027\"`", standard: says[draft](prose("the replica's")), doc: "The umask of the command.",
			read: func(r *reader, v value, d *draft) {
				assign(&d.Umask)(parsed(r, v, `a string such as "027"`, parseUmask))
			},
		},
		{name: "nice", kind: kindInteger, allowed: "-20 to 19", standard: says[draft](prose("the replica's")), read: readNice, doc: "The scheduling priority; 19 lets all others go first."},
		{
			name: "limits", kind: kindTable, doc: "What a run may take, with all its processes: see [limits](#limits). Needs a writable cgroup (v2).",
			read: func(r *reader, v value, d *draft) { read(r, v, limitsKeys(), &d.Limits) },
		},
	}
}

func readNoNewPrivs(r *reader, v value, d *draft) {
	if on, ok := r.boolean(v); ok {
		d.NoNewPrivs = &on
	}
}

func readNice(r *reader, v value, d *draft) {
	if n, ok := r.integer(v, -20, 19); ok {
		d.Nice = &n
	}
}

// mostPids is the most that Linux can have.
const mostPids = 4 << 20

// leastMemory is what hardly a program starts without.
const leastMemory = 1 << 20

func limitsKeys() section[Limits] {
	return section[Limits]{keys: []key[Limits]{
		{
			name: "memory", kind: kindSize, allowed: "1MiB or more", doc: "Memory of all processes of a run together; the kernel kills the run beyond it.",
			read: func(r *reader, v value, to *Limits) {
				assign(&to.Memory)(parsed(r, v, `a size in a string, such as "512MiB" or "1GiB"`, parseMemory))
			},
		},
		integerKey("pids", 1, mostPids, func(l *Limits) *int { return &l.Pids }, "Processes and threads of a run together; beyond it, forks fail.").optional(),
	}}
}

func parseMemory(s string) (int64, error) {
	n, err := parseSize(s)
	if err == nil && n < leastMemory {
		err = errors.New("is too small; 1MiB is the least")
	}
	return n, err
}
