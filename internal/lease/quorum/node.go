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

	goredis "github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/redis"
)

// An env is the state that all nodes of a quorum share.
type env struct {
	clock     func() time.Duration
	timeout   time.Duration // the timeout of a round trip
	scripts   redis.NodeScripts
	memberKey string
	wakeUp    func()       // wakes the rejoiner, which lets nodes vote again
	lately    atomic.Int64 // the moving average of the duration of a round trip, in nanoseconds
}

// A node is one master of a quorum.
type node struct {
	env   *env
	redis *goredis.Client
	clock lease.ServerClock

	mu         sync.Mutex
	under      int           // the number of calls under way
	progress   time.Duration // the local time of the last answer, or of the first call under way if that call is later
	answeredAt time.Duration // the local time of the last answer
	asked      time.Duration // the local time of the last call
	failing    bool          // the last finished call failed without a reply
	missed     []missedCall
}

// A missedCall is a call that takes back a vote, for a node that did not answer. It is sent when the node answers again.
type missedCall struct {
	call  nodeCall
	until time.Duration // the local time at which the vote expires by itself
}

const (
	// hesitation is the shortest silence after which a node with calls under way counts as silent. Nodes that are slow anyway get more time: see isSilent.
	hesitation = 25 * time.Millisecond
	// probeAfter is the time after which a poll also calls an untrusted node, to find out whether it answers again. No poll waits for this answer.
	probeAfter = time.Second
	// RefreshAfter is the time without an answer after which a poll also calls a node that it does not need. If the node has lost its data, the client
	// notices that, and the node can rejoin before a poll needs its vote.
	RefreshAfter = 10 * time.Second
	// mostUnder bounds the calls under way to a silent node. mostMissed bounds its missed calls.
	mostUnder, mostMissed = 32, 10_000
)

// errSilent is the error of a call that is not sent because too many calls to the node are under way.
var errSilent = fmt.Errorf("%w: the node does not answer", lease.ErrUnknown)

// isSuspect reports whether a node is not trusted to answer: it is silent, or its last call failed. Only an answer restores the trust. If the mere
// passing of time restored it, calls would wait again and again for a node that hangs.
func (n *node) isSuspect(now time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.isSilent(now) || n.failing
}

// probeDue reports whether an untrusted node should get another call as a probe: see probeAfter.
func (n *node) probeDue(now time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return now-n.asked >= probeAfter
}

// isUnseen reports whether a node has not answered for [RefreshAfter].
func (n *node) isUnseen(now time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return now-n.answeredAt >= RefreshAfter
}

// isSilent reports whether a node has calls under way, and has answered no call for a while. The caller holds mu.
func (n *node) isSilent(now time.Duration) bool {
	return n.under > 0 && now-n.progress > max(hesitation, n.env.slowAfter(1))
}

// beginCall counts a call under way. It returns false if too many calls to a silent node are under way; in that case, the call must not be sent.
func (n *node) beginCall(now time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.under >= mostUnder && n.isSilent(now) {
		return false
	}
	if n.under == 0 {
		n.progress = now
	}
	n.asked = now
	n.under++
	return true
}

// endCall counts the end of a call. missed is true if the node has answered, and missed calls can be sent to it.
func (n *node) endCall(now time.Duration, err error) (missed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.under--
	if err != nil && !redis.IsReply(err) {
		n.failing = true
		return false
	}
	n.progress, n.answeredAt, n.failing = now, now, false
	return err == nil && len(n.missed) > 0
}

// keepMissed stores a call until the node answers again.
func (n *node) keepMissed(k nodeCall, until time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.missed) < mostMissed {
		n.missed = append(n.missed, missedCall{k, until})
	}
}

// takeMissed removes the missed calls of the node, and returns those whose votes have not expired.
func (n *node) takeMissed(now time.Duration) []missedCall {
	n.mu.Lock()
	defer n.mu.Unlock()
	due := slices.DeleteFunc(n.missed, func(o missedCall) bool { return o.until <= now })
	n.missed = nil
	return due
}

// A nodeCall is one call of a script, which may be sent to several nodes.
type nodeCall struct {
	script *redis.Script
	keys   []string
	id     string
	idle   int64
	args   []any // the script's arguments from ARGV[4] on

	patience int // see poll.patience
}

// roundTrip sends calls to the node in one round trip, until ctx ends. If the node does not have the scripts, roundTrip enrolls it first. It wakes
// the rejoiner if the node does not vote, or if missed calls can be sent to the node.
func (n *node) roundTrip(ctx context.Context, calls []nodeCall) []vote {
	sent := n.env.clock()
	if !n.beginCall(sent) {
		return allFailed(len(calls), errSilent)
	}
	votes, received, err := n.sendCalls(ctx, calls, sent)
	if n.endCall(received, err) || slices.ContainsFunc(votes, vote.cannotVote) {
		n.env.wakeUp()
	}
	return votes
}

func (n *node) sendCalls(ctx context.Context, calls []nodeCall, sent time.Duration) (votes []vote, received time.Duration, err error) {
	if _, known := n.clock.At(0); known {
		var again bool
		if votes, received, again, err = n.sendOnce(ctx, calls, sent); !again {
			return votes, received, err
		}
	}
	if _, err := n.ensureEnrolled(ctx); err != nil {
		return allFailed(len(calls), err), n.env.clock(), err
	}
	votes, received, _, err = n.sendOnce(ctx, calls, n.env.clock())
	return votes, received, err
}

