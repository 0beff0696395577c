package quorum

import (
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease/script"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// New returns the store and starts its rejoiner, which lets nodes that have lost their data vote again. The rejoiner ends with cfg.Work.
func New(cfg Config) *Store {
	e := &env{clock: cfg.Clock, timeout: cfg.Timeout, scripts: script.ForQuorum(), memberKey: script.MemberKey(cfg.Prefix)}
	q := &Store{cfg: cfg, scripts: e.scripts, masters: newMasters(e, cfg.Nodes)}
	r := newRejoiner(q)
	e.wakeUp = r.wakeUp
	cfg.Work.Go(r.runLoop)
	return q
}

// Check returns an error if the masters of a quorum can't be used.
func Check(nodes []transport.Client) error {
	if n := len(nodes); n < 3 || n%2 == 0 {
		return fmt.Errorf("locking: Config.Quorum has %d masters: it must be an odd number, 3 at least", n)
	}
	for i, r := range nodes {
		if one, ok := r.(*redis.Client); !ok || one == nil {
			return fmt.Errorf("locking: Config.Quorum[%d] must be the client of one independent master", i)
		}
		if slices.Contains(nodes[:i], r) {
			return fmt.Errorf("locking: Config.Quorum[%d] is there twice", i)
		}
		if !transport.ObeysContext(r) {
			return fmt.Errorf("locking: set ContextTimeoutEnabled in the options of Config.Quorum[%d]: without it a hung socket can outlast a lease", i)
		}
	}
	return nil
}
