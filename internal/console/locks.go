package console

import (
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
)

// printLocks prints the pools, and the locks that processes use by `cronclave lock`.
func (p Printer) printLocks(st *cluster.Status) {
	pools := make([]cluster.Lock, len(st.Pools))
	for i, pool := range st.Pools {
		pools[i] = pool.Lock
	}
	p.lockTable("POOL", st.Now, pools)
	p.lockTable("LOCK", st.Now, st.Locks)
}

// mostHolders is the maximum number of holders of a lock that are printed, except in wide output.
const mostHolders = 5

func (p Printer) lockTable(title string, now time.Time, locks []cluster.Lock) {
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
		p.lockRows(t, now, l)
	}
	t.print(p)
}

// lockRows adds one row per holder of a lock. A lock without a holder gets one row.
func (p Printer) lockRows(t *table, now time.Time, l cluster.Lock) {
	m := plain
	if l.Full() {
		m = warning
	}
	head := []string{p.cutText(l.Name, 18), fmt.Sprintf("%d of %d", len(l.Holders), l.Slots)}
	waiting := p.waitersText(now, l)
	if len(l.Holders) == 0 {
		t.addRow(m, append(head, "-", "-", waiting)...)
		return
	}
	for i, h := range l.Holders {
		if rest := len(l.Holders) - i; i == mostHolders-1 && rest > 1 && !p.Wide {
			t.addRow(m, "", "", fmt.Sprintf("and %d more", rest), "", "")
			return
		}
		cells := append(head, p.cutMiddle(holderName(h.Job, h.Owner), 28), sinceText(now, h.Since), waiting)
		if p.Wide {
			cells = append(cells, fmt.Sprint(h.Token), p.formatTime(h.Expires))
		}
		t.addRow(m, cells...)
		head, waiting = []string{"", ""}, ""
	}
}

// waitersText returns the number of waiters and the first waiter. Wide output contains all waiters.
func (p Printer) waitersText(now time.Time, l cluster.Lock) string {
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
		text += holderName(w.Job, w.Owner)
		if w.Since != nil {
			text += " for " + Span(now.Sub(*w.Since))
		}
	}
	return p.cutText(text, 30)
}

// holderName returns the name of a holder or a waiter: a job on its replica, or a process.
func holderName(job, owner string) string {
	if job == "" {
		return owner
	}
	return job + " on " + owner
}

func sinceText(now time.Time, t *time.Time) string {
	if t == nil {
		return "-"
	}
	return agoText(now, *t)
}
