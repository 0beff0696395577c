package config

import (
	"errors"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// scheduleKeys lists the keys that define a job's ticks. A job with `after` must not set them.
var scheduleKeys = []string{"schedule", "timezone", "jitter", "except", "starts_at", "expires_at", "catch_up", "catch_up_window"}

// tickKeys returns the keys that define a job's ticks and their deadlines.
func tickKeys() []schema.Key[draft] {
	return []schema.Key[draft]{
		schema.Field("schedule", "string, or list of strings", func(d *draft) *[]expression { return &d.exprs }, readSchedule,
			"When the job runs: see [schedules](#schedules). Required, unless there is `after`."),
		schema.Field("after", schema.KindStrings, func(d *draft) *[]expression { return &d.before }, jobNames,
			"Runs the job once for each tick for which all these jobs ended `ok`. It takes no other key of this table but `start_deadline`.").Allow("names of jobs"),
		timezoneKey(),
		schema.Field("except", "string, or list of strings", func(d *draft) *[]expression { return &d.except }, readExceptions,
			"Instants that are no ticks: see [exceptions](#exceptions).").Allow("names of calendars, and expressions"),
		schema.Field("starts_at", "time", func(d *draft) *time.Time { return &d.StartsAt }, readInstant, "No tick before.").Allow("RFC 3339, with an offset"),
		schema.Field("expires_at", "time", func(d *draft) *time.Time { return &d.ExpiresAt }, readInstant, "No tick from then on.").Allow("RFC 3339, with an offset"),
		schema.Duration("jitter", 0, schema.AnyLength, func(d *draft) *time.Duration { return &d.Jitter },
			"Delays each tick by up to so much, by a hash of job and tick that is the same on every replica; never past the next tick."),
		schema.Limit("start_deadline", "auto", func(d *draft) *time.Duration { return &d.StartDeadline },
			"How late a tick may start before it is missed. `auto`: until the job's next tick, at most 1h; with `overlap = \"queue\"`, 1h."),
		schema.Word("catch_up", func(d *draft) *string { return &d.CatchUp },
			"Which ticks still run after their deadline, of those that would be missed for the reasons down, labels, redis, overload or late.", "none", "latest", "all"),
		schema.Duration("catch_up_window", time.Second, schema.AnyLength, func(d *draft) *time.Duration { return &d.CatchUpWindow }, "How old a tick may be that is caught up.").ValueOf(caughtUp),
	}
}

// timezoneKey returns the key timezone. For the settings, its reader also records the text of a zone that contains a variable.
func timezoneKey() schema.Key[draft] {
	always := func(read zoneReader) zoneReader { return read }
	key := zoneKey("timezone", func(d *draft) **time.Location { return &d.Location }, func(d *draft) *cronspec.Zones { return d.zones }, always,
		"The time zone of the schedule.").Allow("an IANA name").By("that of the top level")
	read := key.Read
	key.Read = func(r *schema.Reader, v document.Value, d *draft) {
		read(r, v, d)
		d.hidden.zone = writtenZone(v)
	}
	return key.ValueOf(func(d *draft) any {
		if d.hidden.zone != "" {
			return d.hidden.zone
		}
		return d.Location
	})
}

// writtenZone returns the text of a zone as written in the file if it contains a variable. Otherwise it returns "".
func writtenZone(v document.Value) string {
	if text, _ := v.Raw.(string); len(schema.Find(text)) > 0 {
		return text
	}
	return ""
}

// caughtUp returns catch_up_window for a job with catch_up, and notSet for any other job.
func caughtUp(d *draft) any {
	if d.CatchUp == "" || d.CatchUp == "none" {
		return schema.Prose(notSet)
	}
	return d.CatchUpWindow
}

// readSchedule reads a cron expression or a list of them. finishSchedule parses the expressions, because parsing needs the job's name and zone.
func readSchedule(r *schema.Reader, v document.Value) ([]expression, bool) {
	return readExpressions(r, v, `an expression in a string, such as "0 3 * * *", or a list of them`)
}

// readExpressions reads a string or a non-empty list of strings.
func readExpressions(r *schema.Reader, v document.Value, want string) ([]expression, bool) {
	one := func(item document.Value) (expression, bool) {
		e, ok := r.Text(item, want)
		return expression{item, e}, ok
	}
	if _, isString := v.Raw.(string); isString {
		e, ok := one(v)
		return []expression{e}, ok
	}
	return schema.List(r, v, want, one)
}

// finishSchedule parses the schedule of a job and its exceptions.
func finishSchedule(r *schema.Reader, v document.Value, d *draft, known calendars, now func() time.Time) {
	requireKey(r, v, d, "schedule", "after")
	d.Schedule = textsOf(d.exprs)
	except := finishExcept(r, d, known)
	var err error
	open := func(e expression) bool { return e.Open }
	if len(d.exprs) > 0 && !d.wrong["schedule"] && !slices.ContainsFunc(slices.Concat(d.exprs, d.except), open) {
		d.Spec, err = cronspec.Parse(d.Schedule, cronspec.Options{Location: d.Location, Name: d.Name,
			Except: d.Except, ExceptDates: d.ExceptDates, StartsAt: d.StartsAt, ExpiresAt: d.ExpiresAt})
	}
	wrongSchedule(r, d, err, except)
	if d.Spec != nil {
		for _, remark := range d.Spec.Remarks() {
			if e, found := expressionOf(d, except, remark); found && len(e.Names) == 0 {
				reportExpression(r.Warn, e, remark)
			}
		}
	}
	finishBounds(r, d, err, now)
}

// wrongSchedule reports the faults of the parser in the schedule and in its exceptions.
func wrongSchedule(r *schema.Reader, d *draft, err error, except []expression) {
	for _, one := range splitErrors(err) {
		var wrong *cronspec.ParseError
		if errors.Is(one, cronspec.ErrNoTick) {
			continue // finishBounds reports this error
		}
		if errors.As(one, &wrong) {
			if e, found := expressionOf(d, except, wrong); found {
				reportExpression(r.Fault, e, wrong)
				continue
			}
		}
		r.Fault(d.at["schedule"], "%s", document.OneLine(one.Error()))
	}
}

// expressionOf returns the expression that an error or a remark of the parser refers to.
func expressionOf(d *draft, except []expression, about *cronspec.ParseError) (e expression, found bool) {
	of := d.exprs
	if about.Except {
		of = except
	}
	if about.Index >= len(of) {
		return expression{}, false
	}
	return of[about.Index], true
}

// splitErrors returns the errors that errors.Join has combined.
func splitErrors(err error) []error {
	if err == nil {
		return nil
	}
	if several := (interface{ Unwrap() []error })(nil); errors.As(err, &several) {
		return several.Unwrap()
	}
	return []error{err}
}

// reportExpression reports a message of the parser at its position in the expression. If the expression contains a variable, the report contains only the
// text from the file, because the message might reveal a value from the environment.
func reportExpression(report func(document.Value, string, ...any), e expression, wrong *cronspec.ParseError) {
	if len(e.Names) > 0 {
		report(e.Value, "%s %q is not a valid schedule once its variables are replaced", e.Name, e.Raw)
		return
	}
	message := e.Name + ": " + wrong.Message
	if wrong.Hint != "" {
		message += "; " + wrong.Hint
	}
	report(e.AtByte(wrong.Offset), "%s", document.OneLine(message))
}

// finishBounds reports that except, starts_at and expires_at exclude all ticks of the schedule. It warns about a job that has expired.
func finishBounds(r *schema.Reader, d *draft, err error, now func() time.Time) {
	switch {
	case !d.StartsAt.IsZero() && !d.ExpiresAt.IsZero() && !d.StartsAt.Before(d.ExpiresAt):
		r.Fault(d.nearestPlace("expires_at", "starts_at"), "expires_at is not after starts_at, so the job has no ticks")
	case errors.Is(err, cronspec.ErrNoTick):
		set := slices.DeleteFunc([]string{"except", "expires_at", "starts_at"}, func(key string) bool { _, set := d.at[key]; return !set })
		r.Fault(d.nearestPlace(set...), "except, starts_at and expires_at leave no instant of the schedule; the job would never run")
	case d.Enabled && d.Spec != nil && !d.ExpiresAt.IsZero() && d.Spec.Next(now()).IsZero():
		r.Warn(d.at["expires_at"], "expires_at has passed, so the job has no ticks any more; remove the job, or let it expire later")
	}
}

// finishCatchUp removes catch_up and its window if catch_up is "none". It refuses catch_up for a job with several runs per tick.
func finishCatchUp(r *schema.Reader, v document.Value, d *draft) {
	window, windowed := d.at["catch_up_window"]
	switch {
	case d.CatchUp == "none" || d.CatchUp == "":
		if windowed && window.Path == v.Path+".catch_up_window" && !d.wrong["catch_up"] {
			r.Warn(window.AtKey(), `catch_up_window has no effect here: set catch_up = "latest" or "all"`)
		}
		d.CatchUp, d.CatchUpWindow = "", 0
	case d.PerTick > 1 && !d.wrong["per_tick"]:
		r.Fault(d.nearestPlace("catch_up", "per_tick"), "catch_up = %q needs per_tick = 1, not %d: a tick that has run on some replicas was not missed", d.CatchUp, d.PerTick)
	}
}
