package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cronclave/cronclave/internal/journal"
)

// A Requester names the user who requests an act, and the reason. Both are written to the audit log.
type Requester struct {
	// By is the name of the user. Required.
	By string
	// Reason is one line of at most 200 characters, for display only; may be "".
	Reason string
}

// requesterFault returns an error if the audit log would refuse the requester.
func (r Requester) requesterFault() error {
	switch {
	case r.By == "":
		return refusalError(ErrInvalid, "the name of the user is missing")
	case utf8.RuneCountInString(r.Reason) > maxReason:
		return refusalError(ErrInvalid, "the reason has %d characters: write at most %d", utf8.RuneCountInString(r.Reason), maxReason)
	case strings.ContainsFunc(r.Reason, unicode.IsControl):
		return refusalError(ErrInvalid, "the reason is %q: it must be one line, without tabs", r.Reason)
	}
	return nil
}

// maxReason is the maximum length of a reason, in characters.
const maxReason = 200

// auditAct writes an act to the audit log, and returns the entry. Call it before the act is carried out. After an error the act must not be carried out.
// lasting is the length of a pause that ends by itself; otherwise 0.
func (o *Operator) auditAct(ctx context.Context, r Requester, act journal.Act, lasting time.Duration) (journal.Act, error) {
	act.By, act.Reason = r.By, r.Reason
	act, err := o.journal.Audit(ctx, act, lasting)
	if err == nil && o.cfg.OnAct != nil {
		o.cfg.OnAct(act)
	}
	switch {
	case errors.Is(err, journal.ErrInvalid): // a malformed name
		return act, &refusal{ErrInvalid, err}
	case errors.Is(err, journal.ErrTooManyActs):
		return act, &refusal{ErrTooMany, fmt.Errorf("%s: nothing was done: %w", act.Kind, err)}
	case err != nil:
		return act, unavailableError(fmt.Sprintf("%s: nothing was done, as the audit log cannot be written", act.Kind), err)
	}
	return act, nil
}

// markUnchanged marks the entry of an act that changed nothing. If Redis does not answer, the entry stays as it is.
func (o *Operator) markUnchanged(ctx context.Context, entry journal.Act) {
	if entry.ID != "" {
		_ = o.journal.Unchanged(ctx, entry) // after an error the log is only longer
	}
}

// Acts returns the newest acts, from new to old. Damaged entries are left out. lost describes the entries that a loss of Redis' data may have removed. It is ""
// if no loss is known, or if acts older than the loss are still there.
func (o *Operator) Acts(ctx context.Context, most int) (acts []journal.Act, lost string, err error) {
	acts, err = o.journal.Acts(ctx, most)
	if err == nil || errors.Is(err, journal.ErrCorrupt) {
		var incidents []journal.Incident
		now, _ := o.locks.ServerTime(ctx) // after an error now is zero, and no loss is found
		if incidents, err = o.journal.Incidents(ctx, now); len(acts) < most {
			lost = lostActs(incidents, acts)
		}
	}
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, "", unavailableError("read the audit log of namespace "+o.cfg.Namespace, err)
	}
	return append([]journal.Act{}, acts...), lost, nil
}
