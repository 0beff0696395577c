package config

import (
	"maps"
	"slices"
	"strings"
)

// fromFile begins the names of env_from_file's entries in hidden.files.
const fromFile = "env_from_file."

// ownVariables are those that cronclave sets in a job's environment, whatever else would set them.
func ownVariables() []string {
	return []string{
		"CRONCLAVE_JOB", "CRONCLAVE_NAMESPACE", "CRONCLAVE_REPLICA", "CRONCLAVE_RUN_ID", "CRONCLAVE_TICK",
		"CRONCLAVE_TICK_UNIX", "CRONCLAVE_ATTEMPT", "CRONCLAVE_FENCING_TOKEN", "CRONCLAVE_SLOT", "CRONCLAVE_SLOTS",
		"CRONCLAVE_TRIGGER",
	}
}

// environmentKeys set the environment of a job's command.
func environmentKeys() []key[draft] {
	return []key[draft]{
		{
			name: "env", kind: "table of strings", read: readEnv, doc: "Variables of the command. A job's own are added to those of `[defaults]`.",
		},
		{
			name: "env_file", kind: kindPath, doc: "A file of `NAME=VALUE` lines, read with the rights of the job's user when a run starts. `env` goes before it.",
			read: func(r *reader, v value, d *draft) { d.readPath(r, v, &d.EnvFile) },
		},
		{
			name: "env_from_file", kind: "table of paths", read: readEnvFromFile,
			doc: "Variables whose values are in files, such as `{ PGPASSWORD = \"/run/secrets/pg\" }`; read when a run starts.",
		},
		boolKey("inherit_env", func(d *draft) *bool { return &d.InheritEnv },
			"Whether the command gets the replica's environment, less what the configuration took from it; else `PATH`, `HOME`, `LANG` and `TZ`."),
	}
}

// readEnv reads the variables of `env`. A job's own are added to those of [defaults], or take their places, also in
// env_from_file.
func readEnv(r *reader, v value, d *draft) {
	if d.EnvTaken != nil {
		v.takes = d.EnvTaken
	}
	r.variables(v, `{ LANG = "C" }`, func(item value) {
		e, ok := r.text(item, "a string")
		if !ok || !r.argument(item, e.text) {
			return
		}
		d.named[item.name] = true
		delete(d.EnvFromFile, item.name)
		delete(d.hidden.files, fromFile+item.name)
		d.Env[item.name] = e.text
		d.hidden.env[item.name] = item.raw.(string)
	})
}

// readEnvFromFile reads the files of `env_from_file`. Keys are read in the order of their names, so `env` of the same
// table has been read.
func readEnvFromFile(r *reader, v value, d *draft) {
	r.variables(v, `{ PGPASSWORD = "/run/secrets/pg" }`, func(item value) {
		if d.named[item.name] {
			r.faultAt(item, item.at.key, "%q is in env as well; remove one of them", item.name)
			return
		}
		if path, ok := r.path(item); ok && r.argument(item, path) {
			delete(d.Env, item.name)
			delete(d.hidden.env, item.name)
			d.EnvFromFile[item.name], d.filed[item.name] = path, item
			d.hidden.files[fromFile+item.name] = item.raw.(string)
		}
	})
}

// variables reads a table whose keys are the names of environment variables.
func (r *reader) variables(v value, example string, each func(value)) {
	table, ok := v.raw.(map[string]any)
	if !ok {
		r.mistyped(v, "a table of strings such as "+example)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		item, _ := v.get(name)
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			r.faultAt(item, item.at.key, "%q can't be the name of a variable", name)
		case slices.Contains(ownVariables(), name):
			r.faultAt(item, item.at.key, "%s is set by cronclave itself; remove it", name)
		default:
			each(item)
		}
	}
}

// composed names the variables of `env` whose values have a variable of the environment in them; nil for none.
func (d *draft) composed() map[string]bool {
	var names map[string]bool
	for name, written := range d.hidden.env {
		if len(expand(written, func(string) (string, bool) { return "", true }, false).names) == 0 {
			continue
		}
		if names == nil {
			names = map[string]bool{}
		}
		names[name] = true
	}
	return names
}
