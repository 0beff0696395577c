package locktest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/locking"
)

// quorumRenewal is how many words a renewal of lua/quorum_renew.lua has.
const quorumRenewal = 3 + 3 + 3 + 6

// quorumRelease is how many lua/quorum_release.lua has.
const quorumRelease = 3 + 3 + 3 + 4

// quorumAccept is how many lua/quorum_accept.lua has.
const quorumAccept = 3 + 4 + 3 + 8

func quorums() []theorem {
	return []theorem{
		{"NodeThatForgotDoesNotVoteForALease", forgetfulNode, votes},
		{"NodeThatForgotWaitsForWhatIsOnItsWay", forgetfulInAMoment, votes},
		{"NodeThatForgotKnowsTheLedgerWhenItVotes", reseededNode, votes},
		{"MinorityThatForgotOneAfterTheOtherLosesNothing", rollingLoss, votes},
		{"KeeperRepairsAMinority", repairedMinority, votes},
		{"MajorityThatLostItsRowsEndsTheLease", lostMajority, votes},
		{"RefusedClaimLeavesNothingBehind", refusedLeavesNothing, votes},
		{"HalfMadeGrantIsCompletedOnce", halfMade, votes},
		{"RowStaysShutAfterAnExpiryWithADelay", shutOnQuorum, votes},
		{"MajoritiesOfDifferentRowsLetNobodyIn", differentRows, votes},
		{"LateWriteBackChangesNothing", lateWriteBack, votes},
		{"LateTryLeavesALaterOneAlone", lateTry, votes},
		{"LateDropLeavesALaterTryAlone", func(b *bench) { b.lateDrop(locking.Request{}) }, votes},
		{"LateDropLeavesALaterTryForATickAlone", func(b *bench) { b.lateDrop(locking.Request{Tick: b.tick(1)}) }, votes},
		{"NumberIsPromisedOnce", promisedOnce, votes},
		{"OrphanIsNotRenewed", orphanStaysDead, votes},
	}
}

// refuses demands the sentinel of what is not possible.
func refuses(b *bench) {
	b.Helper()
	_, _, sets := b.a.Several("{x}:1", "{x}:2").TryLock(b.ctx)
	update := b.a.Update(b.ctx, []string{"key"}, func(*locking.Tx) error { return nil })
	fence := b.a.Fence("resource").Pass(b.ctx, 1)
	for what, err := range map[string]error{"a set of locks": sets, "an update": update, "a fence": fence} {
		if !errors.Is(err, locking.ErrQuorum) {
			b.Errorf("%s: %v", what, err)
		}
	}
}

// on fakes the past on some nodes of a quorum.
func (b *bench) on(nodes []redis.UniversalClient, do func(node redis.UniversalClient) error) {
	b.Helper()
	for _, node := range nodes {
		if err := do(node); err != nil {
			b.Fatal(err)
		}
	}
}

// register is what a node has accepted last.
func (b *bench) register(node redis.UniversalClient) map[string]any {
	b.Helper()
	text, err := node.HGet(b.ctx, b.base(), "value").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		b.Fatal(err)
	}
	all := map[string]any{}
	if text == "" {
		return all
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		b.Fatal(err)
	}
	return all
}

// setRegister fakes a field of what all nodes have accepted.
func (b *bench) setRegister(field string, value any) {
	b.Helper()
	var newest map[string]any
	ballot := ""
	b.on(b.nodes, func(node redis.UniversalClient) error {
		if at := node.HGet(b.ctx, b.base(), "ballot").Val(); at >= ballot && at != "" {
			newest, ballot = b.register(node), at
		}
		return nil
	})
	newest[field] = value
	next, _ := strconv.ParseInt(ballot, 10, 64)
	ballot = fmt.Sprint(next + 1) // what is still on its way comes too late
	text, err := json.Marshal(newest)
	if err != nil {
		b.Fatal(err)
	}
	b.on(b.nodes, func(node redis.UniversalClient) error {
		return node.HSet(b.ctx, b.base(), "value", string(text), "ballot", ballot, "floor", ballot).Err()
	})
}

