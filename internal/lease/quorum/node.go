package quorum

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/script"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// env is what the nodes of a quorum have in common.
type env struct {
	clock     func() time.Duration
	timeout   time.Duration // of a round trip
	scripts   script.Quorum
	memberKey string
	wakeUp    func()       // has nodes that do not vote looked after
	lately    atomic.Int64 // how long round trips take, in nanoseconds
}

// node is one master of a quorum.
type node struct {
	env   *env
	redis *redis.Client
	clock clock.Server

	mu         sync.Mutex
	under      int           // calls under way
	progress   time.Duration // local clock: when it answered last, or the first of those was sent
	answeredAt time.Duration // local clock: when it answered last
	asked      time.Duration // local clock: when it was asked last
	failing    bool          // it has failed, and has not answered since
	missed     []missedCall
}

// missedCall is a vote to be taken back on a node that did not answer, as soon as it does.
type missedCall struct {
	call  nodeCall
	until time.Duration // local clock: then it has run out by itself
}

const (
	// hesitation is how long a node may be silent, at least, before others are asked in its place.
	hesitation = 25 * time.Millisecond
	// probeAfter is how often a node that does not answer is asked all the same. Nothing waits for that.
	probeAfter = time.Second
	// RefreshAfter is after what silence a node that is not needed is asked, too: it may have forgotten, and does not vote at once when it is needed.
	RefreshAfter = 10 * time.Second
	// mostUnder bounds the calls that wait for a silent node, and mostMissed what it is told afterwards.
	mostUnder, mostMissed = 32, 10_000
)

// errSilent is the reply of a node that is not asked, since enough others wait for it already.
var errSilent = fmt.Errorf("%w: the node does not answer", lease.ErrUnknown)

// suspect reports whether a node is not trusted to answer: it is silent, or failed when it was asked last. It is
// trusted again when it has answered. (With the time alone each call would wait for it once more.)
func (n *node) suspect(now time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.silent(now) || n.failing
}

// probe reports whether it is time to ask a node that is not trusted to answer.
func (n *node) probe(now time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return now-n.asked >= probeAfter
}

// unseen reports whether a node has not answered for long.
func (n *node) unseen(now time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return now-n.answeredAt >= RefreshAfter
}

// silent reports whether a node has calls under way and did not answer for a while. mu is
// held.
func (n *node) silent(now time.Duration) bool {
	return n.under > 0 && now-n.progress > max(hesitation, n.env.slowAfter(1))
}

// begin reports whether one more call may be made.
func (n *node) begin(now time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.under >= mostUnder && n.silent(now) {
		return false
	}
	if n.under == 0 {
		n.progress = now
	}
	n.asked = now
	n.under++
	return true
}

// end reports whether the node serves requests, and has missed something.
func (n *node) end(now time.Duration, err error) (missed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.under--
	if err != nil && !transport.IsReply(err) {
		n.failing = true
		return false
	}
	n.progress, n.answeredAt, n.failing = now, now, false
	return err == nil && len(n.missed) > 0
}

// keepMissed keeps a call that is to be made when the node answers again.
func (n *node) keepMissed(k nodeCall, until time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.missed) < mostMissed {
		n.missed = append(n.missed, missedCall{k, until})
	}
}

// takeMissed takes what the node is still to be told.
func (n *node) takeMissed(now time.Duration) []missedCall {
	n.mu.Lock()
	defer n.mu.Unlock()
	due := slices.DeleteFunc(n.missed, func(o missedCall) bool { return o.until <= now })
	n.missed = nil
	return due
}

// nodeCall is one execution of a script on each node.
type nodeCall struct {
	script *script.Script
	keys   []string
	id     string
	idle   int64
	args   []any // ARGV[4] and following

	patience int // see poll
}

// trip makes calls in one round trip, which ends with ctx. Where the node knows no scripts, it is enrolled first. One that has forgotten, or was away,
// is looked after.
func (n *node) trip(ctx context.Context, calls []nodeCall) []vote {
	sent := n.env.clock()
	if !n.begin(sent) {
		return allFailed(len(calls), errSilent)
	}
	votes, received, err := n.send(ctx, calls, sent)
	if n.end(received, err) || slices.ContainsFunc(votes, vote.cannotVote) {
		n.env.wakeUp()
	}
	return votes
}

func (n *node) send(ctx context.Context, calls []nodeCall, sent time.Duration) (votes []vote, received time.Duration, err error) {
	if _, known := n.clock.At(0); known {
		var again bool
		if votes, received, again, err = n.once(ctx, calls, sent); !again {
			return votes, received, err
		}
	}
	if _, err := n.enrol(ctx); err != nil {
		return allFailed(len(calls), err), n.env.clock(), err
	}
	votes, received, _, err = n.once(ctx, calls, n.env.clock())
	return votes, received, err
}

