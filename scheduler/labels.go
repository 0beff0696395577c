package scheduler

import (
	"errors"
)

// Labels are names and values that a replica has, or that a job requires of its replicas.
type Labels map[string]string

// Include reports whether all of others are among them.
func (l Labels) Include(others Labels) bool {
	for name, want := range others {
		if value, has := l[name]; !has || value != want {
			return false
		}
	}
	return true
}

// ErrElsewhere means that a job runs only on other replicas, because this one lacks labels in its Where.
var ErrElsewhere = errors.New("this replica lacks labels that the job requires")
