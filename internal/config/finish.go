package config

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

var umaskPattern = regexp.MustCompile(`^0?[0-7]{1,3}$`)

// job reads one job's table on top of the defaults and checks it as a whole.
func (r *reader) job(v value, base *draft, t *top) Job {
	d := base.derive()
	d.Name, d.File = v.name, v.src.name
	d.Line, _ = v.src.position(v.at.key)
	read(r, v, jobKeys(), &d)
	r.finishCommand(v, &d)
	r.finishUser(&d)
	r.finishAfter(v, &d)
	r.finishSchedule(v, &d, t.calendars)
	r.checkSlots(&d)
	r.finishPool(&d, t.Pools)
	r.finishRetry(&d)
	r.finishCatchUp(v, &d)
	r.finishRecover(&d)
	r.jobFiles(&d)
	if keep, set := d.at["output"]; set && d.Output.Keep > t.History.MaxBytes {
		r.warn(keep, keep.at.key, "output.keep is more than [history].max_bytes, which bounds the output of all runs of the job")
	}
	for _, e := range d.before {
		t.links = append(t.links, link{d.Name, e})
	}
	d.Digest = d.digest()
	d.EnvComposed = d.composed()
	return d.Job
}

// finishCommand joins shell and command.
func (r *reader) finishCommand(v value, d *draft) {
	r.need(v, d, "command", "http")
	switch {
	case d.script != "":
		d.Shell, d.Command = true, append(slices.Clone(d.shell), d.script)
	default:
		d.Command = d.argv
	}
	if shell := d.at["shell"]; d.argv != nil && shell.path == v.path+".shell" {
		r.warn(shell, shell.at.key, "shell has no effect here: command is a list, which runs directly")
	}
}

// need reports that a key is missing, unless the key that takes its place is there (and not supported yet), or one that is spelled nearly so.
func (r *reader) need(v value, d *draft, key, or string) {
	_, set := d.at[key]
	_, instead := d.at[or]
	if _, unsupported := v.get(or); unsupported {
		instead = true
	}
	if !set && !instead && !r.meant[v.path+"."+key] {
		r.faultAt(v, v.at.key, "[%s] has no %s; set %s", v.path, key, key)
	}
}

// finishSchedule parses the schedule and its exceptions for this job.
func (r *reader) finishSchedule(v value, d *draft, known calendars) {
	r.need(v, d, "schedule", "after")
	d.Schedule = textsOf(d.exprs)
	except := r.finishExcept(d, known)
	var err error
	open := func(e expression) bool { return e.open }
	if len(d.exprs) > 0 && !d.wrong["schedule"] && !slices.ContainsFunc(slices.Concat(d.exprs, d.except), open) {
		d.Spec, err = cronspec.Parse(d.Schedule, cronspec.Options{Location: d.Location, Name: d.Name,
			Except: d.Except, ExceptDates: d.ExceptDates, StartsAt: d.StartsAt, ExpiresAt: d.ExpiresAt})
	}
	r.wrongSchedule(d, err, except)
	r.finishBounds(d, err)
}

// wrongSchedule reports the mistakes in the expressions of a schedule, and in those of its exceptions.
func (r *reader) wrongSchedule(d *draft, err error, except []expression) {
	for _, one := range unjoin(err) {
		var wrong *cronspec.ParseError
		switch {
		case errors.Is(one, cronspec.ErrNoTick): // see finishBounds
		case errors.As(one, &wrong) && wrong.Except && wrong.Index < len(except):
			r.wrongExpression(except[wrong.Index], wrong)
		case errors.As(one, &wrong) && !wrong.Except && wrong.Index < len(d.exprs):
			r.wrongExpression(d.exprs[wrong.Index], wrong)
		default:
			r.fault(d.at["schedule"], "%s", oneLine(one.Error()))
		}
	}
}

// unjoin returns the errors that errors.Join has made one.
func unjoin(err error) []error {
	if err == nil {
		return nil
	}
	if several := (interface{ Unwrap() []error })(nil); errors.As(err, &several) {
		return several.Unwrap()
	}
	return []error{err}
}

// wrongExpression points into the expression. With a variable in it that can't be done, and the message might reveal a value from the environment.
func (r *reader) wrongExpression(e expression, wrong *cronspec.ParseError) {
	if len(e.names) > 0 {
		r.fault(e.value, "%s %q is no schedule with the values that the environment gives", e.name, e.raw)
		return
	}
	message := e.name + ": " + wrong.Message
	if wrong.Hint != "" {
		message += "; " + wrong.Hint
	}
	r.faultAt(e.value, e.offset(wrong.Offset), "%s", oneLine(message))
}

// checkSlots checks parallel, per_tick and per_replica against each other.
func (r *reader) checkSlots(d *draft) {
	if d.wrong["parallel"] {
		return
	}
	if _, set := d.at["per_tick"]; !set && d.Parallel > 1 {
		v := d.at["parallel"]
		r.faultAt(v, v.at.key, "parallel = %d needs per_tick: 1 lets runs of different ticks overlap, %d runs each tick on as many replicas", d.Parallel, d.Parallel)
	}
	for _, key := range []string{"per_tick", "per_replica"} {
		n := map[string]int{"per_tick": d.PerTick, "per_replica": d.PerReplica}[key]
		if n > d.Parallel && !d.wrong[key] {
			v := d.nearestPlace(key, "parallel")
			r.fault(v, "%s = %d is more than parallel = %d", key, n, d.Parallel)
		}
	}
}

// finishCatchUp leaves nothing of it where nothing is caught up.
func (r *reader) finishCatchUp(v value, d *draft) {
	window, windowed := d.at["catch_up_window"]
	switch {
	case d.CatchUp == "none" || d.CatchUp == "":
		if windowed && window.path == v.path+".catch_up_window" && !d.wrong["catch_up"] {
			r.warn(window, window.at.key, `catch_up_window has no effect here: set catch_up = "latest" or "all"`)
		}
		d.CatchUp, d.CatchUpWindow = "", 0
	case d.PerTick > 1 && !d.wrong["per_tick"]:
		r.fault(d.nearestPlace("catch_up", "per_tick"), "catch_up = %q does not go with per_tick = %d: a tick that has run on some replicas was not missed", d.CatchUp, d.PerTick)
	}
}

// nearestPlace returns the place of the first of the keys that the job's own table sets, else that of the first.
func (d *draft) nearestPlace(keys ...string) value {
	for _, key := range keys {
		if v, set := d.at[key]; set && strings.HasPrefix(v.path, "jobs.") {
			return v
		}
	}
	return d.at[keys[0]]
}

func parseUmask(s string) (*uint32, error) {
	if !umaskPattern.MatchString(s) {
		return nil, errors.New(`is not a umask; write three octal digits such as "027"`)
	}
	n, err := strconv.ParseUint(s, 8, 32)
	mask := uint32(n)
	return &mask, err
}

// parseLimit reads a duration longer than zero; the word stands for no limit.
func parseLimit(s, word string) (time.Duration, error) {
	if s == word {
		return 0, nil
	}
	d, err := ParseDuration(s)
	if err != nil {
		return 0, errors.New(err.Error() + `; or write "` + word + `"`)
	}
	if d <= 0 {
		return 0, errors.New(`must be longer than 0; or write "` + word + `"`)
	}
	return d, nil
}
