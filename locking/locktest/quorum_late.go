package locktest

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

// quorumRenewal is how many words a renewal of lua/quorum_renew.lua has.
const quorumRenewal = 3 + 3 + 3 + 6

// quorumRelease is how many lua/quorum_release.lua has.
const quorumRelease = 3 + 3 + 3 + 4

// quorumAccept is how many lua/quorum_accept.lua has.
const quorumAccept = 3 + 4 + 3 + 8

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
