package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

const mostSlots = 1000

func slotKeys() []schema.Key[draft] {
	return []schema.Key[draft]{
		schema.Integer("parallel", 1, mostSlots, func(d *draft) *int { return &d.Parallel }, "Slots: concurrent runs of the job in the cluster."),
		perTickKey(),
		schema.Integer("per_replica", 1, mostSlots, func(d *draft) *int { return &d.PerReplica }, "Slots that one replica may hold; at most `parallel`."),
		overlapKey(),
		schema.Field("pool", schema.KindString, func(d *draft) *schema.Expansion { return &d.pool }, poolName,
			"Each run also needs a slot of this [pool](jobs.md#pools).").
			Allow("a `[pools.NAME]`, or `\"\"` for none").ValueOf(func(d *draft) any { return d.Pool }),
	}
}

// perTickKey returns the key per_tick. A job with "all" has PerTick 1, because each of its instances runs a tick once.
func perTickKey() schema.Key[draft] {
	key := schema.Integer("per_tick", 1, mostSlots, func(d *draft) *int { return &d.PerTick },
		"Maximum runs of each tick, each in its own slot; at most `parallel`. Required if `parallel` is more than 1. `\"all\"`: one run [on every replica](jobs.md#on-every-replica).")
	read := key.Read
	key.Read = func(r *schema.Reader, v document.Value, d *draft) {
		word, isWord := v.Raw.(string)
		switch d.Everywhere = word == "all"; {
		case d.Everywhere:
			d.PerTick = 1
		case isWord:
			r.Fault(v, `per_tick %q is neither a number nor "all", which means a run on every replica`, word)
		default:
			read(r, v, d)
		}
	}
	key.Kind = "integer, or string"
	return key.Allow(fmt.Sprintf("1 to %d, or `\"all\"`", mostSlots)).DefaultOf(func(d *draft) any {
		if d.Everywhere {
			return "all"
		}
		return d.PerTick
	})
}

// overlapKey returns the key overlap. Its reader suggests a remedy for "allow", a policy of other programs. It stores "skip", the default, as "", so that a job
// has the same digest with and without the key.
func overlapKey() schema.Key[draft] {
	key := schema.Word("overlap", func(d *draft) *string { return &d.Overlap },
		"What happens to a tick [if all slots are held](jobs.md#overlap).", "skip", "queue", "replace")
	read := key.Read
	key.Read = func(r *schema.Reader, v document.Value, d *draft) {
		if v.Raw == "allow" {
			r.Fault(v, `overlap "allow" is none of the policies; let runs overlap by parallel, the number of runs at once, and per_tick`)
			return
		}
		d.Overlap = ""
		if read(r, v, d); d.Overlap == "skip" {
			d.Overlap = ""
		}
	}
	return key
}

func readPools(r *schema.Reader, v document.Value, to map[string]Pool) {
	eachNamed(r, v, "pool", func(pool document.Value) {
		var p Pool
		poolKeys().Read(r, pool, &p)
		if r.Missing(pool, "slots") {
			r.Fault(pool.AtKey(), "[%s] has no slots; set slots", pool.Path)
		}
		to[pool.Name] = p
	})
}

func poolKeys() schema.Section[Pool] {
	return schema.Section[Pool]{Keys: []schema.Key[Pool]{
		schema.Integer("slots", 1, mostSlots, func(p *Pool) *int { return &p.Slots }, "Maximum of concurrent runs and `lock --pool` commands. Required.").Optional(),
	}}
}

// poolName reads the name of a job's pool. An empty name overrides the pool of [defaults].
func poolName(r *schema.Reader, v document.Value) (schema.Expansion, bool) {
	return r.Text(v, "the name of a pool in a string")
}

func finishPool(r *schema.Reader, d *draft, known map[string]Pool) {
	p, found := known[d.pool.Text]
	switch {
	case d.pool.Text == "" || d.pool.Open:
	case found:
		d.Pool, d.PoolSlots = d.pool.Text, p.Slots
	default:
		v := d.at["pool"]
		r.Fault(v, "there is no pool %q%s", v.Raw, suggestName(d.pool, slices.Collect(maps.Keys(known)), "define [pools.NAME] with its slots"))
	}
}

