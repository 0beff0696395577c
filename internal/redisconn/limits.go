package redisconn

import (
	"fmt"
	"slices"
)

// facts are the properties of a deployment that the limits depend on.
type facts struct {
	kind    Kind
	acked   int // [redis].acked_replicas
	servers []Server
}

// A condition restricts a limit to some deployments, as code and in the wording of docs/redis.md. The zero value always holds.
type condition struct {
	holds func(facts) bool
	words string
}

// A limit is a guarantee that some kinds of Redis cannot give.
type limit struct {
	kinds []Kind
	when  condition
	text  string
}

var (
	onMasters = []Kind{KindSingle, KindSentinel, KindCluster}

	// With a single address, acked_replicas shows that a failover is possible: the address may belong to a proxy or to a provider's primary.
	copies  = condition{facts.hasCopies, "with replicas of Redis"}
	unacked = condition{func(f facts) bool { return f.hasCopies() && f.acked == 0 }, "with replicas of Redis, without `acked_replicas`"}
	acked   = condition{func(f facts) bool { return f.acked > 0 }, "with `acked_replicas`"}
	noAOF   = condition{func(f facts) bool { return f.hasPersistence(NoPersistence, NoAppendOnly, Snapshots) }, "without `appendonly`"}
	aof     = condition{func(f facts) bool { return f.hasPersistence(AppendOnly) }, "with `appendonly`"}
	hidden  = condition{func(f facts) bool {
		return f.hasPersistence("") && !f.hasPersistence(NoPersistence, NoAppendOnly, Snapshots)
	}, "if Redis hides its INFO"}
	before7 = condition{func(f facts) bool { return f.isOlderThan(7) }, "before Redis 7"}
)

// limits lists the limits of all kinds of Redis, the most serious first. docs/redis.md has the same table; docs/guarantees.md has the reasons.
var limits = []limit{
	{onMasters, unacked, "A failover may lose the last grants, and a master that is cut off grants beside the new one: a tick may run twice. Set [redis].acked_replicas."},
	{onMasters, acked, "If no replica of Redis that acknowledged a grant takes part in a failover, the grant is lost, and a tick may run twice."},
	{onMasters, copies, "A failover may lose the end of a run (with recover it runs again) or a release (its slot stays held until the lease ends); also with [redis].acked_replicas."},
	{onMasters, noAOF, "A restart of Redis may forget the last writes, or all of them: only replicas that are up remember what ran. Set appendonly yes."},
	{onMasters, aof, "If the machine of Redis crashes, the grants of the last second may be lost, and only replicas that are up remember them. Set appendfsync to always."},
	{onMasters, hidden, "If Redis has no append-only file, its restart may forget writes: only replicas that are up remember what ran. Check appendonly."},
	{[]Kind{KindSingle}, condition{}, "cronclave knows of no failover: without the server, ticks wait up to their start_deadline and are then missed. redis-sentinel:// and redis-cluster:// have a failover."},
	{onMasters, condition{}, "If a master is silent for a quarter of a lease, about 8 s by default, runs may be stopped."},
	{onMasters, acked, "While fewer replicas of Redis than [redis].acked_replicas acknowledge, nothing is granted and no lease is renewed."},
	{onMasters, copies, "A failover may lose the newest records of the history, also with [redis].acked_replicas."},
	{[]Kind{KindCluster}, condition{}, "While a hash slot moves, its jobs get no grants and no renewals; if the move takes longer than a quarter of a lease, runs may be stopped."},
	{[]Kind{KindCluster}, before7, "There are no sharded channels: each message to a waiter goes to all nodes."},
	{onMasters, condition{}, "If the clock jumps forward by 1 % of a lease (0.3 s by default), also by a failover to a clock that is ahead, two runs may overlap."},
	{onMasters, condition{}, "If the clock of Redis is set back by more than a minute, ticks of the repeated time run once more."},

	{[]Kind{KindQuorum}, condition{}, "Without a majority of its masters that answers, nothing is granted or renewed; runs may be stopped after a quarter of their lease."},
	{[]Kind{KindQuorum}, condition{}, "If a majority loses its data within the longest lease, that is as FLUSHALL on one server: only replicas that are up remember the locks."},
	{[]Kind{KindQuorum}, condition{}, "A restarted master is shown as up, and votes after the longest lease, 15 s at least. Before you restart another, wait until it votes (docs/redis.md#maintenance)."},
	{[]Kind{KindQuorum}, condition{}, "The history, the audit log and trigger requests are on the Redis of [redis].url alone, and are lost with its data."},
	{[]Kind{KindQuorum}, condition{}, "While the Redis of [redis].url is away, runs go on, but no replica starts, and status, pause and trigger fail."},
	{[]Kind{KindQuorum}, condition{}, "If the clocks of a majority jump forward by 1 % of a lease (0.3 s by default), two runs may overlap."},
	{[]Kind{KindQuorum}, condition{}, "If the clocks of a majority are set back by more than a minute, ticks of the repeated time run once more."},
	{[]Kind{KindQuorum}, condition{}, "Waiting for a lock or a pool is not fair: the next free slot may go to any waiter."},
	{[]Kind{KindQuorum}, condition{}, "cancel and overlap = \"replace\" reach a run at its next renewal, a third of its lease later at most."},
	{[]Kind{KindQuorum}, condition{}, "cronclave fence needs one server (--redis). In Go, sets of locks, Update and Fence return ErrQuorum."},
	{[]Kind{KindQuorum}, condition{}, "Different lists of masters, or one master under two names, are not noticed: check that all replicas have the same list."},

	{[]Kind{KindEmbedded}, condition{}, "It is a trial: replicas on other machines do not reach it, and would run each job as well."},
	{[]Kind{KindEmbedded}, condition{}, "Its data is in the memory of one process: locks, history and pauses end with it."},
}

// limitsOf returns the limits of a deployment.
func limitsOf(f facts) []string {
	texts := []string{}
	for _, l := range limits {
		if slices.Contains(l.kinds, f.kind) && (l.when.holds == nil || l.when.holds(f)) {
			texts = append(texts, l.text)
		}
	}
	return texts
}

// hasCopies reports whether a replica of Redis may become the master.
func (f facts) hasCopies() bool {
	return f.kind != KindSingle || f.acked > 0 || slices.ContainsFunc(f.servers, func(s Server) bool { return s.Replicas != nil && *s.Replicas > 0 })
}

// hasPersistence reports whether any server that answers has one of these kinds of persistence.
func (f facts) hasPersistence(of ...Persistence) bool {
	return slices.ContainsFunc(f.servers, func(s Server) bool { return s.isAnswering() && slices.Contains(of, s.Persistence) })
}

// isOlderThan reports whether any server is known to be older than a major version.
func (f facts) isOlderThan(major int) bool {
	return slices.ContainsFunc(f.servers, func(s Server) bool {
		n, known := majorOf(s.Version)
		return known && n < major
	})
}

// majorOf returns the major version.
func majorOf(version string) (major int, known bool) {
	_, err := fmt.Sscanf(version, "%d.", &major)
	return major, err == nil
}
