package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
)

// A CancelRequest selects the runs to stop.
type CancelRequest struct {
	Requester
	Job string
	// Run is the id of one run; "" for all runs of the job.
	Run string
}

// A CanceledRun is a run whose replica was asked to stop it. Its JSON is part of the contract with users.
type CanceledRun struct {
	RunID   string     `json:"run_id"`
	Job     string     `json:"job"`
	Replica string     `json:"replica"`
	Slot    int        `json:"slot"`
	Token   int64      `json:"token"`
	Tick    *time.Time `json:"tick,omitempty"`
}

// Cancel asks the replicas to stop runs of a job. It does not wait for the runs to stop. The list is never nil. Runs are stopped even if the audit log cannot
// be written, because with a quorum the log is in another Redis than the locks. Cancel then returns both the runs and an error. If nothing runs, Cancel returns
// no error, unless the request names a run. It then returns [ErrUnknownRun].
func (o *Operator) Cancel(ctx context.Context, req CancelRequest) ([]CanceledRun, error) {
	if err := req.requesterFault(); err != nil {
		return []CanceledRun{}, err
	}
	var unknown *UnknownJobError
	if err := o.mustKnow(ctx, req.Job); errors.As(err, &unknown) && !unknown.Removed { // a removed job may still have runs
		return []CanceledRun{}, err
	}
	entry, unaudited := o.auditAct(ctx, req.Requester, journal.Act{Kind: journal.ActCancel, Jobs: []string{req.Job}, RunID: req.Run}, 0)
	if errors.Is(unaudited, ErrInvalid) {
		return []CanceledRun{}, unaudited
	}
	runs, err := o.elector.Cancel(ctx, req.Job, req.Run)
	canceled := []CanceledRun{}
	for _, r := range runs {
		canceled = append(canceled, CanceledRun{RunID: r.ID, Job: req.Job, Replica: r.Holder, Slot: r.Slot, Token: r.Token, Tick: tickOf(r)})
	}
	switch {
	case errors.Is(err, election.ErrUnknown):
		return canceled, unavailableError("cancel job "+req.Job, err)
	case err != nil: // a malformed name
		return canceled, &refusal{ErrInvalid, err}
	case len(canceled) > 0 && unaudited != nil:
		return canceled, fmt.Errorf("the runs are to stop, but that is in no audit log: %w", unaudited)
	case len(canceled) > 0:
		return canceled, nil
	}
	if unaudited == nil {
		o.markUnchanged(ctx, entry)
	}
	if err := o.mustKnow(ctx, req.Job); err != nil {
		return canceled, err
	}
	if req.Run != "" {
		return canceled, refusalError(ErrUnknownRun, "job %s has no run %s that is under way", req.Job, req.Run)
	}
	return canceled, nil
}