// finishEverywhere removes the slots and the pool of [defaults] from a job that sets per_tick = "all" itself: they are meant for the other jobs. In all other
// cases such keys are a fault beside "all".
func finishEverywhere(r *schema.Reader, v document.Value, d *draft) {
	if !d.Everywhere {
		return
	}
	own := d.at["per_tick"].Path == v.Path+".per_tick"
	for _, key := range []string{"parallel", "per_replica", "pool"} {
		at, set := d.at[key]
		if set && (at.Path == v.Path+"."+key || !own) && !d.wrong[key] {
			r.Fault(at.AtKey(), "%s does not go with per_tick = \"all\", with which every replica runs each tick once, in a slot of its own; remove one of them", key)
		}
		delete(d.at, key)
	}
	d.Parallel, d.PerReplica, d.pool = 1, 1, schema.Expansion{}
}

func checkSlots(r *schema.Reader, d *draft) {
	if d.wrong["parallel"] || d.Everywhere {
		return
	}
	if _, set := d.at["per_tick"]; !set && d.Parallel > 1 {
		r.Fault(d.at["parallel"].AtKey(), "parallel = %d needs per_tick: write per_tick = 1 for one run of each tick (runs of different ticks may overlap), or per_tick = %d for %d runs of each tick", d.Parallel, d.Parallel, d.Parallel)
	}
	for _, key := range []string{"per_tick", "per_replica"} {
		n := map[string]int{"per_tick": d.PerTick, "per_replica": d.PerReplica}[key]
		if n > d.Parallel && !d.wrong[key] {
			r.Fault(d.nearestPlace(key, "parallel"), "%s = %d is more than parallel = %d", key, n, d.Parallel)
		}
	}
}

const (
	// mostAttempts caps the attempts after the first one of a tick, separately for retry and recover.
	mostAttempts = 100
	// usualRecover is the number of further attempts for `recover = true`.
	usualRecover = 3
)

func attemptKeys() []schema.Key[draft] {
	return []schema.Key[draft]{
		schema.Table("retry", func(d *draft) *Retry { return &d.Retry }, retryKeys(), "[Repeats](jobs.md#retry) a run that failed or timed out."),
		{
			Name: "recover", Kind: "boolean, or table", Read: readRecover, Default: func(d *draft) any { return d.Recover > 0 }, Value: recoverOf,
			Doc: "[Repeats](jobs.md#recovery) a tick whose replica died, drained or lost its lease. Needs `per_tick = 1`.",
		},
	}
}

func stopKeys() []schema.Key[draft] {
	return []schema.Key[draft]{
		schema.Limit("timeout", "none", func(d *draft) *time.Duration { return &d.Timeout }, "Maximum duration of a try."),
		schema.Duration("kill_grace", 0, schema.AnyLength, func(d *draft) *time.Duration { return &d.KillGrace }, "Time from SIGTERM to SIGKILL."),
		schema.Duration("lease", time.Second, MaxLease, func(d *draft) *time.Duration { return &d.Lease },
			"Length of a run's lease, renewed after a third. A dead replica's slots are free after this time."),
		schema.Field("on_lease_lost", schema.KindString, func(d *draft) *bool { return &d.OutlivesLease }, readOnLeaseLost,
			"What a run does that [lost its lease](jobs.md#stopping-a-run).").
			Allow("`\"stop\"`, `\"continue\"`").
			DefaultOf(func(d *draft) any { return map[bool]string{false: "stop", true: "continue"}[d.OutlivesLease] }),
	}
}

// longestStale is the longest stale_after. It is shorter than the time for which the last success of a job is known.
const longestStale = 365 * 24 * time.Hour

func expectedKeys() []schema.Key[draft] {
	return []schema.Key[draft]{
		schema.Duration("warn_after", 0, schema.AnyLength, func(d *draft) *time.Duration { return &d.WarnAfter },
			"A run that takes longer is `slow`; `0s` for a guess by its last runs."),
		schema.Duration("stale_after", 0, longestStale, func(d *draft) *time.Duration { return &d.StaleAfter },
			"A job without an `ok` for longer is `stale`; `0s` for never."),
		schema.Field("expect_by", schema.KindString, func(d *draft) *string { return &d.ExpectBy }, readExpectBy,
			"Local time by which the last tick before it must have ended `ok`; otherwise the job is `overdue`.").Allow("such as `\"06:30\"`, or `\"\"` for none"),
	}
}

