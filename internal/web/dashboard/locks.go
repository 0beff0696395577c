package dashboard

import (
	"fmt"
	"net/url"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
)

// locks is a table of pools or locks.
type locks struct {
	Kind string
	List []lock
}

// A lock is a row of the table. It has one line per held slot, and one per known waiter.
type lock struct {
	Name, Use string
	Mark      mark
	Jobs      []link // jobs whose runs need a slot of the pool
	Users     []lockUser
	Unnamed   int // number of waiters without a line of their own
}

// Lines returns the number of lines of the row.
func (l lock) Lines() int { return max(len(l.Users), 1) + min(l.Unnamed, 1) }

// A lockUser holds a slot of a lock, or waits for one.
type lockUser struct {
	Mark   mark
	State  string
	Who    string // replica or process
	Job    link   // empty if the user is not a job
	Token  int64  // 0 for a waiter
	Since  moment
	Expiry moment // when the slot becomes free if the lease is not renewed
}

func poolsOf(st *cluster.Status) locks {
	t := locks{Kind: "Pool"}
	for _, p := range st.Pools {
		l := lockOf(st.Now, p.Lock)
		for _, name := range p.Jobs {
			l.Jobs = append(l.Jobs, link{cleanText(name), jobPath(name)})
		}
		t.List = append(t.List, l)
	}
	return t
}

func locksOf(st *cluster.Status) locks {
	t := locks{Kind: "Lock"}
	for _, l := range st.Locks {
		t.List = append(t.List, lockOf(st.Now, l))
	}
	return t
}

func lockOf(now time.Time, l cluster.Lock) lock {
	shown := lock{Name: cleanText(l.Name), Use: fmt.Sprintf("%d of %s held", len(l.Holders), console.Count(l.Slots, "slot")), Mark: markOK, Unnamed: l.Waiters - len(l.Waiting)}
	if l.Waiters > 0 {
		shown.Use += fmt.Sprintf(", %d waiting", l.Waiters)
	}
	if l.Full() {
		shown.Mark = markWarning
	}
	for _, h := range l.Holders {
		shown.Users = append(shown.Users, lockUser{markRunning, fmt.Sprintf("holds slot %d", h.Slot), cleanText(h.Owner), runLink(h.Job, h.RunID), h.Token, momentAt(now, h.Since), momentOf(now, h.Expires)})
	}
	for _, w := range l.Waiting {
		shown.Users = append(shown.Users, lockUser{Mark: markComing, State: "waits", Who: cleanText(w.Owner), Job: runLink(w.Job, w.RunID), Since: momentAt(now, w.Since)})
	}
	return shown
}

// runLink returns a link to a run, with the name of the job as its text.
func runLink(job, run string) link {
	if job == "" {
		return link{}
	}
	return link{cleanText(job), jobPath(job) + "/runs/" + url.PathEscape(run)}
}

// momentAt returns the moment of an instant. For nil it is empty.
func momentAt(now time.Time, t *time.Time) moment {
	if t == nil {
		return moment{}
	}
	return momentOf(now, *t)
}
