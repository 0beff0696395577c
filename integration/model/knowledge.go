package model

// with returns the knowledge after news: locking's knowledge.with, line by line. ok is false where the model has no
// room for a third ledger.
func (k Knowledge) with(news Knowledge, outOfTurn bool) (all Knowledge, ok bool) {
	same := news.Floor == k.Floor && news.Low == k.Low // of these the one that was asked for later is newer; here either may be
	told, schedule := k.Told|news.Told, k.Schedule || news.Schedule
	news.Pause = k.Pause.newer(news.Pause)
	ok = true
	switch {
	case news.Floor <= k.Floor && news.Low <= k.Low && !same:
		news.Floor, news.Low, news.Layers, news.Ledgers = k.Floor, k.Low, k.Layers, k.Ledgers
	case outOfTurn && same && k.outOfTurn(news.Low)&^news.outOfTurn(news.Low) != 0: // nor does a decision out of turn move the numbers
		news.Layers, news.Ledgers, ok = k.followed(news.Ledgers[0])
	case news.Floor < k.Floor || news.Low < k.Low: // the server has forgotten, and has learnt something else since
		news.Floor, news.Low = max(k.Floor, news.Floor), max(k.Low, news.Low)
		news.Layers, news.Ledgers, ok = k.followed(news.Ledgers[0])
	default:
		news.Told, news.Schedule = told, schedule
		return news, true
	}
	news.Longest, news.Told, news.Schedule = max(k.Longest, news.Longest), told, schedule
	return news, ok
}

// outOfTurn returns the ticks beyond low of which this has an entry.
func (k Knowledge) outOfTurn(low uint8) (ticks uint8) {
	for _, ledger := range k.Ledgers[:k.Layers] {
		for tick, e := range ledger {
			if tick > int(low) && e.state() == done {
				ticks |= 1 << tick
			}
		}
	}
	return ticks
}

// followed appends a ledger to those that are known.
func (k Knowledge) followed(news Ledger) (layers uint8, ledgers [2]Ledger, ok bool) {
	switch {
	case news == Ledger{}:
		return k.Layers, k.Ledgers, true
	case k.Layers == 0:
		return 1, [2]Ledger{news}, true
	case k.Layers == 1:
		return 2, [2]Ledger{k.Ledgers[0], news}, true
	case k.Ledgers[1] == news: // repeated
		return k.Layers, k.Ledgers, true
	}
	return k.Layers, k.Ledgers, false
}
