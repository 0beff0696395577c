package transport

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
)

func TestUnknownIsMarkedOnce(t *testing.T) {
	if Unknown(nil) != nil {
		t.Error("nil became an error")
	}
	err := Unknown(Unknown(redis.Nil))
	if !errors.Is(err, lease.ErrUnknown) || !errors.Is(err, redis.Nil) || strings.Count(err.Error(), lease.ErrUnknown.Error()) != 1 {
		t.Errorf("%v", err)
	}
}