// setRowExpiry fakes the end of a lease on all nodes, and shuts its id so that its keeper, which is alive, does not renew it.
func (b *bench) setRowExpiry(l *locking.Lease, at time.Time) {
	b.Helper()
	b.everywhere(l)
	field := fmt.Sprint("r", l.Slot())
	b.on(b.nodes, func(node redis.UniversalClient) error {
		if err := node.Set(b.ctx, b.base()+":dead:"+l.ID(), fmt.Sprint("shut ", int64(l.Token())), long).Err(); err != nil {
			return err
		}
		parts := strings.SplitN(node.HGet(b.ctx, b.base(), field).Val(), "\n", 7)
		if len(parts) < 7 || parts[0] != l.ID() {
			return nil
		}
		parts[2] = fmt.Sprint(at.UnixMicro())
		return node.HSet(b.ctx, b.base(), field, strings.Join(parts, "\n")).Err()
	})
}

// voters are how many nodes have a row of a lease.
func (b *bench) voters(l *locking.Lease) (n int) {
	b.Helper()
	b.on(b.nodes, func(node redis.UniversalClient) error {
		if strings.HasPrefix(node.HGet(b.ctx, b.base(), fmt.Sprint("r", l.Slot())).Val(), l.ID()+"\n") {
			n++
		}
		return nil
	})
	return n
}

// everywhere waits until all nodes have a row of a lease.
func (b *bench) everywhere(l *locking.Lease) {
	b.Helper()
	b.until("a row on each node", func() bool { return b.voters(l) == len(b.nodes) })
}

// gone waits until no node has a row of a lease that was released: a majority was enough for that.
func (b *bench) gone(l *locking.Lease) {
	b.Helper()
	if b.onQuorum() {
		b.until("no row of it", func() bool { return b.voters(l) == 0 })
	}
}

// forgets does to a node what FLUSHALL does, as far as the bench is concerned.
func (b *bench) forgets(node redis.UniversalClient) {
	b.Helper()
	keys := node.Scan(b.ctx, 0, b.prefix+"*", 1000).Iterator()
	for keys.Next(b.ctx) {
		if err := node.Del(b.ctx, keys.Val()).Err(); err != nil {
			b.Fatal(err)
		}
	}
}

func (b *bench) isVoting(node redis.UniversalClient) bool {
	return node.HGet(b.ctx, b.prefix+"quorum", "state").Val() == "voting"
}

// founded waits until all nodes vote: while they join, registers are written once more, and what a test fakes in one may be undone.
func (b *bench) founded() {
	b.Helper()
	b.until("all nodes vote", func() bool {
		return !slices.ContainsFunc(b.nodes, func(node redis.UniversalClient) bool { return !b.isVoting(node) })
	})
}

// votesAgain waits until a node has joined anew.
func (b *bench) votesAgain(node redis.UniversalClient) {
	b.Helper()
	b.until("the node votes again", func() bool {
		b.ask(b.b, locking.Request{Lock: "other", Abstain: true}) // somebody has to talk to it
		return b.isVoting(node)
	})
}

// A holds {1,2,3}; 3 restarts empty; B gets {3,4,5}.
func forgetfulNode(b *bench) {
	const lease = 2 * time.Second
	l := b.wins(b.a, locking.Request{Lease: lease})
	b.everywhere(l)
	few := len(b.nodes) / 2
	b.on(b.nodes[:few], func(node redis.UniversalClient) error { // which never voted for it
		return node.HDel(b.ctx, b.base(), "r0").Err()
	})
	forgot := b.nodes[few]
	b.forgets(forgot)
	before := b.now()
	newcomer := b.client("newcomer")
	for l.Context().Err() == nil {
		if a := b.ask(newcomer, locking.Request{Lease: lease}); a.Verdict == locking.Granted && l.Context().Err() == nil {
			b.Fatal("granted beside a living holder")
		}
		if b.isVoting(forgot) {
			if since := b.now().Sub(before); since < lease {
				b.Fatalf("it votes after %v", since)
			}
			return
		}
	}
	b.Fatalf("the lease was lost: %v", l.Context().Err())
}

