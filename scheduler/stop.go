package scheduler

import (
	"errors"

	"github.com/cronclave/cronclave/election"
)

// The causes with which a run's context ends when a user or a newer tick stops it.
var (
	ErrCanceled = errors.New("the run was canceled")
	ErrReplaced = errors.New("a newer tick replaces the run")
)

// whyStopped is the cause that a term's holder was given; nil if there is none.
func whyStopped(term *election.Term) error {
	if term == nil {
		return nil
	}
	switch term.StopReason() {
	case "":
		return nil
	case election.StopReplaced:
		return ErrReplaced
	}
	return ErrCanceled
}

// stopping is closed when the holder of a term is asked to stop.
func stopping(term *election.Term) <-chan struct{} {
	if term == nil {
		return nil
	}
	return term.Stopping()
}
