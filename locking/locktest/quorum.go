package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

func quorums() []theorem {
	return []theorem{
		{"NodeThatForgotDoesNotVoteForALease", forgetfulNode, votes},        // Promise: P3, quorum
		{"NodeThatForgotWaitsForWhatIsOnItsWay", forgetfulInAMoment, votes}, // Promise: P1, quorum
		{"NodeThatForgotKnowsTheLedgerWhenItVotes", reseededNode, votes},    // Promise: P1, quorum
		{"MinorityThatForgotOneAfterTheOtherLosesNothing", rollingLoss, votes},
		{"KeeperRepairsAMinority", repairedMinority, votes},
		{"MajorityThatLostItsRowsEndsTheLease", lostMajority, votes},           // Promise: P3, quorum
		{"RenewalOnANodeThatForgotDoesNotCount", renewedWhereForgotten, votes}, // Promise: P3, quorum
		{"RefusedClaimLeavesNothingBehind", refusedLeavesNothing, votes},
		{"HalfMadeGrantIsCompletedOnce", halfMade, votes},
		{"RowStaysShutAfterAnExpiryWithADelay", shutOnQuorum, votes},
		{"MajoritiesOfDifferentRowsGrantNothing", differentRows, votes}, // Promise: P3, quorum
		{"OlderTickOfABatchIsGrantedFirst", olderFirst, votes},
		{"VotesOfEarlierCallsAreNotInTheWay", votesOfBefore, votes},
		{"LateWriteBackChangesNothing", lateWriteBack, votes},
		{"LateTryLeavesALaterOneAlone", lateTry, votes},
		{"LateDropLeavesALaterTryAlone", func(b *bench) { lateDrop(b, lease.Request{}) }, votes},
		{"LateDropLeavesALaterTryForATickAlone", func(b *bench) { lateDrop(b, lease.Request{Tick: b.tick(1)}) }, votes},
		{"NumberIsPromisedOnce", promisedOnce, votes}, // Promise: P1, quorum
		{"OrphanIsNotRenewed", orphanStaysDead, votes},
		{"MajorityKnowsWhoWasToStop", stoppedOnAMajority, votes},
		{"RowOfAnEndedRunSkipsNoTick", endedRowSkipsNothing, votes},
	}
}

// refuses demands [locking.ErrQuorum] of methods that a quorum can't serve.
func refuses(b *bench) {
	b.Helper()
	_, _, sets := b.a.MultiLock("{x}:1", "{x}:2").TryLock(b.ctx)
	update := b.a.Update(b.ctx, []string{"key"}, func(*locking.Tx) error { return nil })
	fence := b.a.Fence("resource").Pass(b.ctx, 1)
	_, removal := b.a.Engine().Remove(b.ctx, []string{lock}, b.now())
	for what, err := range map[string]error{"a set of locks": sets, "an update": update, "a fence": fence, "a removal": removal} {
		if !errors.Is(err, locking.ErrQuorum) {
			b.Errorf("%s: %v", what, err)
		}
	}
}

// The holder has the votes of a bare majority: of three masters, the last two. The first of these restarts empty. It would be a majority with the ones that never
// voted for the holder.
func forgetfulNode(b *bench) {
	const length = 5 * time.Second // a busy machine may need a second for a renewal
	l := b.wins(b.a, lease.Request{Lease: length})
	heldEverywhere(b, l)
	few := len(b.nodes) / 2
	onNodes(b, b.nodes[:few], func(node redis.UniversalClient) error { // which never voted for it
		return node.HDel(b.ctx, b.base(), "r0").Err()
	})
	forgot := b.nodes[few]
	forgets(b, forgot)
	before := b.now()
	newcomer := b.client("newcomer")
	for l.Context().Err() == nil {
		if a := b.ask(newcomer, lease.Request{Lease: length}); a.Verdict == lease.Granted && l.Context().Err() == nil {
			b.Fatal("granted beside a living holder")
		}
		if isVoting(b, forgot) {
			if since := b.now().Sub(before); since < length {
				b.Fatalf("it votes after %v", since)
			}
			return
		}
	}
	b.Fatalf("the lease was lost: %v", context.Cause(l.Context()))
}