func reseededNode(b *bench) {
	b.known()
	for n := range 3 {
		b.release(b.wins(b.a, locking.Request{Tick: b.tick(n), Lease: time.Second}))
	}
	b.forgets(b.nodes[1])
	b.votesAgain(b.nodes[1])
	if low := fmt.Sprint(b.register(b.nodes[1])["low"]); low != fmt.Sprint(b.tick(2).At.Unix()) {
		b.Errorf("it knows of ticks up to %s", low)
	}
	if life := b.nodes[1].TTL(b.ctx, b.base()).Val(); life != -1 { // what has a ledger stays
		b.Errorf("it knows so for %v", life)
	}
}

// A node forgets a vote for a lease longer than any so far, while the claim is on its way to the others.
func forgetfulInAMoment(b *bench) {
	b.forgets(b.nodes[1])
	b.votesAgain(b.nodes[1])
	since, err := b.nodes[1].HGet(b.ctx, b.prefix+"quorum", "since").Int64()
	if err != nil {
		b.Fatal(err)
	}
	if now, err := b.nodes[1].Time(b.ctx).Result(); err != nil || now.Sub(time.UnixMicro(since)) < quorumTimeout {
		b.Errorf("it votes after %v (%v), but what takes %v could be on its way", now.Sub(time.UnixMicro(since)), err, quorumTimeout)
	}
}

