package operator

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

// Requester is the user that asks for an act, and the reason, for the audit log.
type Requester struct {
	// By is the user. Required.
	By string
	// Reason is for people: one line of at most 200 characters; may be "".
	Reason string
}

// fault is the error of a requester that the audit log refuses.
func (r Requester) fault() error {
	switch {
	case r.By == "":
		return refuse(ErrInvalid, "the name of the user is missing")
	case utf8.RuneCountInString(r.Reason) > maxReason:
		return refuse(ErrInvalid, "the reason has %d characters: write at most %d", utf8.RuneCountInString(r.Reason), maxReason)
	case strings.ContainsFunc(r.Reason, unicode.IsControl):
		return refuse(ErrInvalid, "the reason is %q: it must be one line, without tabs", r.Reason)
	}
	return nil
}

// maxReason is how long a reason may be, in characters.
const maxReason = 200

// audit writes an act down before it is done, and returns its entry: an act that cannot be written down is not done. lasting is for a pause that ends by
// itself, otherwise 0.
func (o *Operator) audit(ctx context.Context, r Requester, act journal.Act, lasting time.Duration) (journal.Act, error) {
	act.By, act.Reason = r.By, r.Reason
	act, err := o.journal.Audit(ctx, act, lasting)
	if err == nil && o.cfg.OnAct != nil {
		o.cfg.OnAct(act)
	}
	switch {
	case errors.Is(err, journal.ErrInvalid): // a name that can't be one
		return act, &refusal{ErrInvalid, err}
	case errors.Is(err, journal.ErrTooManyActs):
		return act, &refusal{ErrTooMany, fmt.Errorf("%s: nothing was done: %w", act.Kind, err)}
	case err != nil:
		return act, unavailable(fmt.Sprintf("%s: nothing was done, as the audit log cannot be written", act.Kind), err)
	}
	return act, nil
}

// unchanged notes that an act changed nothing. If Redis does not answer, the act keeps an entry of its own.
func (o *Operator) unchanged(ctx context.Context, entry journal.Act) {
	if entry.ID != "" {
		_ = o.journal.Unchanged(ctx, entry) // the log is only longer otherwise
	}
}

// Acts returns what people have asked the cluster to do: the newest acts, the newest first. Damaged entries are left out. lost says which
// entries may have gone with the data of Redis; "" if none have, as far as is known, or if older acts than these are left.
func (o *Operator) Acts(ctx context.Context, most int) (acts []journal.Act, lost string, err error) {
	acts, err = o.journal.Acts(ctx, most)
	if err == nil || errors.Is(err, journal.ErrCorrupt) {
		var incidents []journal.Incident
		now, _ := o.locks.ServerTime(ctx) // without it no loss is known
		if incidents, err = o.journal.Incidents(ctx, now); len(acts) < most {
			lost = lostActs(incidents, acts)
		}
	}
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, "", unavailable("read the audit log of namespace "+o.cfg.Namespace, err)
	}
	return append([]journal.Act{}, acts...), lost, nil
}