func reseededNode(b *bench) {
	b.known()
	for n := range 3 {
		b.release(b.wins(b.a, lease.Request{Tick: b.tick(n), Lease: renewing}))
	}
	forgets(b, b.nodes[1])
	votesAgain(b, b.nodes[1])
	if low := fmt.Sprint(registerOf(b, b.nodes[1])["low"]); low != fmt.Sprint(b.tick(2).At.Unix()) {
		b.Errorf("it knows of ticks up to %s", low)
	}
	if life := b.nodes[1].TTL(b.ctx, b.base()).Val(); life != -1 { // a lock with a ledger stays
		b.Errorf("it knows so for %v", life)
	}
}

// A node forgets a vote for a lease longer than any so far, while the claim is on its way to the others.
func forgetfulInAMoment(b *bench) {
	forgets(b, b.nodes[1])
	votesAgain(b, b.nodes[1])
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
	short := func(n int) lease.Request { return lease.Request{Tick: b.tick(n), Lease: time.Second} }
	last := locking.Token(0)
	for n, node := range b.nodes {
		l := b.wins(b.a, short(n))
		if l.Token() <= last {
			b.Fatalf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
		b.release(l)
		forgets(b, node)
		votesAgain(b, node)
	}
	for n := range b.nodes { // every node has forgotten once
		b.gets(b.client("newcomer"), short(n), lease.Decided)
	}
}

func repairedMinority(b *bench) {
	l := b.wins(b.a, lease.Request{Lease: renewing})
	heldEverywhere(b, l)
	onNodes(b, b.nodes[:len(b.nodes)/2], func(node redis.UniversalClient) error { return node.Del(b.ctx, b.base()).Err() })
	heldEverywhere(b, l)
	b.release(l)
	eventually(b, "no node has it", func() bool { return voters(b, l) == 0 })
}

// Renewals count with a majority only.
func lostMajority(b *bench) {
	l := b.wins(b.a, lease.Request{Lease: renewing})
	heldEverywhere(b, l)
	onNodes(b, b.nodes[:len(b.nodes)/2+1], heldByOther(b, l))
	b.ends(l, locking.ErrLost)
}

// heldByOther has a node vote for another in the row of a lease.
func heldByOther(b *bench, l holding) func(node redis.UniversalClient) error {
	other := strings.Join([]string{"other", fmt.Sprint(int64(l.Token()) + 1), fmt.Sprint(b.now().Add(long).UnixMicro()),
		fmt.Sprint(long.Microseconds()), "0", "", "b"}, "\n")
	return func(node redis.UniversalClient) error { return node.HSet(b.ctx, b.base(), "r0", other).Err() }
}

// A minority votes for another whose claim is on its way, and so did a node that has forgotten it: when that renews the lease, and the last vote of the lease on one more node ends, there
// are two majorities.
func renewedWhereForgotten(b *bench) {
	b.release(b.wins(b.a, lease.Request{Lock: "other", Lease: long})) // for as long a node that forgets does not vote
	l := b.wins(b.a, lease.Request{Lease: renewing})
	heldEverywhere(b, l)
	few := len(b.nodes) / 2
	onNodes(b, b.nodes[:few], heldByOther(b, l))
	forgets(b, b.nodes[few])
	b.ends(l, locking.ErrLost)
}

func refusedLeavesNothing(b *bench) {
	l := b.wins(b.a, lease.Request{})
	heldEverywhere(b, l)
	few := b.nodes[:len(b.nodes)/2]
	onNodes(b, few, func(node redis.UniversalClient) error { return node.HDel(b.ctx, b.base(), "r0").Err() })
	b.gets(b.b, lease.Request{ID: "refused"}, lease.Held)
	eventually(b, "no node has a row of it", func() bool {
		left := 0
		onNodes(b, b.nodes, func(node redis.UniversalClient) error {
			if strings.HasPrefix(node.HGet(b.ctx, b.base(), "r0").Val(), "refused\n") {
				left++
			}
			return nil
		})
		return left == 0
	})
}

// Votes are split at first, each time, so that claims come again after random pauses.
func olderFirst(b *bench) {
	b.known()
	const rounds, split = 8, 30 * time.Millisecond
	for i := range rounds {
		for n, node := range b.nodes[len(b.nodes)/2:] {
			row := fmt.Sprintf("other%d\n1\n%d\n%d\n0\n\nother", n, b.now().Add(split).UnixMicro(), split.Microseconds())
			if err := node.HSet(b.ctx, b.base(), "r0", row).Err(); err != nil {
				b.Fatal(err)
			}
		}
		older, newer := lease.Request{Lock: lock, Permanent: true, Tick: b.tick(2 * i)}, lease.Request{Lock: lock, Permanent: true, Tick: b.tick(2*i + 1)}
		answers := b.a.Engine().AcquireAll(b.ctx, []lease.Request{older, newer})
		b.wants(answers[0], lease.Granted)
		b.wants(answers[1], lease.Held)
		b.release(answers[0].Run)
		runs(b, b.b, 2*i+1)
	}
}

// Calls whose replies were lost left votes with tokens of their own on a majority, and the same lease id is
// asked for again.
func votesOfBefore(b *bench) {
	b.known()
	runs(b, b.a, 0)
	for i, node := range b.nodes[:len(b.nodes)/2+1] {
		row := fmt.Sprintf("again\n%d\n%d\n%d\n0\ntentative\na", i+1, b.now().Add(long).UnixMicro(), long.Microseconds())
		if err := node.HSet(b.ctx, b.base(), "r0", row).Err(); err != nil {
			b.Fatal(err)
		}
	}
	b.release(b.wins(b.a, lease.Request{ID: "again", Tick: b.tick(1)}))
	decided(b, b.b, 1, "granted")
}

func shutOnQuorum(b *bench) {
	const delay = 3 * time.Second
	l := b.wins(b.a, lease.Request{Delay: delay})
	ended := b.now()
	b.expire(l)
	b.gets(b.b, lease.Request{}, lease.Held)
	eventually(b, "the row is free", func() bool { return b.ask(b.b, lease.Request{}).Verdict == lease.Granted })
	if after := b.now().Sub(ended); after < delay-time.Millisecond {
		b.Errorf("free after %v", after)
	}
}

// Two holders of two rows, and room for one on each node but one: counting node by node lets a third one in.
func differentRows(b *bench) {
	r := lease.Request{Slots: 2}
	first, second := b.wins(b.a, r), b.wins(b.b, r)
	heldEverywhere(b, first)
	heldEverywhere(b, second)
	few := len(b.nodes) / 2
	onNodes(b, b.nodes[:few], func(node redis.UniversalClient) error { return node.HDel(b.ctx, b.base(), "r1").Err() })
	onNodes(b, b.nodes[few+1:], func(node redis.UniversalClient) error { return node.HDel(b.ctx, b.base(), "r0").Err() })
	b.gets(b.client("third"), r, lease.Held)
}

// A minority has heard nothing of a stop, and no mark is left when the holder dies.
func stoppedOnAMajority(b *bench) {
	b.known()
	l := b.wins(b.a, lease.Request{Tick: b.tick(1), Trigger: "test"})
	heldEverywhere(b, l)
	eventually(b, "one register on a majority", func() bool { return minority(b) != nil })
	before := map[redis.UniversalClient]map[string]string{}
	for _, node := range b.nodes {
		before[node] = node.HGetAll(b.ctx, b.base()).Val()
	}
	stopRun(b, lease.StopRequest{ID: l.ID(), Reason: "enough"})
	few := minority(b) // of the register that has the stop: any majority is enough for it
	onNodes(b, few, func(node redis.UniversalClient) error {
		return errors.Join(node.Del(b.ctx, b.base()).Err(), node.HSet(b.ctx, b.base(), before[node]).Err())
	})
	onNodes(b, b.nodes, func(node redis.UniversalClient) error { return node.HDel(b.ctx, b.base(), "s0").Err() })
	b.expire(l)
	if s := b.state(); len(s.Orphans) != 1 || s.Orphans[0].Stopped != "enough" {
		b.Errorf("orphans: %+v", s.Orphans)
	}
}

// A run was given back before it began, and a majority of nodes still has its row: the tick is open, and that row does not skip it.
func endedRowSkipsNothing(b *bench) {
	b.known()
	l := b.wins(b.a, lease.Request{Tick: b.tick(1), Trigger: "test"})
	var few []redis.UniversalClient
	eventually(b, "one register on a majority", func() bool { few = minority(b); return few != nil })
	most := slices.DeleteFunc(slices.Clone(b.nodes), func(node redis.UniversalClient) bool { return slices.Contains(few, node) })
	row := most[0].HGet(b.ctx, b.base(), "r0").Val()
	b.giveBack(l)
	goneEverywhere(b, l)
	onNodes(b, most, func(node redis.UniversalClient) error { return node.HSet(b.ctx, b.base(), "r0", row).Err() })
	if rows := b.state().Running; len(rows) != 0 {
		b.Errorf("held: %+v", rows)
	}
	b.gets(b.b, lease.Request{Tick: settling(b, 1)}, lease.Held)
	onNodes(b, most, func(node redis.UniversalClient) error { return node.HDel(b.ctx, b.base(), "r0").Err() })
	b.release(b.wins(b.b, lease.Request{Tick: settling(b, 1)}))
}

// A claimant dies when one node has accepted its grant: the next one completes it, or makes its own; never both.
func halfMade(b *bench) {
	b.known()
	b.release(b.wins(b.a, lease.Request{Tick: b.tick(0)}))
	old := map[redis.UniversalClient]map[string]string{}
	onNodes(b, b.nodes, func(node redis.UniversalClient) error {
		fields, err := node.HGetAll(b.ctx, b.base()).Result()
		old[node] = fields
		return err
	})
	l := b.wins(b.a, lease.Request{ID: "half", Tick: b.tick(1), Trigger: "schedule"})
	onNodes(b, b.nodes[1:], func(node redis.UniversalClient) error { // to them the last accept never came
		return node.HSet(b.ctx, b.base(), "value", old[node]["value"], "ballot", old[node]["ballot"]).Err()
	})
	b.expire(l)
	a := b.ask(b.b, lease.Request{Tick: b.tick(1)})
	if a.Verdict != lease.Granted && (a.Verdict != lease.Decided || a.Outcome != "granted") {
		b.Fatalf("%+v", a)
	}
	for _, c := range []*locking.Client{b.a, b.client("newcomer")} {
		decided(b, c, 1, "granted")
	}
	if orphans := len(b.state().Orphans); (a.Verdict == lease.Granted) == (orphans == 1) {
		b.Errorf("%s, and %d orphans", a.Verdict, orphans)
	}
}

// A claim finds its first slot taken and wins another; then its first try arrives at nodes that it had not reached yet.
func lateTry(b *bench) {
	r := lease.Request{Slots: 2}
	heldEverywhere(b, b.wins(b.a, r))
	r.ID = "mover"
	moved := b.wins(b.b, r)
	heldEverywhere(b, moved)
	first := b.await("mover", 1)
	onNodes(b, b.nodes, func(node redis.UniversalClient) error {
		if err := node.Del(b.ctx, b.base()+":dead:mover").Err(); err != nil { // that would refuse it, but need not be there yet
			return err
		}
		reply, err := node.Do(b.ctx, first...).Slice()
		if err == nil && reply[0] != "stale" && reply[0] != "dropped" {
			b.Errorf("it was %s", reply[0])
		}
		return err
	})
	if n := voters(b, moved); n != len(b.nodes) {
		b.Errorf("%d nodes have its row", n)
	}
}

// A refused claim's call to take its votes back arrives after the same lease id was asked for again, by a client
// whose clock has stepped back.
func lateDrop(b *bench, r lease.Request) {
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
	first := b.wins(b.a, lease.Request{Permanent: true})
	heldEverywhere(b, first)
	const step = time.Second
	eventually(b, "the floor is older than the step", func() bool { return b.now().UnixMicro()-int64(first.Token()) > 2*step.Microseconds() })
	r.ID, r.Permanent = "twice", true
	var drop []any
	eventually(b, "votes are taken back", func() bool { // a claim that asks the first node alone, since others are slow, has none to take back
		b.gets(c, r, lease.Held)
		for _, call := range b.sent.of(r.ID) {
			if len(call) == quorumRelease {
				drop = call
			}
		}
		return drop != nil
	})
	tombstone := b.base() + ":dead:twice"
	onNodes(b, b.nodes, func(node redis.UniversalClient) error { // as if it had not arrived yet
		eventually(b, "the drop has arrived", func() bool { return node.Exists(b.ctx, tombstone).Val() == 1 })
		return node.Del(b.ctx, tombstone).Err()
	})
	b.release(first)
	goneEverywhere(b, first)
	behind.Store(int64(step))
	second := b.wins(c, r)
	heldEverywhere(b, second)
	if verdict, _ := b.again(drop); verdict != "dropped" {
		b.Errorf("it was %s", verdict)
	}
	if n := voters(b, second); n != len(b.nodes) {
		b.Errorf("%d nodes have its row", n)
	}
}

// A claim asks again with the very number that a node has promised to another since.
func promisedOnce(b *bench) {
	b.known()
	runs(b, b.a, 0)
	l := b.wins(b.a, lease.Request{ID: "one", Tick: b.tick(1)})
	heldEverywhere(b, l)
	claim := slices.Clone(b.await("one", 1))
	b.wins(b.b, lease.Request{ID: "two", Slots: 2, Permanent: true, AnyLimit: true, Trigger: "manual"})
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
	b.gets(b.a, lease.Request{ID: "slow", Tick: t}, lease.Settled)
	var late []any
	for n := 1; len(late) != quorumAccept; n++ {
		late = b.await("slow", n)
	}
	runs(b, b.b, 2)
	ballot := fmt.Sprint(late[notAfter(late)+2])
	eventually(b, "each node has a later ballot", func() bool { // a claim that finds a node slow leaves it out
		b.release(b.wins(b.b, lease.Request{Permanent: true}))
		return !slices.ContainsFunc(b.nodes, func(node redis.UniversalClient) bool {
			return node.HGet(b.ctx, b.base(), "floor").Val() <= ballot
		})
	})
	if verdict, _ := b.again(late); verdict != "stale" {
		b.Errorf("it was %s", verdict)
	}
	decided(b, b.a, 2, "granted")
}

func orphanStaysDead(b *bench) {
	b.known()
	l := b.wins(b.a, lease.Request{ID: "one", Lease: renewing, Tick: b.tick(1), Trigger: "schedule"})
	renewal := b.renewal("one")
	eventually(b, "it is an orphan", func() bool { // its keeper may renew it in between
		b.expire(l)
		onNodes(b, b.nodes, func(node redis.UniversalClient) error { return node.Del(b.ctx, b.base()+":dead:one").Err() })
		return len(b.state().Orphans) == 1
	})
	renewed := 0
	onNodes(b, b.nodes, func(node redis.UniversalClient) error {
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