func rollingLoss(b *bench) {
	b.known()
	short := func(n int) locking.Request { return locking.Request{Tick: b.tick(n), Lease: time.Second} }
	last := locking.Token(0)
	for n, node := range b.nodes {
		l := b.wins(b.a, short(n))
		if l.Token() <= last {
			b.Fatalf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
		b.release(l)
		b.forgets(node)
		b.votesAgain(node)
	}
	for n := range b.nodes { // every node has forgotten once
		b.gets(b.client("newcomer"), short(n), locking.Decided)
	}
}

func repairedMinority(b *bench) {
	l := b.wins(b.a, locking.Request{Lease: renewing})
	b.everywhere(l)
	b.on(b.nodes[:len(b.nodes)/2], func(node redis.UniversalClient) error { return node.Del(b.ctx, b.base()).Err() })
	b.everywhere(l)
	b.release(l)
	b.until("no node has it", func() bool { return b.voters(l) == 0 })
}

// Renewals count with a majority only.
func lostMajority(b *bench) {
	l := b.wins(b.a, locking.Request{Lease: renewing})
	b.everywhere(l)
	most := b.nodes[:len(b.nodes)/2+1]
	other := strings.Join([]string{"other", fmt.Sprint(int64(l.Token()) + 1), fmt.Sprint(b.now().Add(long).UnixMicro()),
		fmt.Sprint(long.Microseconds()), "0", "", "b"}, "\n")
	b.on(most, func(node redis.UniversalClient) error { return node.HSet(b.ctx, b.base(), "r0", other).Err() })
	b.ends(l, locking.ErrLost)
}

func refusedLeavesNothing(b *bench) {
	l := b.wins(b.a, locking.Request{})
	b.everywhere(l)
	few := b.nodes[:len(b.nodes)/2]
	b.on(few, func(node redis.UniversalClient) error { return node.HDel(b.ctx, b.base(), "r0").Err() })
	b.gets(b.b, locking.Request{ID: "refused"}, locking.Held)
	b.until("no node has a row of it", func() bool {
		left := 0
		b.on(b.nodes, func(node redis.UniversalClient) error {
			if strings.HasPrefix(node.HGet(b.ctx, b.base(), "r0").Val(), "refused\n") {
				left++
			}
			return nil
		})
		return left == 0
	})
}

// A claimant dies when one node has accepted its grant: the next one completes it, or makes its own; never both.
func halfMade(b *bench) {
	b.known()
	b.release(b.wins(b.a, locking.Request{Tick: b.tick(0)}))
	old := map[redis.UniversalClient]map[string]string{}
	b.on(b.nodes, func(node redis.UniversalClient) error {
		fields, err := node.HGetAll(b.ctx, b.base()).Result()
		old[node] = fields
		return err
	})
	l := b.wins(b.a, locking.Request{ID: "half", Tick: b.tick(1), Trigger: "schedule"})
	b.on(b.nodes[1:], func(node redis.UniversalClient) error { // to them the last accept never came
		return node.HSet(b.ctx, b.base(), "value", old[node]["value"], "ballot", old[node]["ballot"]).Err()
	})
	b.expire(l)
	a := b.ask(b.b, locking.Request{Tick: b.tick(1)})
	if a.Verdict != locking.Granted && (a.Verdict != locking.Decided || a.Outcome != "granted") {
		b.Fatalf("%+v", a)
	}
	for _, c := range []*locking.Client{b.a, b.client("newcomer")} {
		b.decided(c, 1, "granted")
	}
	if orphans := len(b.state().Orphans); (a.Verdict == locking.Granted) == (orphans == 1) {
		b.Errorf("%s, and %d orphans", a.Verdict, orphans)
	}
}

func shutOnQuorum(b *bench) {
	const delay = 3 * time.Second
	l := b.wins(b.a, locking.Request{Delay: delay})
	ended := b.now()
	b.expire(l)
	b.gets(b.b, locking.Request{}, locking.Held)
	b.until("the row is free", func() bool { return b.ask(b.b, locking.Request{}).Verdict == locking.Granted })
	if after := b.now().Sub(ended); after < delay-time.Millisecond {
		b.Errorf("free after %v", after)
	}
}

// Two holders of two rows, and room for one on four nodes of five: counting node by node lets a third one in.
func differentRows(b *bench) {
	r := locking.Request{Slots: 2}
	first, second := b.wins(b.a, r), b.wins(b.b, r)
	b.everywhere(first)
	b.everywhere(second)
	few := len(b.nodes) / 2
	b.on(b.nodes[:few], func(node redis.UniversalClient) error { return node.HDel(b.ctx, b.base(), "r1").Err() })
	b.on(b.nodes[few+1:], func(node redis.UniversalClient) error { return node.HDel(b.ctx, b.base(), "r0").Err() })
	b.gets(b.client("third"), r, locking.Held)
}

// A claim finds its first slot taken and wins another; then its first try arrives at nodes that it had not reached yet.
func lateTry(b *bench) {
	r := locking.Request{Slots: 2}
	b.everywhere(b.wins(b.a, r))
	r.ID = "mover"
	moved := b.wins(b.b, r)
	b.everywhere(moved)
	first := b.await("mover", 1)
	b.on(b.nodes, func(node redis.UniversalClient) error {
		if err := node.Del(b.ctx, b.base()+":dead:mover").Err(); err != nil { // that would refuse it, but need not be there yet
			return err
		}
		reply, err := node.Do(b.ctx, first...).Slice()
		if err == nil && reply[0] != "stale" && reply[0] != "dropped" {
			b.Errorf("it was %s", reply[0])
		}
		return err
	})
	if n := b.voters(moved); n != len(b.nodes) {
		b.Errorf("%d nodes have its row", n)
	}
}

// What a refused claim sends to take its votes back arrives after the same lease id was asked for again, by a client whose clock has stepped back.
func (b *bench) lateDrop(r locking.Request) {
	b.known()
	var behind atomic.Int64
	cfg := b.config("stepped")
	begun := time.Now()
	cfg.Clock = func() time.Duration { return time.Hour + time.Since(begun) - time.Duration(behind.Load()) }
	c, err := locking.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	first := b.wins(b.a, locking.Request{Permanent: true})
	b.everywhere(first)
	const step = time.Second
	b.until("the floor is older than the step", func() bool { return b.now().UnixMicro()-int64(first.Token()) > 2*step.Microseconds() })
	r.ID, r.Permanent = "twice", true
	b.gets(c, r, locking.Held)
	var drop []any
	b.until("all nodes have answered", func() bool {
		asked := 0
		for _, call := range b.sent.of(r.ID) {
			if len(call) == quorumRelease {
				drop = call
			} else {
				asked++
			}
		}
		return drop != nil && asked > 0 && asked%len(b.nodes) == 0
	})
	tombstone := b.base() + ":dead:twice"
	b.on(b.nodes, func(node redis.UniversalClient) error { // as if it had not arrived yet
		b.until("the drop has arrived", func() bool { return node.Exists(b.ctx, tombstone).Val() == 1 })
		return node.Del(b.ctx, tombstone).Err()
	})
	b.release(first)
	b.gone(first)
	behind.Store(int64(step))
	second := b.wins(c, r)
	b.everywhere(second)
	if verdict, _ := b.again(drop); verdict != "dropped" {
		b.Errorf("it was %s", verdict)
	}
	if n := b.voters(second); n != len(b.nodes) {
		b.Errorf("%d nodes have its row", n)
	}
}

// A claim asks again with the very number that a node has promised to another since.
func promisedOnce(b *bench) {
	b.known()
	b.runs(b.a, 0)
	l := b.wins(b.a, locking.Request{ID: "one", Tick: b.tick(1)})
	b.everywhere(l)
	claim := slices.Clone(b.await("one", 1))
	b.wins(b.b, locking.Request{ID: "two", Slots: 2, Permanent: true, AnyLimit: true, Trigger: "manual"})
	for _, node := range b.nodes {
		floor := node.HGet(b.ctx, b.base(), "floor").Val()
		at := notAfter(claim) + 2
		for _, moves := range []string{"", fmt.Sprintf(",%v,", claim[at+5])} {
			again := slices.Clone(claim)
			again[at+5], again[at+8] = floor, moves
			reply, err := node.Do(b.ctx, again...).Slice()
			if err != nil {
				b.Fatal(err)
			}
			if reply[0] != "stale" {
				b.Errorf("%s: promised again: %v", floor, reply[0])
			}
		}
	}
}

// A claimant's last word arrives when others have decided more.
func lateWriteBack(b *bench) {
	b.known()
	t := b.tick(1)
	t.Deadline, t.IfLate = b.now().Add(-time.Minute), "missed"
	b.gets(b.a, locking.Request{ID: "slow", Tick: t}, locking.Settled)
	var late []any
	for n := 1; len(late) != quorumAccept; n++ {
		late = b.await("slow", n)
	}
	b.runs(b.b, 2)
	ballot := fmt.Sprint(late[notAfter(late)+2])
	b.until("all nodes have heard of a later ballot", func() bool {
		return !slices.ContainsFunc(b.nodes, func(node redis.UniversalClient) bool {
			return node.HGet(b.ctx, b.base(), "floor").Val() <= ballot
		})
	})
	if verdict, _ := b.again(late); verdict != "stale" {
		b.Errorf("it was %s", verdict)
	}
	b.decided(b.a, 2, "granted")
}

func orphanStaysDead(b *bench) {
	b.known()
	l := b.wins(b.a, locking.Request{ID: "one", Lease: renewing, Tick: b.tick(1), Trigger: "schedule"})
	renewal := b.renewal("one")
	b.until("it is an orphan", func() bool { // its keeper may renew it in between
		b.expire(l)
		b.on(b.nodes, func(node redis.UniversalClient) error { return node.Del(b.ctx, b.base()+":dead:one").Err() })
		return len(b.state().Orphans) == 1
	})
	renewed := 0
	b.on(b.nodes, func(node redis.UniversalClient) error {
		reply, err := node.Do(b.ctx, renewal...).Slice()
		if err == nil && reply[0] == "renewed" {
			renewed++
		}
		return err
	})
	if renewed > len(b.nodes)/2 {
		b.Errorf("%d nodes have renewed it", renewed)
	}
}