func readExpectBy(r *schema.Reader, v document.Value) (string, bool) {
	text, ok := r.Text(v, "a local time in a string, such as \"06:30\"")
	if !ok || text.Text == "" || text.Open {
		return "", ok
	}
	at, err := time.Parse("15:04", text.Text)
	if err != nil {
		r.Fault(v, "expect_by %q is no time of day; write hours and minutes, such as \"06:30\"", v.Raw)
		return "", false
	}
	return at.Format("15:04"), true
}

func readOnLeaseLost(r *schema.Reader, v document.Value) (bool, bool) {
	word, ok := r.Choice(v, "stop", "continue")
	return word == "continue", ok
}

func retryKeys() schema.Section[Retry] {
	return schema.Section[Retry]{Keys: []schema.Key[Retry]{
		schema.Integer("max", 0, mostAttempts, func(t *Retry) *int { return &t.Max }, "Further tries of a failed run. Required here or in `[defaults]`.").Optional().
			ValueOf(func(t *Retry) any { return max(t.Max, 0) }),
		schema.Duration("delay", time.Millisecond, schema.AnyLength, func(t *Retry) *time.Duration { return &t.Delay },
			"Pause before the second try. It doubles with each try, less a random part of up to half.").By("5s, or `max_delay` if that is less"),
		schema.Duration("max_delay", time.Millisecond, schema.AnyLength, func(t *Retry) *time.Duration { return &t.MaxDelay },
			"Longest pause, at least `delay`.").By("5m, or `delay` if that is more"),
	}}
}

// finishRetry checks the job's retry after it was merged with the retry of [defaults]. A key that the job sets replaces only the same key of [defaults].
func finishRetry(r *schema.Reader, d *draft) {
	v, set := d.at["retry"]
	switch {
	case !set || d.wrong["retry"]:
	case d.Retry.Max == noMax && strings.HasPrefix(v.Path, "jobs."):
		r.Fault(v, "retry has no max; set how many more tries a failed run gets, such as retry = { max = 3 }")
	case d.Retry.Max > 0 && d.Retry.MaxDelay > 0 && d.Retry.MaxDelay < d.Retry.Delay:
		r.Fault(v, "retry.max_delay is less than retry.delay, from which the pauses grow")
	}
	if d.Retry.Max <= 0 {
		d.Retry = Retry{}
	}
}

func readRecover(r *schema.Reader, v document.Value, d *draft) {
	switch again, isBool := v.Raw.(bool); {
	case again:
		d.Recover = usualRecover
	case isBool:
		d.Recover = 0
	case v.IsTable():
		d.Recover = usualRecover
		recoverKeys().Read(r, v, &d.Recover)
	default:
		r.Mistyped(v, "true, false, or a table such as { max = 2 }")
	}
}

func recoverOf(d *draft) any {
	if d.Recover == 0 {
		return false
	}
	return schema.Prose(fmt.Sprintf("{ max = %d }", d.Recover))
}

func recoverKeys() schema.Section[int] {
	return schema.Section[int]{Keys: []schema.Key[int]{
		schema.Integer("max", 0, mostAttempts, func(n *int) *int { return n }, "Further attempts of a tick after the first.").
			DefaultOf(func(*int) any { return usualRecover }),
	}}
}

func finishRecover(r *schema.Reader, d *draft) {
	if d.Recover > 0 && d.Everywhere && !d.wrong["recover"] {
		r.Fault(d.nearestPlace("recover", "per_tick"), "recover does not go with per_tick = \"all\": no other replica may run the tick of a replica that died; set one of them only")
	}
	if d.Recover > 0 && d.PerTick > 1 && !d.wrong["recover"] && !d.wrong["per_tick"] {
		r.Fault(d.nearestPlace("recover", "per_tick"), "recover needs per_tick = 1, not %d: of several runs of a tick it could not tell which one to repeat; set one of them only",
			d.PerTick)
	}
}
