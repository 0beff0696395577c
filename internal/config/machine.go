package config

import (
	"errors"
	"maps"
	"slices"
)

// labels reads a table of labels: what a replica has, or what a job asks for. A job's own takes the place of that of [defaults] as a
// whole, so that an empty one lets the job run anywhere.
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

// KeepsPrivileges tells whether no program that the command executes gets more rights than the command has, as by a set-user-ID bit: what no_new_privs says, and
// by default where the job has a user.
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
		r.warn(user, user.at.key, "user is set and inherit_env is not: the job gets the environment of the replica's own user, secrets included; "+
			"write inherit_env = false, or true if that is meant")
	}
}

func readNice(r *reader, v value, d *draft) {
	if n, ok := r.integer(v, -20, 19); ok {
		d.Nice = &n
	}
}

// leastMemory is what hardly a program starts without.
const leastMemory = 1 << 20

func limitsKeys() section[Limits] {
	return section[Limits]{keys: map[string]func(*reader, value, *Limits){
		"memory": func(r *reader, v value, to *Limits) {
			assign(&to.Memory)(parsed(r, v, `a size in a string, such as "512MiB" or "1GiB"`, parseMemory))
		},
		"pids": func(r *reader, v value, to *Limits) { assign(&to.Pids)(r.integer(v, 1, 4<<20)) }, // the most that Linux can have
	}}
}

func parseMemory(s string) (int64, error) {
	n, err := parseSize(s)
	if err == nil && n < leastMemory {
		err = errors.New("is too small; 1MiB is the least")
	}
	return n, err
}
