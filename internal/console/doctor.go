package console

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cronclave/cronclave/internal/redisconn"
)

var levelMarks = map[redisconn.Level]mark{redisconn.LevelSkipped: notRun, redisconn.LevelOK: good, redisconn.LevelLimit: advice, redisconn.LevelWarning: warning, redisconn.LevelUnknown: warning, redisconn.LevelFault: bad}

var verdictTexts = map[redisconn.Verdict]string{
	redisconn.VerdictHolds: "all promises hold", redisconn.VerdictFault: "not all promises hold, or a person must act", redisconn.VerdictUnreachable: "can't be judged",
}

// Diagnosis prints the judgement of a Redis: what is wrong first, then the checks of each server, the promises, and the limits.
func (p Printer) Diagnosis(d redisconn.Diagnosis) {
	fmt.Fprintf(p.Out, "%s (%s), namespace %s: %s (judged in %d ms)\n", d.Redis, d.Kind, d.Namespace, verdictTexts[d.Verdict], d.TookMS)
	var limits []redisconn.Finding
	first := true
	for _, f := range d.Findings {
		if f.Level == redisconn.LevelLimit {
			limits = append(limits, f)
			continue
		}
		if first {
			fmt.Fprintln(p.Out)
			first = false
		}
		text := f.Message
		if len(d.Servers) > 1 && len(f.Servers) > 0 {
			text = strings.Join(f.Servers, ", ") + ": " + text
		}
		p.printItem(levelMarks[f.Level], text+" ["+strings.Join(append([]string{f.Code}, f.Promises...), " ")+"]")
		if f.Remedy != "" {
			fmt.Fprintln(p.Out, "    "+f.Remedy) // in one line, to be copied
		}
	}
	for _, s := range d.Servers {
		p.printChecks(s)
	}
	p.printPromises(d)
	if len(limits) > 0 {
		fmt.Fprintf(p.Out, "\nlimits of this Redis (%s):\n", d.Kind)
	}
	for _, f := range limits {
		p.printItem(advice, strings.TrimSpace(f.Message+" "+strings.Join(f.Promises, " ")))
	}
}

func (p Printer) printChecks(s redisconn.Examined) {
	fmt.Fprintf(p.Out, "\n%s keeps %s: %s\n", s.Address, s.Keeps, s.State)
	t := newTable()
	for _, c := range s.Checks {
		m := levelMarks[c.Level]
		t.addRow(m, m.sign+" "+c.Name, p.cutText(c.Fact, Width-16))
	}
	if len(s.Checks) > 0 {
		t.print(p)
	}
}

func (p Printer) printPromises(d redisconn.Diagnosis) {
	if len(d.Promises) == 0 {
		return
	}
	fmt.Fprintln(p.Out)
	t := newTable("PROMISE", "HOLDS", "BECAUSE OF")
	for _, promise := range d.Promises {
		m := plain
		switch promise.Holds {
		case redisconn.HoldsNo:
			m = bad
		case redisconn.HoldsUnknown:
			m = warning
		}
		codes := slices.DeleteFunc(slices.Clone(promise.Codes), func(code string) bool { return code == "limit" })
		holds := string(promise.Holds)
		if len(codes) < len(promise.Codes) && promise.Holds == redisconn.HoldsYes {
			holds += ", within its limits"
		}
		t.addRow(m, promise.ID+" "+promise.Name, holds, strings.Join(codes, ", "))
	}
	t.print(p)
}
