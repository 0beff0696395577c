package config

import (
	"maps"
	"slices"
)

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
	return section[Pool]{keys: map[string]func(*reader, value, *Pool){
		"slots": func(r *reader, v value, to *Pool) { assign(&to.Slots)(r.integer(v, 1, 1000)) },
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
