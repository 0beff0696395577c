package journal_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/journal"
)

var errCut = errors.New("cut off")

// cutHook fails all transactions after the first ones, and all commands from then on.
type cutHook struct{ done, most int }

func (*cutHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *cutHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.done > h.most {
			cmd.SetErr(errCut)
			return errCut
		}
		return next(ctx, cmd)
	}
}

func (h *cutHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "multi" {
			return next(ctx, cmds)
		}
		if h.done++; h.done > h.most {
			for _, c := range cmds {
				c.SetErr(errCut)
			}
			return errCut
		}
		return next(ctx, cmds)
	}
}

// TestConfigurationIsWholeOrNotKnown cuts a replica off between two parts of a long configuration. Readers do not find the configuration until another replica
// writes it, after the mark of the first writer has expired.
func TestConfigurationIsWholeOrNotKnown(t *testing.T) {
	url := serve(t)
	cut, reader := connect(t, url), connect(t, url)
	hook := &cutHook{most: 2}
	cut.AddHook(hook)
	long := journal.Configuration{Common: []journal.Setting{{Key: "command", Value: "–"}}, Jobs: map[string]journal.JobConfig{}}
	for n := range 2000 { // four parts
		long.Jobs[fmt.Sprintf("job-%04d", n)] = journal.JobConfig{Digest: "d", Own: map[string]string{"command": fmt.Sprint(n)}}
	}
	id := journal.ConfigID{Digest: "long", Version: "v1"}
	keep := func(j *journal.Journal) error {
		return j.KeepConfiguration(t.Context(), id, time.Minute, func() journal.Configuration { return long })
	}
	first, other := open(t, journal.Config{Redis: cut}), open(t, journal.Config{Redis: reader})
	if err := keep(first); !errors.Is(err, errCut) {
		t.Fatalf("%v after %d parts", err, hook.done)
	}
	if got, err := other.Settings(t.Context(), "job-0000", []journal.ConfigID{id}); err != nil || len(got) > 0 {
		t.Errorf("a part is taken for the whole: %v, %v", got, err)
	}
	if err := keep(other); err != nil {
		t.Error(err)
	}
	mark := "cronclave:test:settings:long:v1:writer"
	if left, err := reader.PTTL(t.Context(), mark).Result(); err != nil || left <= 0 || left > journal.DefaultTimeout+time.Second {
		t.Errorf("the mark of a dead writer ends in %v, %v", left, err)
	}
	if err := reader.PExpire(t.Context(), mark, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := keep(other); err != nil {
		t.Error(err)
	}
	for n := range 2000 {
		job := fmt.Sprintf("job-%04d", n)
		if got, err := other.Settings(t.Context(), job, []journal.ConfigID{id}); err != nil || len(got[id]) != 1 || got[id][0].Value != fmt.Sprint(n) {
			t.Fatalf("%s: %v, %v", job, got, err)
		}
	}
}
