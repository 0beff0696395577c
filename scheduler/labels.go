package scheduler

import (
	"errors"
	"time"
)

// Labels say what a replica has, or what a job asks for: names and values.
type Labels map[string]string

// Include tells whether all of others are among them.
func (l Labels) Include(others Labels) bool {
	for name, want := range others {
		if value, has := l[name]; !has || value != want {
			return false
		}
	}
	return true
}

// ErrElsewhere means that a job runs on other replicas only, since this one has not all labels of its Where.
var ErrElsewhere = errors.New("this replica has not the labels that the job asks for")

// lag is how long after a tick's deadline this replica waits before it settles it. Who may run the job knows better why it was missed, and is
// given time to say so.
func (t *task) lag() time.Duration {
	if t.foreign {
		return unanswered
	}
	return 0
}
