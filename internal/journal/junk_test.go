package journal_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/journal"
)

// junkEntries is the number of foreign entries per key.
const junkEntries = 16000

// TestJunkIsReportedInLinearWork reads keys that are full of foreign entries. The error names the first ones and counts the others. The memory for it must not
// grow with the square of their number.
func TestJunkIsReportedInLinearWork(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true}) // which is never dialed
	client.AddHook(junkHook{})
	defer client.Close()
	j := open(t, journal.Config{Redis: client, Runs: 2 * junkEntries, Timeout: time.Minute})
	for name, read := range map[string]func(context.Context) error{
		"jobs":     func(ctx context.Context) error { return second(j.Jobs(ctx)) },
		"replicas": func(ctx context.Context) error { return second(j.Replicas(ctx)) },
		"records":  func(ctx context.Context) error { return second(j.Runs(ctx, "records", 0, false)) },
		"index":    func(ctx context.Context) error { return second(j.Runs(ctx, "index", 0, true)) },
		"all jobs": func(ctx context.Context) error { return second(j.Runs(ctx, "", 0, true)) },
		"recent": func(ctx context.Context) error {
			return second(j.Recent(ctx, []string{"records", "index"}, 0))
		},
		"settings": func(ctx context.Context) error { return second(j.Settings(ctx, "job", junkConfigs())) },
		"digests":  func(ctx context.Context) error { return second(j.Digests(ctx, junkNames())) },
	} {
		t.Run(name, func(t *testing.T) {
			allocated := allocations(func() {
				err := read(t.Context())
				if !errors.Is(err, journal.ErrCorrupt) {
					t.Errorf("error: %.200v", err)
				}
				if text := err.Error(); len(text) > 8<<10 || !strings.Contains(text, " more") {
					t.Errorf("the error has %d bytes: %.200s", len(text), text)
				}
			})
			const most = 64 << 20 // 4 KB for an entry; nested joins take 200 KB for each
			if allocated > most {
				t.Errorf("%d MB were allocated, which is more than %d", allocated>>20, most>>20)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

// allocations returns the number of bytes that f allocates.
func allocations(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func junkNames() []string {
	names := make([]string, junkEntries)
	for i := range names {
		names[i] = fmt.Sprintf("junk%05d", i)
	}
	return names
}

// junkHook answers instead of the server. All its keys are full of foreign entries.
type junkHook struct{}

func (junkHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (junkHook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return answerJunk(cmd) }
}

func (junkHook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) (err error) {
		for _, cmd := range cmds {
			err = cmp.Or(answerJunk(cmd), err)
		}
		return err
	}
}

func answerJunk(cmd redis.Cmder) error {
	key := fmt.Sprint(append(cmd.Args(), "", "")[1])
	if strings.Contains(key, "{junk") { // of a job
		cmd.SetErr(wrongType{})
		return wrongType{}
	}
	switch cmd := cmd.(type) {
	case *redis.TimeCmd:
		cmd.SetVal(time.Now())
	case *redis.StringCmd:
		cmd.SetVal("junk")
	case *redis.MapStringStringCmd:
		entries := map[string]string{}
		for _, name := range junkNames() {
			entries[name] = "junk"
		}
		cmd.SetVal(entries)
	case *redis.StringSliceCmd:
		cmd.SetVal(junkNames())
	case *redis.SliceCmd:
		cmd.SetVal([]any{"junk", nil, nil})
	case *redis.ZSliceCmd:
		var entries []redis.Z
		for _, name := range junkNames() {
			if strings.Contains(key, "index") {
				name = "no\nid" + name
			}
			entries = append(entries, redis.Z{Score: float64(time.Now().UnixMicro()), Member: name})
		}
		cmd.SetVal(entries)
	}
	return nil
}

func junkConfigs() (ids []journal.ConfigID) {
	for _, name := range junkNames() {
		ids = append(ids, journal.ConfigID{Digest: name, Version: "v"})
	}
	return ids
}

// wrongType is the error of a server for a key of another type.
type wrongType struct{}

func (wrongType) Error() string {
	return "WRONGTYPE Operation against a key holding the wrong kind of value"
}
func (wrongType) RedisError() {}
