package config

import (
	"strings"
	"time"
)

// noMax stands for a number of tries that is not set.
const noMax = -1

// attemptKeys say when a job is run again.
func attemptKeys() []key[draft] {
	return []key[draft]{
		{
			name: "retry", kind: kindTable, doc: "Tries a run that failed or timed out again: see [retry](#retry).",
			read: func(r *reader, v value, d *draft) { read(r, v, retryKeys(), &d.Retry) },
		},
		{
			name: "recover", kind: "boolean, or table", read: readRecover, standard: func(d *draft) any { return d.Recover > 0 },
			doc: "Runs a tick again whose replica died, was drained or lost its lease: see [recover](#recover). Needs `per_tick` 1.",
		},
	}
}

// stopKeys limit the duration of a run, and set the ways to end it.
func stopKeys() []key[draft] {
	return []key[draft]{
		limitKey("timeout", "none", func(d *draft) *time.Duration { return &d.Timeout }, "How long a try may take before it is stopped by SIGTERM."),
		durationKey("kill_grace", 0, anyLength, func(d *draft) *time.Duration { return &d.KillGrace }, "The time from SIGTERM to SIGKILL."),
		durationKey("lease", time.Second, MaxLease, func(d *draft) *time.Duration { return &d.Lease },
			"The length of a run's lease, which is renewed after a third of it. When a replica dies, its slots are free after this time."),
		{
			name: "on_lease_lost", kind: kindString, allowed: "`\"stop\"`, `\"continue\"`",
			standard: func(d *draft) any { return map[bool]string{false: "stop", true: "continue"}[d.OutlivesLease] },
			doc:      "What a run does whose lease is lost. With `continue` another may run beside it, and only the token protects.",
			read:     func(r *reader, v value, d *draft) { assign(&d.OutlivesLease)(r.either(v, "stop", "continue")) },
		},
	}
}

func retryKeys() section[Retry] {
	return section[Retry]{keys: []key[Retry]{
		integerKey("max", 0, mostAttempts, func(t *Retry) *int { return &t.Max }, "How many more tries a failed run gets. Required, in the job or in `[defaults]`; 0 is none.").optional(),
		durationKey("delay", time.Millisecond, anyLength, func(t *Retry) *time.Duration { return &t.Delay },
			"The pause before the second try. It doubles with each try; up to half of it is taken off by chance.").by("5s, or `max_delay` if that is less"),
		durationKey("max_delay", time.Millisecond, anyLength, func(t *Retry) *time.Duration { return &t.MaxDelay },
			"The longest pause. Not less than `delay`.").by("5m, or `delay` if that is more"),
	}}
}

// finishRetry looks at the job's own retry and that of [defaults] together: each key of the one takes the place of the other's.
func (r *reader) finishRetry(d *draft) {
	v, set := d.at["retry"]
	switch {
	case !set || d.wrong["retry"]:
	case d.Retry.Max == noMax && strings.HasPrefix(v.path, "jobs."):
		r.fault(v, "retry has no max; set how many more tries a failed run gets, such as retry = { max = 3 }")
	case d.Retry.Max > 0 && d.Retry.MaxDelay > 0 && d.Retry.MaxDelay < d.Retry.Delay:
		r.fault(v, "retry.max_delay is less than retry.delay, from which the pauses grow")
	}
	if d.Retry.Max <= 0 {
		d.Retry = Retry{}
	}
}
