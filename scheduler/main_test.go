package scheduler_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	redis.SetLogger(mute{}) // it logs every connection that a test cuts
	goleak.VerifyTestMain(m)
}

type mute struct{}

func (mute) Printf(context.Context, string, ...any) {}
