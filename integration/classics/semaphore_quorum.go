package classics

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// QuorumSemaphore is Redlock with a semaphore on each node in the place of the key: a node admits as many clients as
// it has room for, and a client with a majority of the nodes is inside. RedlockSemaphore of redis-semaphore (npm) is
// made like this.
//
// Its fault: two majorities share a node, but a node that has room for eight admits both. N nodes have N x Limit
// votes, and a holder needs just over half of N.
type QuorumSemaphore struct {
	Nodes   []Node
	Limit   int
	Timeout time.Duration
	Clock   Clock
}

var countHolders = redis.NewScript(`
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[2] - ARGV[3])
if redis.call('ZSCORE', KEYS[1], ARGV[4]) or redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[1]) then
  redis.call('ZADD', KEYS[1], ARGV[2], ARGV[4])
  return 1
end
return 0`)

// Ask asks one node for its vote.
func (s QuorumSemaphore) Ask(ctx context.Context, node int, key, id string) (bool, error) {
	n, err := countHolders.Run(ctx, s.Nodes[node], []string{key}, s.Limit, s.Clock().UnixMilli(), s.Timeout.Milliseconds(), id).Int()
	return n == 1, err
}

// Enough returns whether so many votes suffice.
func (s QuorumSemaphore) Enough(votes int) bool { return votes > len(s.Nodes)/2 }

// Acquire asks one node after the other, with no other client in between.
func (s QuorumSemaphore) Acquire(ctx context.Context, key, id string) (bool, error) {
	votes := 0
	for node := range s.Nodes {
		yes, err := s.Ask(ctx, node, key, id)
		if err != nil {
			return false, err
		}
		if yes {
			votes++
		}
	}
	if s.Enough(votes) {
		return true, nil
	}
	for _, n := range s.Nodes {
		if err := n.ZRem(ctx, key, id).Err(); err != nil {
			return false, err
		}
	}
	return false, nil
}
