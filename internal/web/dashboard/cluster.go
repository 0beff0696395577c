package dashboard

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/units"
)

type clusterPage struct {
	Mark      mark
	Problems  []problem
	Replicas  []replica
	Lost      []lost
	Answer    string // time that Redis took to answer
	Redis     redisPart
	Pools     locks
	Locks     locks
	Acts      []act // newest audit entries, the newest first
	MoreActs  bool
	LostActs  string // describes audit entries that are missing
	Incidents []string
	Targets   []notifyTarget
	Delivered []delivery // newest deliveries of notifications, the newest first
}

// A notifyTarget is a target of notifications. Fault is the answer to the last attempt, if it failed.
type notifyTarget struct {
	Mark                             mark
	Name, Fault                      string
	Sent, Refused, Dropped, Repeated int64
	Waiting                          int
}

type delivery struct {
	Mark                   mark
	At                     moment
	Target, Events, Answer string
	Result                 string
}

type replica struct {
	Mark                            mark
	Name, State, Unable             string
	Leads                           bool
	Token                           int64
	Seen, Started                   moment
	Running                         []link
	Load                            string
	Clock, Margin                   gauge
	Differs                         bool
	Config, Digest, Build, ZoneData string
}

// A gauge is a value that the page highlights if it is bad.
type gauge struct {
	Text string
	Bad  bool
}

// A lost replica is one whose registration has expired.
type lost struct {
	Name string
	Seen moment
}

func (h *handler) showCluster(r *http.Request) (*page, error) {
	began := time.Now()
	if _, err := h.operator.Now(r.Context()); err != nil {
		return nil, err
	}
	answer := time.Since(began)
	st, err := h.readStatus(r.Context())
	if err != nil {
		return nil, err
	}
	p := pageOf("cluster", units.Count(len(st.Replicas), "replica")+" up", st)
	if n := len(st.Lost); n > 0 {
		p.Title += fmt.Sprintf(", %d lost", n)
	}
	p.Every = renewMS
	body := clusterOf(st, answer)
	acts, lost, err := h.operator.Acts(r.Context(), actsShown+1)
	if err != nil {
		return nil, err
	}
	body.LostActs, body.MoreActs = cleanText(lost), len(acts) > actsShown
	n, err := h.operator.Notifications(r.Context(), deliveriesShown)
	if err != nil {
		return nil, err
	}
	body.addNotifications(st.Now, n)
	body.Acts = actsOf(st.Now, acts[:min(len(acts), actsShown)])
	p.Body = body
	return p, nil
}

const deliveriesShown = 10

func (c *clusterPage) addNotifications(now time.Time, n *cluster.Notifications) {
	for _, t := range n.Targets {
		shown := notifyTarget{markOK, t.Name, cleanText(t.Fault), t.Sent, t.Refused, t.Dropped, t.Repeated, t.Waiting}
		if t.Fault != "" {
			shown.Mark = markWarning
		}
		c.Targets = append(c.Targets, shown)
	}
	for _, d := range n.Deliveries {
		shown := delivery{markOK, momentOf(now, d.At), d.Target, cleanText(console.DeliveryEvents(d)), cleanText(d.Answer), d.Result}
		if d.Repeated {
			shown.Result += ", perhaps twice"
		}
		if d.Result != journal.DeliverySent && d.Result != journal.DeliveryExpired {
			shown.Mark = markBad
		}
		c.Delivered = append(c.Delivered, shown)
	}
}

func clusterOf(st *cluster.Status, answer time.Duration) *clusterPage {
	c := &clusterPage{Answer: durationText(max(answer, time.Millisecond))}
	for _, l := range st.Lost {
		c.Lost = append(c.Lost, lost{cleanText(l.Name), momentOf(st.Now, l.Seen)})
	}
	for _, p := range st.Problems {
		if p.Job == "" && p.Replica == "" {
			c.Problems = append(c.Problems, problemOf(st.Now, p))
		}
	}
	digests := map[string]int{}
	for _, e := range st.Replicas {
		digests[e.ConfigDigest]++
	}
	for _, e := range st.Replicas {
		c.Replicas = append(c.Replicas, replicaOf(st, e, digests))
	}
	c.Pools, c.Locks, c.Redis = poolsOf(st), locksOf(st), redisOf(st)
	for _, in := range st.Incidents {
		c.Incidents = append(c.Incidents, cleanText(console.IncidentText(in, func(t time.Time) string { return t.UTC().Format(stamp) })))
	}
	c.Mark = worstMark(st, c)
	return c
}

