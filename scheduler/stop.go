package scheduler

import (
	"errors"

	"github.com/cronclave/cronclave/election"
)

// The causes with which the context of a run ends when a user or a newer tick stops it.
var (
	ErrCanceled = errors.New("the run was canceled")
	ErrReplaced = errors.New("a newer tick replaces the run")
)

// whyStopped returns ErrCanceled or ErrReplaced if the holder of a term was asked to stop, or nil if it was not.
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

// stopRequested returns a channel that is closed when the holder of a term is asked to stop.
func stopRequested(term *election.Term) <-chan struct{} {
	if term == nil {
		return nil
	}
	return term.Stopping()
}
