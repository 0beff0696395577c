package model

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// noVerdict is the verdict of the pause script, which has none.
const noVerdict Verdict = 0

// say pauses the lock, or ends that, on both sides.
func (tr *trace) say(end bool) {
	if (tr.model.Pause.Said+1)%perUnit == 0 { // words of one unit have room for no more
		return
	}
	length := uint8(tr.IntN(3))
	q := Message{Knows: tr.observed(), Until: tr.now + 1}
	argv := append(tr.common(q), flagText(end), int64(length)*unit, outcomeTexts[paused], "for a reason")
	argv[0] = ""
	m := machine{Setup: &tr.setup, Rules: &tr.rules, s: &tr.model, q: &q, now: tr.now}
	m.remember(true)
	tr.model.Pause = tr.model.Pause.word(end, length, tr.now)
	m.report()
	got, err := tr.lua[pauseScript].Run(context.Background(), tr.client, append(keys, "{x}:dead:"), argv...).Slice()
	tr.must(err)
	tr.log = append(tr.log, fmt.Sprintf("pause, end: %t, for %d, %+v -> %v", end, length, q.Knows, got))
	tr.requests++
	tr.compare(&q, Pause{}, got)
	tr.known = append(tr.known, q.Knows)
}

// told puts a pause before a ledger, in the scripts' terms, with the outcome that all of them have here.
func (tr *trace) told(p Pause, ledger string) string {
	if p.Said == 0 {
		return ledger
	}
	until := int64(0)
	if p.Until > 0 {
		until = tr.at(p.Until)
	}
	text := fmt.Sprintf("!%d,%d,%d,paused,", token(p.Said), tr.at(p.From), until)
	if ledger == "" {
		return text
	}
	return text + ";" + ledger
}

// orphans returns the orphans of the model, each with its slot and attempt.
func (tr *trace) orphans() string {
	var list []string
	for id := ID(1); id <= maxReplicas*idsOf; id++ {
		if slot, r := tr.model.asOrphan(id); r.ID != 0 {
			kept := ""
			if tr.model.Abandoned.has(id) {
				kept = "!"
			}
			list = append(list, fmt.Sprintf("%d: slot %d%s, attempt %d", id, slot, kept, r.Attempt))
		}
	}
	slices.Sort(list)
	return strings.Join(list, "; ")
}

// realOrphans returns the orphans of the server, in the same form.
func (tr *trace) realOrphans() string {
	all, err := tr.client.HGetAll(context.Background(), keys[2]).Result()
	tr.must(err)
	var list []string
	for id, text := range all {
		f := strings.Split(text, "\n")                                                                       // slot, id, owner, lease, token, tick, attempt
		list = append(list, fmt.Sprintf("%s: slot %s, attempt %s", id, strings.TrimSuffix(f[0], "+"), f[6])) // the model does not know whether a row was renewed
	}
	slices.Sort(list)
	return strings.Join(list, "; ")
}

// tidy writes the slots of a ledger's entries in order, each once.
func tidy(ledger string) string {
	entries := strings.Split(ledger, ";")
	for i, e := range entries {
		if strings.HasPrefix(e, "!") { // the reason is for people
			entries[i] = e[:strings.LastIndex(e, ",")+1]
			continue
		}
		f := strings.Split(e, " ")
		if len(f) != 4 || f[2] == "done" {
			continue
		}
		slots := uint8(0)
		for _, s := range strings.Split(f[3], ",") {
			if n, err := strconv.Atoi(s); err == nil {
				slots |= 1 << n
			}
		}
		f[3] = slotsText(slots)
		entries[i] = strings.Join(f, " ")
	}
	return strings.Join(entries, ";")
}
