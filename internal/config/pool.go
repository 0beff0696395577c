package config

import (
	"cmp"
	"maps"
	"slices"
)

// mostSlots is how many slots a lock may have.
const mostSlots = 1000

// slotKeys limit the runs of a job, and set the handling of a tick that finds no slot.
func slotKeys() []key[draft] {
	return []key[draft]{
		integerKey("parallel", 1, mostSlots, func(d *draft) *int { return &d.Parallel }, "Slots of the job: how many of its runs there may be at once in the cluster."),
		integerKey("per_tick", 1, mostSlots, func(d *draft) *int { return &d.PerTick },
			"At most so many runs of each tick, each in a slot of its own. Must be written where `parallel` is more than 1; at most `parallel`."),
		integerKey("per_replica", 1, mostSlots, func(d *draft) *int { return &d.PerReplica }, "How many of the slots one replica may hold; at most `parallel`."),
		{
			name: "overlap", kind: kindString, allowed: "`\"skip\"`, `\"queue\"`, `\"replace\"`", read: readOverlap, standard: func(d *draft) any { return cmp.Or(d.Overlap, "skip") },
			doc: "When all slots are held at a tick: skip it, let the first such tick wait, or stop the oldest run and start.",
		},
		{
			name: "pool", kind: kindString, allowed: "the name of a `[pools.NAME]`, or `\"\"` for none", read: readPool,
			doc: "Each run also needs a slot of this pool; it waits for one until its `start_deadline`, and is then missed.",
		},
	}
}

// readPools reads [pools]: a table of named semaphores.
func readPools(r *reader, v value, t *top) {
	r.named(v, "pool", func(pool value) {
		var p Pool
		read(r, pool, poolKeys(), &p)
		if _, set := pool.get("slots"); !set && !r.meant[pool.path+".slots"] {
			r.faultAt(pool, pool.at.key, "[%s] has no slots; set slots", pool.path)
		}
		t.Pools[pool.name] = p
	})
}

func poolKeys() section[Pool] {
	return section[Pool]{keys: []key[Pool]{
		integerKey("slots", 1, mostSlots, func(p *Pool) *int { return &p.Slots }, "How many runs, and commands of `lock --pool`, may be in the pool at once. Required.").optional(),
	}}
}

// readPool reads a job's pool. An empty name takes back that of [defaults].
func readPool(r *reader, v value, d *draft) {
	assign(&d.pool)(r.text(v, "the name of a pool in a string"))
}

// finishPool looks the pool up.
func (r *reader) finishPool(d *draft, known map[string]Pool) {
	p, found := known[d.pool.text]
	switch {
	case d.pool.text == "" || d.pool.open:
	case found:
		d.Pool, d.PoolSlots = d.pool.text, p.Slots
	default:
		v, hint := d.at["pool"], "; define [pools.NAME] with its slots"
		if near := nearest(d.pool.text, slices.Collect(maps.Keys(known))); near != "" && len(d.pool.names) == 0 {
			hint = "; did you mean \"" + near + "\"?"
		}
		r.fault(v, "pool %q is none%s", v.raw, hint)
	}
}
