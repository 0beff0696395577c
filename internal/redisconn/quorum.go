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
	// patient is the time limit of the check of one server.
	patient = 2 * Timeout
	// hasty is the time for which a hurried check waits for the other masters after a majority has answered.
	hasty = 250 * time.Millisecond
	// unhurried is longer than any check, so that a check with this limit waits for all masters.
	unhurried = 2 * patient
)

// ExamineMasters checks the masters of a quorum. After a majority has answered, it waits for the other masters for only 250 ms, while [Conn.Examine]
// waits for all. Checks that are still running continue in the background, and Close waits for them.
func (c *Conn) ExamineMasters(ctx context.Context) error {
	c.connectMasters(ctx)
	_, err := c.examineQuorum(ctx, hasty)
	return err
}

// connectMasters waits until a majority of the masters is connected, or all connection attempts have ended. It is needed because connecting may take
// longer than the time limit of a check.
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

// examineQuorum checks the masters that keep the locks. Once more answers can't change the result, it waits for the other masters for at most late,
// because a minority may be down. Close waits for checks still in progress.
func (c *Conn) examineQuorum(ctx context.Context, late time.Duration) (Health, error) {
	found := make(chan masterLook, len(c.quorum))
	for _, m := range c.quorum {
		c.looks.Go(func() { found <- m.runCheck(ctx) })
	}
	var answered []masterLook
	var fit, failed int
	var over <-chan time.Time // set once more answers can't change the result
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

// lookOf returns the result of a master's check. If the check is still in progress, it returns a result with the error "no answer yet".
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

// mergeLooks merges the checks of a quorum. It returns an error if a majority does not answer, or if a master can't coordinate.
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
	if unfit == nil && len(away) > len(c.quorum)/2 { // with an unfit master, the check ended early, and other masters may still answer
		return Health{Redis: Deployment{Servers: servers}}, fmt.Errorf("%d of the %d masters of the quorum do not answer: %s", len(away), len(c.quorum), strings.Join(away, "; "))
	}
	return Health{Deployment{Servers: servers}, mergeHealth(found).Warnings}, unfit
}
