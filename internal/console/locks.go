package console

import (
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/operator"
)

// locks prints the pools, and the locks of `cronclave lock`.
func (p Printer) locks(st *operator.Status) {
	pools := make([]operator.Lock, len(st.Pools))
	for i, pool := range st.Pools {
		pools[i] = pool.Lock
	}
	p.lockTable("POOL", st.Now, pools)
	p.lockTable("LOCK", st.Now, st.Locks)
}

// mostHolders caps the rows for the holders of a lock, except in wide output.
const mostHolders = 5

func (p Printer) lockTable(title string, now time.Time, locks []operator.Lock) {
	if len(locks) == 0 {
		return
	}
	fmt.Fprintln(p.Out)
	columns := []string{title, "SLOTS", "HELD BY", "SINCE", "WAITING"}
	if p.Wide {
		columns = append(columns, "TOKEN", "LEASE UNTIL")
	}
	t := newTable(columns...)
	for _, l := range locks {
		p.lock(t, now, l)
	}
	t.print(p)
}

// lock adds a row for each holder of a lock, or one row if there is none.
func (p Printer) lock(t *table, now time.Time, l operator.Lock) {
	m := plain
	if l.Full() {
		m = warning
	}
	head := []string{p.cut(l.Name, 18), fmt.Sprintf("%d of %d", len(l.Holders), l.Slots)}
	waiting := p.waiting(now, l)
	if len(l.Holders) == 0 {
		t.row(m, append(head, "-", "-", waiting)...)
		return
	}
	for i, h := range l.Holders {
		if rest := len(l.Holders) - i; i == mostHolders-1 && rest > 1 && !p.Wide {
			t.row(m, "", "", fmt.Sprintf("and %d more", rest), "", "")
			return
		}
		cells := append(head, p.cutMiddle(user(h.Job, h.Owner), 28), since(now, h.Since), waiting)
		if p.Wide {
			cells = append(cells, fmt.Sprint(h.Token), p.at(h.Expires))
		}
		t.row(m, cells...)
		head, waiting = []string{"", ""}, ""
	}
}

// waiting returns the number of waiters and the first one. Wide output has all of them.
func (p Printer) waiting(now time.Time, l operator.Lock) string {
	if l.Waiters == 0 {
		return "-"
	}
	text := fmt.Sprintf("%d: ", l.Waiters)
	for i, w := range l.Waiting {
		if i > 0 && !p.Wide {
			break
		}
		if i > 0 {
			text += ", "
		}
		text += user(w.Job, w.Owner)
		if w.Since != nil {
			text += " for " + Span(now.Sub(*w.Since))
		}
	}
	return p.cut(text, 30)
}

// user names the run or the process that uses a lock.
func user(job, owner string) string {
	if job == "" {
		return owner
	}
	return job + " on " + owner
}

func since(now time.Time, t *time.Time) string {
	if t == nil {
		return "-"
	}
	return ago(now, *t)
}