func worstMark(st *cluster.Status, c *clusterPage) mark {
	shown := []mark{}
	for _, e := range c.Replicas {
		shown = append(shown, e.Mark)
		if e.Margin.Bad {
			shown = append(shown, markWarning)
		}
	}
	for _, p := range c.Problems {
		shown = append(shown, p.Mark)
	}
	switch {
	case len(st.Replicas) == 0 || slices.Contains(shown, markBad):
		return markBad
	case len(c.Lost) > 0 || slices.Contains(shown, markWarning):
		return markWarning
	}
	return markOK
}

func replicaOf(st *cluster.Status, e cluster.Replica, digests map[string]int) replica {
	shown := replica{Mark: stateMarks[e.State], Name: cleanText(e.Name), State: string(e.State), Unable: cleanText(e.Unable), Seen: momentOf(st.Now, e.Seen), Started: momentOf(st.Now, e.Started),
		Load: e.Load(), Clock: gauge{e.Clock().String(), e.Clock().Excessive()}, Digest: e.ConfigDigest, Config: fmt.Sprintf("%.8s", e.ConfigDigest), Build: cleanText(e.Version), ZoneData: cleanText(e.ZoneData)}
	shown.Differs = 2*digests[e.ConfigDigest] <= len(st.Replicas) // set unless a majority has this digest; there may be no majority
	if e.LeaseMargin != nil {
		shown.Margin = gauge{e.LeaseMargin.String(), e.LowMargin()}
	}
	if st.Leader != nil && st.Leader.Replica == e.Name {
		shown.Leads, shown.Token = true, st.Leader.Token
	}
	for _, j := range st.Jobs {
		for _, holder := range j.Holders {
			if holder.Replica == e.Name {
				shown.Running = append(shown.Running, jobLink(j.Name))
			}
		}
	}
	const most = 6
	if n := len(shown.Running); n > most {
		shown.Running = append(shown.Running[:most], link{Text: fmt.Sprintf("and %d more", n-most)})
	}
	return shown
}

type redisPart struct {
	Kind    string
	Servers []redisServer
	More    int // number of further servers, which have no line
	Limits  []string
}

type redisServer struct {
	Mark           mark
	Address, Fault string
	console.RedisCells
}

var redisKinds = map[string]string{
	"single": "One server", "sentinel": "A master that Sentinels watch", "cluster": "A Redis Cluster", "quorum": "A quorum of independent masters", "embedded": "An embedded server",
}

func redisOf(st *cluster.Status) redisPart {
	part := redisPart{Kind: redisKinds[string(st.Redis.Kind)], More: st.Redis.ServerCount - len(st.Redis.Servers), Limits: st.Redis.Limits}
	for _, s := range st.Redis.Servers {
		shown := redisServer{Mark: markOK, Address: cleanText(s.Address), Fault: cleanText(s.Fault), RedisCells: console.RedisCellsOf(s)}
		if s.State != cluster.RedisUp {
			shown.Mark = markBad
		}
		part.Servers = append(part.Servers, shown)
	}
	return part
}

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

// Lines returns the number of table rows that the lock spans.
func (l lock) Lines() int { return max(len(l.Users), 1) + min(l.Unnamed, 1) }

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
			l.Jobs = append(l.Jobs, jobLink(name))
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
	shown := lock{Name: cleanText(l.Name), Use: fmt.Sprintf("%d of %s held", len(l.Holders), units.Count(l.Slots, "slot")), Mark: markOK, Unnamed: l.Waiters - len(l.Waiting)}
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

func runLink(job, run string) link {
	if job == "" {
		return link{}
	}
	return link{cleanText(job), runIDPath(job, run)}
}
