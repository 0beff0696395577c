package locktest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
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

// minority returns as many nodes as may fail. It includes the nodes whose register differs from the majority's. It returns nil while no majority has one register.
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

// voters returns the number of nodes that have a row of a lease.
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
