package locktest

import "strings"

// capability is what a theorem speaks of, and not all kinds of servers have.
type capability int

const (
	queue        capability = 1 << iota // waiters in line, first come, first served
	sets                                // several locks at once
	transactions                        // WATCH, MULTI and EXEC
	fenced                              // a fence kept in Redis
	memory                              // a lock that is forgotten as a whole is closed for a lease
	layout                              // the past is faked in the keys of one server
	votes                               // nodes, some of which may be away or have forgotten

	nothing capability = 0

	oneServer = queue | sets | transactions | fenced | memory | layout
	ofQuorum  = votes
)

func (c capability) String() string {
	var all []string
	for i, name := range []string{"a fair queue", "sets of locks", "transactions", "fences", "one server's memory", "one server's keys", "several nodes"} {
		if c&(1<<i) != 0 {
			all = append(all, name)
		}
	}
	return strings.Join(all, ", ")
}
