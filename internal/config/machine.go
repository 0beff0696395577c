package config

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/internal/units"
)

// readLabels reads the labels of a replica or the `where` of a job. The table of a job replaces the whole table of [defaults], so a job with an empty table
// runs on any replica.
func readLabels(r *schema.Reader, v document.Value) (all map[string]string, ok bool) {
	table, ok := v.Raw.(map[string]any)
	if !ok {
		r.Mistyped(v, `a table of strings such as { zone = "a" }`)
		return nil, false
	}
	all = make(map[string]string, len(table))
	for _, name := range slices.Sorted(maps.Keys(table)) {
		item, _ := v.Get(name)
		if _, err := validName(name); err != nil {
			r.Fault(item.AtKey(), "label %q %v", name, err)
			ok = false
		}
		text, fine := r.Word(item, "a string")
		all[name], ok = text, ok && fine
	}
	return all, ok
}

// finishUser warns about a job that, by default, passes the environment of the replica to another user. An explicit inherit_env silences the warning.
func finishUser(r *schema.Reader, d *draft) {
	user, set := d.at["user"]
	if _, said := d.at["inherit_env"]; set && d.User != "" && !said && len(d.Command) > 0 {
		r.Warn(user.AtKey(), "user is set and inherit_env is not: the job inherits the replica's environment, with its secrets; "+
			"write inherit_env = false, or inherit_env = true to keep it")
	}
}

// machineKeys returns the keys that select the replica, the user and the resources of a job.
func machineKeys() []schema.Key[draft] {
	return []schema.Key[draft]{
		schema.Field("where", "table of strings", func(d *draft) *map[string]string { return &d.Where }, readLabels,
			"Labels that a replica must have to run the job. `{}` takes back that of `[defaults]`."),
		schema.String("user", func(d *draft) *string { return &d.User }, "The user that the command runs as; cronclave must be root. Sets `HOME`, `USER`, `LOGNAME` and `SHELL`."),
		schema.String("group", func(d *draft) *string { return &d.Group }, "The group that the command runs as; cronclave must be root.").By("the user's"),
		schema.Field("no_new_privs", schema.KindBool, func(d *draft) **bool { return &d.NoNewPrivs }, optionalField((*schema.Reader).Boolean),
			"No program that the command starts gets more rights than it has, as by set-user-ID bits (sudo).").By("true with `user`, else false").
			ValueOf(func(d *draft) any { return d.KeepsPrivileges() }),
		schema.Field("umask", schema.KindString, func(d *draft) **uint32 { return &d.Umask }, optionalField(readUmask), "The umask of the command.").
			Allow("three octal digits, such as `\"027\"`").By("the replica's").ValueOf(umaskOf),
		schema.Field("nice", schema.KindInteger, func(d *draft) **int { return &d.Nice }, optionalField(readNice), "The scheduling priority; 19 lets all others go first.").
			Allow("-20 to 19").By("the replica's"),
		schema.Table("limits", func(d *draft) *Limits { return &d.Limits }, limitsKeys(),
			"What a run may take, with all its processes: see [limits](#limits). Needs a writable cgroup (v2)."),
	}
}

// optionalField adapts a reader to a field that is a pointer, which stays nil if the key is not set.
func optionalField[T any](read func(*schema.Reader, document.Value) (T, bool)) func(*schema.Reader, document.Value) (*T, bool) {
	return func(r *schema.Reader, v document.Value) (*T, bool) {
		value, ok := read(r, v)
		return &value, ok
	}
}

func readNice(r *schema.Reader, v document.Value) (int, bool) { return r.Integer(v, -20, 19) }

var umaskPattern = regexp.MustCompile(`^0?[0-7]{1,3}$`)

func readUmask(r *schema.Reader, v document.Value) (uint32, bool) {
	return schema.Parsed(r, v, `a string such as "027"`, func(s string) (uint32, error) {
		if !umaskPattern.MatchString(s) {
			return 0, errors.New(`is not a umask; write three octal digits such as "027"`)
		}
		mask, err := strconv.ParseUint(s, 8, 32)
		return uint32(mask), err
	})
}

func umaskOf(d *draft) any {
	if d.Umask == nil {
		return nil
	}
	return fmt.Sprintf("%03o", *d.Umask)
}

// mostPids is the largest pid_max of Linux.
const mostPids = 4 << 20

// leastMemory is the smallest permitted memory limit. A program can hardly start with less.
const leastMemory = 1 << 20

func limitsKeys() schema.Section[Limits] {
	return schema.Section[Limits]{Keys: []schema.Key[Limits]{
		schema.Field("memory", schema.KindSize, func(l *Limits) *int64 { return &l.Memory }, readMemory,
			"Memory of all processes of a run together; the kernel kills the run beyond it.").Allow("1MiB or more").
			DefaultOf(func(l *Limits) any { return schema.Bytes(l.Memory) }).Optional(),
		schema.Integer("pids", 1, mostPids, func(l *Limits) *int { return &l.Pids }, "Processes and threads of a run together; beyond it, forks fail.").Optional(),
	}}
}

func readMemory(r *schema.Reader, v document.Value) (int64, bool) {
	return schema.Parsed(r, v, `a size in a string, such as "512MiB" or "1GiB"`, func(s string) (int64, error) {
		n, err := units.ParseSize(s)
		if err == nil && n < leastMemory {
			err = errors.New("is too small; 1MiB is the least")
		}
		return n, err
	})
}