// sendOnce sends calls. again is true if the node does not have one of the scripts. The caller then repeats all calls. Repeating a call that was
// executed is safe, because the call carries a lease id and a ballot.
func (n *node) sendOnce(ctx context.Context, calls []nodeCall, sent time.Duration) (votes []vote, received time.Duration, again bool, err error) {
	micros, _ := n.clock.At(sent)
	until := micros + n.env.timeout.Microseconds()
	cmds := make([]*goredis.Cmd, len(calls))
	if len(calls) == 1 {
		cmds[0] = calls[0].asCommand(ctx, until)
		_ = redis.Process(ctx, n.redis, redis.Once{Cmd: cmds[0]})
	} else {
		pipe := n.redis.Pipeline()
		for i, k := range calls {
			cmds[i] = k.asCommand(ctx, until)
			_ = pipe.Process(ctx, redis.Once{Cmd: cmds[i]}) // this only queues the command
		}
		_ = redis.Exec(ctx, pipe) // each command has its own error
	}
	received = n.env.clock()
	if cmds[0].Err() == nil {
		n.env.noteDuration(received - sent)
	}
	votes = make([]vote, len(calls))
	var faults []error
	for i, cmd := range cmds {
		raw, fault := cmd.Slice()
		if fault != nil {
			again = again || goredis.HasErrorPrefix(fault, "NOSCRIPT")
			faults = append(faults, fault)
			votes[i].err = redis.Unknown(fault)
			continue
		}
		votes[i] = readVote(raw)
		if votes[i].now > 0 {
			n.clock.Observe(votes[i].now, sent, received)
		}
	}
	return votes, received, again, errors.Join(faults...)
}

func (k nodeCall) asCommand(ctx context.Context, until int64) *goredis.Cmd {
	args := make([]any, 0, 6+len(k.keys)+len(k.args))
	args = append(args, "evalsha", k.script.SHA, len(k.keys))
	for _, key := range k.keys {
		args = append(args, key)
	}
	args = append(args, redis.NodeCommon(k.id, until, k.idle)...)
	return goredis.NewCmd(ctx, append(args, k.args...)...)
}

// A membership is the content of a node's marker. A node loses the marker with its data, and then does not vote: see lua/quorum.lua.
type membership struct {
	state                            string
	now, base, top, longest, sinceAt int64
	epoch                            string
	founder                          bool // the node was marked by markFounder
}

// isNew reports whether a node does not vote and has received no request since it got its marker.
func (m membership) isNew() bool {
	return m.state != votingState && m.base == 0 && m.top == 0 && m.longest == 0
}

const votingState = "voting"

// ensureEnrolled writes a marker to a node that has none, and then loads the scripts. Both steps use one connection, so that the second step fails if
// the node restarts in between. The connection comes from Watch, because [goredis.Client.Conn] writes to the options that it shares with the client.
func (n *node) ensureEnrolled(ctx context.Context) (m membership, err error) {
	defer redis.Shield(&err)
	err = n.redis.Watch(ctx, func(conn *goredis.Tx) error {
		if m, err = n.ensureMarker(ctx, conn); err != nil { // the marker comes first: a restart deletes the scripts, so no claim runs before the marker is checked
			return fmt.Errorf("register a node of the quorum: %w", redis.Unknown(err))
		}
		if err := n.loadScripts(ctx, conn); err != nil {
			return fmt.Errorf("load the scripts of a node of the quorum: %w", redis.Unknown(err))
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

// ensureMarker writes a marker if the node has none, and returns the marker.
func (n *node) ensureMarker(ctx context.Context, conn *goredis.Tx) (membership, error) {
	sent := n.env.clock()
	raw, err := conn.Eval(ctx, n.env.scripts.Enrol.Text, []string{n.env.memberKey}, rand.Text()).Slice()
	if err == nil && len(raw) < 8 {
		err = errShortReply
	}
	if err != nil {
		return membership{}, err
	}
	m := membership{state: redis.Text(raw[0]), now: redis.Number(raw[1]), base: redis.Number(raw[2]), top: redis.Number(raw[3]), longest: redis.Number(raw[4]),
		epoch: redis.Text(raw[5]), sinceAt: redis.Number(raw[6]), founder: redis.Number(raw[7]) == 1}
	if !lease.Sound(m.now, lease.MaxNumber) || !lease.Sound(m.base, lease.MaxNumber) || !lease.Sound(m.top, lease.MaxNumber) || !lease.Sound(m.longest, 2*lease.MaxLease.Microseconds()) {
		return membership{}, fmt.Errorf("%w: a marker of %+v", lease.ErrCorrupt, m)
	}
	n.clock.Observe(m.now, sent, n.env.clock())
	return m, nil
}

func (n *node) loadScripts(ctx context.Context, conn *goredis.Tx) error {
	pipe := conn.Pipeline()
	for _, s := range n.env.scripts.Loaded() {
		pipe.ScriptLoad(ctx, s.Text)
	}
	_, err := pipe.Exec(ctx)
	return err
}

var errShortReply = errors.New("a short reply from the server")

// slowAfter returns the time after which a poll asks the second wave, and no longer waits for optional replies: a multiple of the recent duration of
// a round trip.
func (e *env) slowAfter(times int) time.Duration {
	const least, most, trips = 5 * time.Millisecond, 250 * time.Millisecond, 8
	lately := time.Duration(e.lately.Load())
	return time.Duration(times) * min(max(least, trips*lately), most)
}

func (e *env) noteDuration(d time.Duration) {
	old := e.lately.Load()
	e.lately.Store(old + (int64(d)-old)/8) // of two concurrent calls, one may overwrite the other's value, which does no harm
}
