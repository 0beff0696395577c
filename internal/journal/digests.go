package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// KeepDigests keeps the digests of the jobs of a configuration, by their names, for ttl by the server's clock. config is the digest of the whole,
// under which all replicas with that configuration keep the same value: so it is written once, and then only kept. Call it again well before ttl has
// passed.
func (g registry) KeepDigests(ctx context.Context, config string, jobs map[string]string, ttl time.Duration) error {
	ctx, cancel := g.within(ctx)
	defer cancel()
	key := g.key("digests:" + config)
	kept := g.redis.PExpire(ctx, key, ttl)
	err := errorOf(ctx, kept)
	if err == nil && !kept.Val() {
		var text []byte
		if text, err = json.Marshal(jobs); err == nil {
			cmd := g.redis.Set(ctx, key, text, ttl)
			err = errorOf(ctx, cmd)
		}
	}
	return wrapIf("keep the digests of jobs", err)
}

// Digests returns what KeepDigests has kept, by the digests of the wholes. Those that are not there are left out, and so are those that no
// replica wrote, with an error that wraps ErrCorrupt.
func (g registry) Digests(ctx context.Context, configs []string) (map[string]map[string]string, error) {
	ctx, cancel := g.within(ctx)
	defer cancel()
	found := map[string]map[string]string{}
	damaged, err := each(ctx, g.namespace, configs, maxBatch, func(p redis.Pipeliner, config string) *redis.StringCmd {
		return p.Get(ctx, g.key("digests:"+config))
	}, func(config string, text *redis.StringCmd) error {
		var jobs map[string]string
		if text.Err() != nil { // it is not there, or reported as damaged
			return nil
		}
		if err := json.Unmarshal([]byte(text.Val()), &jobs); err != nil {
			return fmt.Errorf("digests of configuration %.40q: %w: %w", config, ErrCorrupt, err)
		}
		found[config] = jobs
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the digests of jobs: %w", err)
	}
	return found, damaged
}
