package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// patient is how long a look may take, at each server.
	patient = 2 * Timeout
	// hasty is how much later than a majority of the masters the others may answer, where somebody waits for the lock.
	hasty = 250 * time.Millisecond
	// unhurried is longer than any look takes: the end of the looks decides.
	unhurried = 2 * patient
)

// ExamineMasters looks at the masters of a quorum, and soon waits for a minority no longer: see [Conn.Examine] for the patient look. Close waits for the looks.
func (c *Conn) ExamineMasters(ctx context.Context) error {
	c.connectMasters(ctx)
	_, err := c.examineQuorum(ctx, hasty)
	return err
}

// connectMasters waits for connections to a majority of the masters, or until all others have failed: the steps to a connection may take longer than a look.
func (c *Conn) connectMasters(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	ended := make(chan bool, len(c.quorum))
	for _, m := range c.quorum {
		c.looks.Go(func() { ended <- m.Ping(ctx).Err() == nil })
	}
	connected := 0
	for range c.quorum {
		if <-ended {
			connected++
		}
		if connected > len(c.quorum)/2 {
			return
		}
	}
}

// masterLook is what a look at one master of a quorum has found.
type masterLook struct {
	master *master
	health Health
	err    error
}

// examineQuorum looks at the masters that have the locks. A minority may be away: once the others have decided the result, it waits for the rest no
// longer than late. Close waits for the looks that are still under way then.
func (c *Conn) examineQuorum(ctx context.Context, late time.Duration) (Health, error) {
	found := make(chan masterLook, len(c.quorum))
	for _, m := range c.quorum {
		c.looks.Go(func() { found <- m.look(ctx) })
	}
	var answered []masterLook
	var fit, failed int
	var over <-chan time.Time // set once the others can't change the result
	for range c.quorum {
		select {
		case l := <-found:
			answered = append(answered, l)
			if l.err == nil {
				fit++
			} else {
				failed++
			}
			unfit := errors.Is(l.err, ErrUnfit)
			if over == nil && (max(fit, failed) > len(c.quorum)/2 || unfit) {
				over = time.After(late)
			}
		case <-over:
			return c.mergeLooks(answered)
		}
	}
	return c.mergeLooks(answered)
}

// look examines one master of a quorum.
func (m *master) look(ctx context.Context) masterLook {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	h, err := m.alone.examineServer(ctx, m, where(m.url))
	h.server().Keeps = KeepsLocks
	return masterLook{m, h, err}
}

// found is the look at a master, or one without an answer where it is still under way.
func (m *master) found(looks []masterLook) masterLook {
	if i := slices.IndexFunc(looks, func(l masterLook) bool { return l.master == m }); i >= 0 {
		return looks[i]
	}
	l := masterLook{m, healthOf(Server{Address: where(m.url), Keeps: KeepsLocks}), errors.New("no answer yet")}
	l.health.server().fail(l.err)
	return l
}

// NoteAnswers notes from now on which masters of a quorum answer, for [Conn.CloseSilent].
func (c *Conn) NoteAnswers() {
	for _, m := range c.quorum {
		m.AddHook(answerHook{&m.answers})
	}
}

// CloseSilent closes the clients of the masters that have not answered anything: they would be waited for at the end.
func (c *Conn) CloseSilent() {
	for _, m := range c.quorum {
		if !m.answers.Load() {
			_ = m.Close() // whatever is under way to it
		}
	}
}

// mergeLooks returns the faults of a quorum: an error if a majority does not answer, or if one of those that do can't coordinate.
func (c *Conn) mergeLooks(looks []masterLook) (Health, error) {
	var unfit error
	var away []string
	found := map[string]Health{}
	var servers []Server
	for _, m := range c.quorum {
		l := m.found(looks)
		at, err := where(m.url), l.err
		found[at], servers = l.health, append(servers, *l.health.server())
		switch {
		case errors.Is(err, ErrUnfit):
			unfit = errors.Join(unfit, fmt.Errorf("quorum: %s: %w", at, err))
		case err != nil:
			err = TroubleOf(err).Because(err)
			away = append(away, fmt.Sprintf("%s %v", at, err))
			h := Health{}
			h.warn("quorum", "a master of the quorum does not answer: %v", err)
			found[at] = h
		}
	}
	if unfit == nil && len(away) > len(c.quorum)/2 { // else they were not waited for
		return Health{Redis: Deployment{Servers: servers}}, fmt.Errorf("%d of the %d masters of the quorum do not answer: %s", len(away), len(c.quorum), strings.Join(away, "; "))
	}
	return Health{Deployment{Servers: servers}, mergeHealth(found).Warnings}, unfit
}
