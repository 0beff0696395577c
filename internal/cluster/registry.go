package cluster

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
)

const (
	// Leadership is the name of the leadership for the cluster's housekeeping in package election.
	Leadership = "leader"
	// RegisterEvery is the interval at which a replica renews its registration.
	RegisterEvery = 5 * time.Second
	// RegistrationDelay is the maximum delay of a renewal by a replica that is up, because a call to Redis may take as long as its time-out.
	RegistrationDelay = 2 * redisconn.Timeout
)

// OccupiesName reports whether a replica is up and not draining, so that no other replica may have its name. A replica that does not renew its registration in
// time has crashed.
func OccupiesName(e journal.Replica, now time.Time) bool {
	return !e.Draining && now.Sub(e.Seen) < RegisterEvery+RegistrationDelay
}

// FormatLabels returns labels as zone=a, rack=7.
func FormatLabels(labels map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, name+"="+labels[name])
	}
	return strings.Join(list, ", ")
}

// FirstLine returns the first line of a text, cut to at most most characters.
func FirstLine(text string, most int) string {
	line, _, _ := strings.Cut(text, "\n")
	if letters := []rune(line); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return line
}
