package config

// mostAttempts bounds the attempts of a tick beyond the first: those of retry and those of recover.
const mostAttempts = 100

// usualRecover is what `recover = true` means.
const usualRecover = 3

func readRecover(r *reader, v value, d *draft) {
	switch again, isBool := v.raw.(bool); {
	case again:
		d.Recover = usualRecover
	case isBool:
		d.Recover = 0
	case v.isTable():
		d.Recover = usualRecover
		read(r, v, recoverKeys(), &d.Recover)
	default:
		r.mistyped(v, "true, false, or a table such as { max = 2 }")
	}
}

func recoverKeys() section[int] {
	most := integerKey("max", 0, mostAttempts, func(n *int) *int { return n }, "How many attempts a tick may have beyond the first.")
	most.standard = says[int](usualRecover)
	return section[int]{keys: []key[int]{most}}
}

// finishRecover refuses recovery for a job that can't be recovered.
func (r *reader) finishRecover(d *draft) {
	if d.Recover > 0 && d.PerTick > 1 && !d.wrong["recover"] && !d.wrong["per_tick"] {
		r.fault(d.nearestPlace("recover", "per_tick"), "recover does not go with per_tick = %d: a run would not know whose share of the tick it has; set one of them only",
			d.PerTick)
	}
}
