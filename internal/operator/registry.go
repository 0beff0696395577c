package operator

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
)

const (
	// Leadership names the leadership of the cluster's housekeeping, as the election knows it.
	Leadership = "leader"
	// RegisterEvery is how often a replica renews its registration.
	RegisterEvery = 5 * time.Second
	// RegistrationDelay is how much later than that a replica that is up may renew it: its call may take its time-out.
	RegistrationDelay = 2 * redisconn.Timeout
)

// OccupiesName reports whether a replica is up and stays so: no other may have its name. One that has crashed does not renew its registration.
func OccupiesName(e journal.Replica, now time.Time) bool {
	return !e.Draining && now.Sub(e.Seen) < RegisterEvery+RegistrationDelay
}

// FormatLabels writes labels as zone=a, rack=7.
func FormatLabels(labels map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, name+"="+labels[name])
	}
	return strings.Join(list, ", ")
}

// FirstLine returns the first line of a text, with so many characters at most.
func FirstLine(text string, most int) string {
	line, _, _ := strings.Cut(text, "\n")
	if letters := []rune(line); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return line
}
