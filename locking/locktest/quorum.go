package locktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

// onNodes fakes the past on some nodes of a quorum.
func onNodes(b *bench, nodes []redis.UniversalClient, do func(node redis.UniversalClient) error) {
	b.Helper()
	for _, node := range nodes {
		if err := do(node); err != nil {
			b.Fatal(err)
		}
	}
}

// minority are as many nodes as can be wrong, with those whose register is not that of the others; nil while no majority has one register.
func minority(b *bench) []redis.UniversalClient {
	b.Helper()
	with := map[string][]redis.UniversalClient{}
	for _, node := range b.nodes {
		ballot := node.HGet(b.ctx, b.base(), "ballot").Val()
		with[ballot] = append(with[ballot], node)
	}
	most := len(b.nodes)/2 + 1
	for ballot, same := range with {
		if ballot == "" || len(same) < most {
			continue
		}
		return slices.DeleteFunc(slices.Clone(b.nodes), func(node redis.UniversalClient) bool { return slices.Contains(same[:most], node) })
	}
	return nil
}

// registerOf is what a node has accepted last.
func registerOf(b *bench, node redis.UniversalClient) map[string]any {
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
func setRegister(b *bench, field string, value any) {
	b.Helper()
	var newest map[string]any
	ballot := ""
	onNodes(b, b.nodes, func(node redis.UniversalClient) error {
		if at := node.HGet(b.ctx, b.base(), "ballot").Val(); at >= ballot && at != "" {
			newest, ballot = registerOf(b, node), at
		}
		return nil
	})
	newest[field] = value
	next, _ := strconv.ParseInt(ballot, 10, 64)
	ballot = fmt.Sprint(next + 1) // calls still on their way come too late
	text, err := json.Marshal(newest)
	if err != nil {
		b.Fatal(err)
	}
	onNodes(b, b.nodes, func(node redis.UniversalClient) error {
		return node.HSet(b.ctx, b.base(), "value", string(text), "ballot", ballot, "floor", ballot).Err()
	})
}

// setRowExpiry fakes the end of a lease on all nodes, and shuts its id so that its keeper, which is alive, does not renew it.
func setRowExpiry(b *bench, l holding, at time.Time) {
	b.Helper()
	heldEverywhere(b, l)
	field := fmt.Sprint("r", l.Slot())
	onNodes(b, b.nodes, func(node redis.UniversalClient) error {
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
func voters(b *bench, l holding) (n int) {
	b.Helper()
	onNodes(b, b.nodes, func(node redis.UniversalClient) error {
		if strings.HasPrefix(node.HGet(b.ctx, b.base(), fmt.Sprint("r", l.Slot())).Val(), l.ID()+"\n") {
			n++
		}
		return nil
	})
	return n
}

// heldEverywhere waits until all nodes have a row of a lease.
func heldEverywhere(b *bench, l holding) {
	b.Helper()
	eventually(b, "a row on each node", func() bool { return voters(b, l) == len(b.nodes) })
}

// goneEverywhere waits until no node has a row of a lease that was released: a majority was enough for that.
func goneEverywhere(b *bench, l holding) {
	b.Helper()
	if b.onQuorum() {
		eventually(b, "no row of it", func() bool { return voters(b, l) == 0 })
	}
}

// forgets does to a node what FLUSHALL does, as far as the bench is concerned.
func forgets(b *bench, node redis.UniversalClient) {
	b.Helper()
	keys := node.Scan(b.ctx, 0, b.prefix+"*", 1000).Iterator()
	for keys.Next(b.ctx) {
		if err := node.Del(b.ctx, keys.Val()).Err(); err != nil {
			b.Fatal(err)
		}
	}
}

func isVoting(b *bench, node redis.UniversalClient) bool {
	return node.HGet(b.ctx, b.prefix+"quorum", "state").Val() == "voting"
}

// founded waits until all nodes vote: while they join, registers are written once more, and what a test fakes in one may be undone.
func founded(b *bench) {
	b.Helper()
	eventually(b, "all nodes vote", func() bool {
		return !slices.ContainsFunc(b.nodes, func(node redis.UniversalClient) bool { return !isVoting(b, node) })
	})
}

// votesAgain waits until a node has joined anew.
func votesAgain(b *bench, node redis.UniversalClient) {
	b.Helper()
	eventually(b, "the node votes again", func() bool {
		b.ask(b.b, lease.Request{Lock: "other", Abstain: true}) // somebody has to talk to it
		return isVoting(b, node)
	})
}

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

// refusesToken demands [locking.ErrQuorum] of methods that a quorum can't serve.
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
