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
	// patient is the time limit of a check, at each server.
	patient = 2 * Timeout
	// hasty is the time that the other masters have to answer after a majority has, if somebody is waiting for a lock.
	hasty = 250 * time.Millisecond
	// unhurried is longer than any check takes, so that all masters are waited for.
	unhurried = 2 * patient
)

// ExamineMasters checks the masters of a quorum. Once a majority has answered it waits only a little longer for the rest; [Conn.Examine] waits for all. Checks
// that still run go on in the background; Close waits for them.
func (c *Conn) ExamineMasters(ctx context.Context) error {
	c.connectMasters(ctx)
	_, err := c.examineQuorum(ctx, hasty)
	return err
}

// connectMasters waits until a majority of the masters is connected, or all attempts have ended, because connecting may take longer than a check.
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

// A masterLook is the result of a check of one master of a quorum.
type masterLook struct {
	master *master
	health Health
	err    error
}

// examineQuorum checks the masters that keep the locks. A minority may be down: once the answers have decided the result, it waits for the rest no longer
// than late. Close waits for the checks still in progress.
func (c *Conn) examineQuorum(ctx context.Context, late time.Duration) (Health, error) {
	found := make(chan masterLook, len(c.quorum))
	for _, m := range c.quorum {
		c.looks.Go(func() { found <- m.runCheck(ctx) })
	}
	var answered []masterLook
	var fit, failed int
	var over <-chan time.Time // set once the rest can't change the result
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

// runCheck checks one master of a quorum.
func (m *master) runCheck(ctx context.Context) masterLook {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	h, err := m.alone.examineServer(ctx, m, redactedURL(m.url))
	h.onlyServer().Keeps = KeepsLocks
	return masterLook{m, h, err}
}

// lookOf returns the result of a master's check, or a result without an answer if the check is still in progress.
func (m *master) lookOf(looks []masterLook) masterLook {
	if i := slices.IndexFunc(looks, func(l masterLook) bool { return l.master == m }); i >= 0 {
		return looks[i]
	}
	l := masterLook{m, healthOf(Server{Address: redactedURL(m.url), Keeps: KeepsLocks}), errors.New("no answer yet")}
	l.health.onlyServer().setFault(l.err)
	return l
}

// NoteAnswers starts to record which masters of a quorum answer, for [Conn.CloseSilent].
func (c *Conn) NoteAnswers() {
	for _, m := range c.quorum {
		m.AddHook(answerHook{&m.answers})
	}
}

// CloseSilent closes the clients of the masters that have not answered since [Conn.NoteAnswers], so that the end of a command does not wait for them.
func (c *Conn) CloseSilent() {
	for _, m := range c.quorum {
		if !m.answers.Load() {
			_ = m.Close() // requests in progress fail
		}
	}
}

// mergeLooks returns the faults of a quorum: an error if a majority does not answer, or if a master that answers can't coordinate.
func (c *Conn) mergeLooks(looks []masterLook) (Health, error) {
	var unfit error
	var away []string
	found := map[string]Health{}
	var servers []Server
	for _, m := range c.quorum {
		l := m.lookOf(looks)
		at, err := redactedURL(m.url), l.err
		found[at], servers = l.health, append(servers, *l.health.onlyServer())
		switch {
		case errors.Is(err, ErrUnfit):
			unfit = errors.Join(unfit, fmt.Errorf("quorum: %s: %w", at, err))
		case err != nil:
			err = TroubleOf(err).Because(err)
			away = append(away, fmt.Sprintf("%s %v", at, err))
			h := Health{}
			h.addWarning("quorum", "a master of the quorum does not answer: %v", err)
			found[at] = h
		}
	}
	if unfit == nil && len(away) > len(c.quorum)/2 { // otherwise the silent ones may only be late
		return Health{Redis: Deployment{Servers: servers}}, fmt.Errorf("%d of the %d masters of the quorum do not answer: %s", len(away), len(c.quorum), strings.Join(away, "; "))
	}
	return Health{Deployment{Servers: servers}, mergeHealth(found).Warnings}, unfit
}
