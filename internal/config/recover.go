package config

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
	return section[int]{keys: map[string]func(*reader, value, *int){
		"max": func(r *reader, v value, to *int) { assign(to)(r.integer(v, 0, 100)) },
	}}
}

// finishRecover refuses what can't be recovered.
func (r *reader) finishRecover(d *draft) {
	if d.Recover > 0 && d.PerTick > 1 && !d.wrong["recover"] && !d.wrong["per_tick"] {
		r.fault(d.nearestPlace("recover", "per_tick"), "recover does not go with per_tick = %d: a run would not know whose share of the tick it has; set one of them only",
			d.PerTick)
	}
}
