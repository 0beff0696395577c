package scheduler

import (
	"errors"
)

// Labels are names and values that a replica has, or that a job requires of its replicas.
type Labels map[string]string

// Include reports whether l contains all of others.
func (l Labels) Include(others Labels) bool {
	for name, want := range others {
		if value, has := l[name]; !has || value != want {
			return false
		}
	}
	return true
}

// ErrElsewhere means that this replica must not run a job, because it lacks labels in the job's Where.
var ErrElsewhere = errors.New("this replica lacks labels that the job requires")
