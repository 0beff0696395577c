package dashboard

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/operator"
)

// clusterPage shows the replicas, how they differ, and the warnings about Redis. Each kind of thing has a section of its own.
type clusterPage struct {
	Mark      mark
	Problems  []problem
	Replicas  []replica
	Lost      []lost
	Answer    string // how long Redis took to answer
	Redis     redisPart
	Pools     locks
	Locks     locks
	Acts      []act // the newest
	MoreActs  bool
	LostActs  string // which acts are not in it
	Incidents []string
}

// replica is a replica that is up.
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

// gauge is a reading that stands out where it is bad.
type gauge struct {
	Text string
	Bad  bool
}

// lost is a replica whose registration expired.
type lost struct {
	Name string
	Seen moment
}

func (h *handler) cluster(r *http.Request) (*page, error) {
	began := time.Now()
	if _, err := h.operator.Now(r.Context()); err != nil {
		return nil, err
	}
	answer := time.Since(began)
	st, err := h.status(r.Context())
	if err != nil {
		return nil, err
	}
	p := pageOf("cluster", console.Count(len(st.Replicas), "replica")+" up", st)
	if n := len(st.Lost); n > 0 {
		p.Title += fmt.Sprintf(", %d lost", n)
	}
	p.Every = renewMS
	body := clusterOf(st, answer)
	acts, lost, err := h.operator.Acts(r.Context(), actsShown+1)
	if err != nil {
		return nil, err
	}
	body.LostActs, body.MoreActs = lost, len(acts) > actsShown
	body.Acts = actsOf(st.Now, acts[:min(len(acts), actsShown)])
	p.Body = body
	return p, nil
}

func clusterOf(st *operator.Status, answer time.Duration) *clusterPage {
	c := &clusterPage{Answer: took(max(answer, time.Millisecond))}
	for _, l := range st.Lost {
		c.Lost = append(c.Lost, lost{clean(l.Name), momentOf(st.Now, l.Seen)})
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
		c.Incidents = append(c.Incidents, clean(console.IncidentText(in, func(t time.Time) string { return t.UTC().Format(stamp) })))
	}
	c.Mark = worst(st, c)
	return c
}

// worst is the mark of a cluster: that of its worst replica or problem.
func worst(st *operator.Status, c *clusterPage) mark {
	marks := []mark{}
	for _, e := range c.Replicas {
		marks = append(marks, e.Mark)
		if e.Margin.Bad {
			marks = append(marks, markWarning)
		}
	}
	for _, p := range c.Problems {
		marks = append(marks, p.Mark)
	}
	switch {
	case len(st.Replicas) == 0 || slices.Contains(marks, markBad):
		return markBad
	case len(c.Lost) > 0 || slices.Contains(marks, markWarning):
		return markWarning
	}
	return markOK
}

func replicaOf(st *operator.Status, e operator.Replica, digests map[string]int) replica {
	shown := replica{Mark: stateMarks[e.State], Name: clean(e.Name), State: string(e.State), Unable: clean(e.Unable), Seen: momentOf(st.Now, e.Seen), Started: momentOf(st.Now, e.Started),
		Load: e.Load(), Clock: gauge{e.Clock().String(), e.Clock().Excessive()}, Digest: e.ConfigDigest, Config: fmt.Sprintf("%.8s", e.ConfigDigest), Build: clean(e.Version), ZoneData: clean(e.ZoneData)}
	shown.Differs = 2*digests[e.ConfigDigest] <= len(st.Replicas) // it is not that of the majority, which there may not be
	if e.LeaseMargin != nil {
		shown.Margin = gauge{e.LeaseMargin.String(), e.LowMargin()}
	}
	if st.Leader != nil && st.Leader.Replica == e.Name {
		shown.Leads, shown.Token = true, st.Leader.Token
	}
	for _, j := range st.Jobs {
		for _, holder := range j.Holders {
			if holder.Replica == e.Name {
				shown.Running = append(shown.Running, link{clean(j.Name), jobPath(j.Name)})
			}
		}
	}
	const most = 6
	if n := len(shown.Running); n > most {
		shown.Running = append(shown.Running[:most], link{Text: fmt.Sprintf("and %d more", n-most)})
	}
	return shown
}

// Warning is the mark of cells that stand out.
func (*clusterPage) Warning() mark { return markWarning }

// Bad is the mark of a lost replica.
func (*clusterPage) Bad() mark { return markBad }