// once sends calls. again: the node does not know a script, and has done none of those for which it says so; that the others are
// made twice is what lease ids and ballots are for.
func (n *node) once(ctx context.Context, calls []nodeCall, sent time.Duration) (votes []vote, received time.Duration, again bool, err error) {
	micros, _ := n.clock.At(sent)
	until := micros + n.env.timeout.Microseconds()
	cmds := make([]*redis.Cmd, len(calls))
	if len(calls) == 1 {
		cmds[0] = calls[0].command(ctx, until)
		_ = transport.Process(ctx, n.redis, transport.Once{Cmd: cmds[0]})
	} else {
		pipe := n.redis.Pipeline()
		for i, k := range calls {
			cmds[i] = k.command(ctx, until)
			_ = pipe.Process(ctx, transport.Once{Cmd: cmds[i]}) // which only queues it
		}
		_ = transport.Exec(ctx, pipe) // each command has its own error
	}
	received = n.env.clock()
	if cmds[0].Err() == nil {
		n.env.took(received - sent)
	}
	votes = make([]vote, len(calls))
	var faults []error
	for i, cmd := range cmds {
		raw, fault := cmd.Slice()
		if fault != nil {
			again = again || redis.HasErrorPrefix(fault, "NOSCRIPT")
			faults = append(faults, fault)
			votes[i].err = transport.Unknown(fault)
			continue
		}
		votes[i] = readVote(raw)
		if votes[i].now > 0 {
			n.clock.Observe(votes[i].now, sent, received)
		}
	}
	return votes, received, again, errors.Join(faults...)
}

func (k nodeCall) command(ctx context.Context, until int64) *redis.Cmd {
	args := make([]any, 0, 6+len(k.keys)+len(k.args))
	args = append(args, "evalsha", k.script.SHA, len(k.keys))
	for _, key := range k.keys {
		args = append(args, key)
	}
	args = append(args, script.NodeCommon{ID: k.id, NotAfter: until, Idle: k.idle}.Encode()...)
	return redis.NewCmd(ctx, append(args, k.args...)...)
}

// membership is what a node's marker says.
type membership struct {
	state                            string
	now, base, top, longest, sinceAt int64
	epoch                            string
	founder                          bool // it took part in the beginning of a quorum
}

// isNew reports whether a node does not vote, and has received nothing since it has its marker.
func (m membership) isNew() bool {
	return m.state != votingState && m.base == 0 && m.top == 0 && m.longest == 0
}

const votingState = "voting"

// enrol makes sure that a node has a marker, and the scripts: in this order, on one connection, which a node that restarts in between
// has closed. Watch lends that connection; [redis.Client.Conn] writes to the options that it shares with the client.
func (n *node) enrol(ctx context.Context) (m membership, err error) {
	defer transport.Shield(&err)
	err = n.redis.Watch(ctx, func(conn *redis.Tx) error {
		if m, err = n.mark(ctx, conn); err != nil { // it may not have noticed that it was restarted, and is taught nothing
			return fmt.Errorf("register a node of the quorum: %w", transport.Unknown(err))
		}
		if err := n.teach(ctx, conn); err != nil {
			return fmt.Errorf("load the scripts of a node of the quorum: %w", transport.Unknown(err))
		}
		return nil
	})
	if err != nil {
		return membership{}, err
	}
	n.mu.Lock()
	n.failing = false
	n.mu.Unlock()
	if m.state != votingState {
		n.env.wakeUp()
	}
	return m, nil
}

// mark has the node write its marker, where there is none, and reads it.
func (n *node) mark(ctx context.Context, conn *redis.Tx) (membership, error) {
	sent := n.env.clock()
	raw, err := conn.Eval(ctx, n.env.scripts.Enrol.Text, []string{n.env.memberKey},
		script.QuorumEnrolArgs{Epoch: rand.Text()}.Encode()...).Slice()
	if err == nil && len(raw) < 8 {
		err = errShortReply
	}
	if err != nil {
		return membership{}, err
	}
	m := membership{state: transport.Text(raw[0]), now: transport.Number(raw[1]), base: transport.Number(raw[2]), top: transport.Number(raw[3]), longest: transport.Number(raw[4]),
		epoch: transport.Text(raw[5]), sinceAt: transport.Number(raw[6]), founder: transport.Number(raw[7]) == 1}
	if !lease.Sound(m.now, lease.MaxNumber) || !lease.Sound(m.base, lease.MaxNumber) || !lease.Sound(m.top, lease.MaxNumber) || !lease.Sound(m.longest, 2*lease.MaxLease.Microseconds()) {
		return membership{}, fmt.Errorf("%w: a marker of %+v", lease.ErrCorrupt, m)
	}
	n.clock.Observe(m.now, sent, n.env.clock())
	return m, nil
}

func (n *node) teach(ctx context.Context, conn *redis.Tx) error {
	pipe := conn.Pipeline()
	for _, s := range n.env.scripts.Loaded() {
		pipe.ScriptLoad(ctx, s.Text)
	}
	_, err := pipe.Exec(ctx)
	return err
}

var errShortReply = errors.New("a short reply from the server")

// slowAfter is when the second wave goes out, and when a reply that would only make things clearer is waited for no longer: some
// round trips, as they were lately.
func (e *env) slowAfter(times int) time.Duration {
	const least, most, trips = 5 * time.Millisecond, 250 * time.Millisecond, 8
	lately := time.Duration(e.lately.Load())
	return time.Duration(times) * min(max(least, trips*lately), most)
}

// took takes in how long a round trip lasted.
func (e *env) took(d time.Duration) {
	old := e.lately.Load()
	e.lately.Store(old + (int64(d)-old)/8) // of two at once one may be lost
}
