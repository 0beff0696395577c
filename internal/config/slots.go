package config

import (
	"maps"
	"slices"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

// mostSlots is the maximum number of slots of a job or a pool.
const mostSlots = 1000

// slotKeys returns the keys that limit the concurrent runs of a job, and that select what happens to a tick without a free slot.
func slotKeys() []schema.Key[draft] {
	return []schema.Key[draft]{
		schema.Integer("parallel", 1, mostSlots, func(d *draft) *int { return &d.Parallel }, "Slots of the job: how many of its runs there may be at once in the cluster."),
		schema.Integer("per_tick", 1, mostSlots, func(d *draft) *int { return &d.PerTick },
			"At most so many runs of each tick, each in a slot of its own. Must be written where `parallel` is more than 1; at most `parallel`."),
		schema.Integer("per_replica", 1, mostSlots, func(d *draft) *int { return &d.PerReplica }, "How many of the slots one replica may hold; at most `parallel`."),
		overlapKey(),
		schema.Field("pool", schema.KindString, func(d *draft) *schema.Expansion { return &d.pool }, poolName,
			"Each run also needs a slot of this pool; it waits for one until its `start_deadline`, and is then missed.").
			Allow("the name of a `[pools.NAME]`, or `\"\"` for none").ValueOf(func(d *draft) any { return d.Pool }),
	}
}

// overlapKey returns the key overlap. Its reader suggests a remedy for "allow", a policy of other programs. It stores "skip" as "", so that a job can
// override [defaults] with the default.
func overlapKey() schema.Key[draft] {
	key := schema.Word("overlap", func(d *draft) *string { return &d.Overlap },
		"When all slots are held at a tick: skip it, let the first such tick wait, or stop the oldest run and start.", "skip", "queue", "replace")
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

// readPools reads [pools], a table of named semaphores.
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
		schema.Integer("slots", 1, mostSlots, func(p *Pool) *int { return &p.Slots }, "How many runs, and commands of `lock --pool`, may be in the pool at once. Required.").Optional(),
	}}
}

// poolName reads the name of a job's pool. An empty name overrides the pool of [defaults].
func poolName(r *schema.Reader, v document.Value) (schema.Expansion, bool) {
	return r.Text(v, "the name of a pool in a string")
}

// finishPool sets the job's pool and the number of the pool's slots.
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

// checkSlots checks the combination of parallel, per_tick and per_replica.
func checkSlots(r *schema.Reader, d *draft) {
	if d.wrong["parallel"] {
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
