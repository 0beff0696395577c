package console

import (
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// RedisCells are the properties of a Redis server as texts. An unknown property is "".
type RedisCells struct {
	Keeps, State, Version, Uptime, RoundTrip, Persistence, Memory, Clients, Replicas string
}

// RedisCellsOf returns the properties of a server as texts.
func RedisCellsOf(s cluster.RedisServer) RedisCells {
	c := RedisCells{Keeps: string(s.Keeps), State: string(s.State), Version: s.Version, Persistence: string(s.Persistence), Clients: countOf(s.Clients), Replicas: countOf(s.Replicas)}
	if s.UptimeS != nil {
		c.Uptime = Span(time.Duration(min(*s.UptimeS, maxUptime)) * time.Second)
	}
	if s.RoundTripMS != nil {
		c.RoundTrip = fmt.Sprintf("%.1f ms", *s.RoundTripMS)
	}
	switch {
	case s.MemoryUsed == nil:
	case s.MemoryLimit == nil:
		c.Memory = sizeOf(*s.MemoryUsed)
	case *s.MemoryLimit == 0:
		c.Memory = sizeOf(*s.MemoryUsed) + ", no limit"
	default:
		c.Memory = sizeOf(*s.MemoryUsed) + " of " + sizeOf(*s.MemoryLimit)
	}
	return c
}

// maxUptime limits the uptime in seconds, because a damaged value could overflow a duration.
const maxUptime = 100 * 365 * 24 * 3600

// IncidentText describes an incident of Redis: its kind, its time, and the replica that saw it. stamp formats the times.
func IncidentText(in journal.Incident, stamp func(time.Time) string) string {
	if in.Kind == journal.DataLoss {
		return fmt.Sprintf("lost its data between %s and %s (seen by %s)", stamp(in.From), stamp(in.To), in.Replica)
	}
	return fmt.Sprintf("no answer for %s, until %s (seen by %s)", Span(in.Length()), stamp(in.To), in.Replica)
}

func countOf(n *int64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

// sizeOf formats a size in bytes, in the greatest unit for which the number is at least 1.
func sizeOf(n int64) string {
	size, unit := float64(n), 0
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for ; size >= 1024 && unit < len(units)-1; unit++ {
		size /= 1024
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", size, units[unit])
}

// printRedis prints the servers of Redis and their limits, in wide output only.
func (p Printer) printRedis(st *cluster.Status) {
	if !p.Wide || st.Redis.Kind == "" {
		return
	}
	fmt.Fprintln(p.Out)
	t := newTable("REDIS", "KEEPS", "STATE", "VERSION", "UP FOR", "ROUND TRIP", "PERSISTENCE", "MEMORY", "CLIENTS", "REPLICAS")
	for _, s := range st.Redis.Servers {
		m := plain
		if s.State != cluster.RedisUp {
			m = bad
		}
		c := RedisCellsOf(s)
		cells := []string{s.Address, c.Keeps, c.State, c.Version, c.Uptime, c.RoundTrip, c.Persistence, c.Memory, c.Clients, c.Replicas}
		for i, cell := range cells {
			if cell == "" {
				cells[i] = "-"
			}
		}
		t.addRow(m, cells...)
	}
	t.print(p)
	if more := st.Redis.ServerCount - len(st.Redis.Servers); more > 0 {
		fmt.Fprintf(p.Out, "and %d more\n", more)
	}
	for _, s := range st.Redis.Servers {
		if s.Fault != "" {
			p.printItem(bad, s.Address+": "+s.Fault)
		}
	}
	for _, in := range st.Incidents {
		p.printItem(advice, IncidentText(in, p.formatStamp))
	}
	fmt.Fprintf(p.Out, "\nlimits of this Redis (%s):\n", st.Redis.Kind)
	for _, text := range st.Redis.Limits {
		p.printItem(advice, text)
	}
}
