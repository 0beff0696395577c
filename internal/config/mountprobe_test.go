package config

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronclave/cronclave/internal/safefile"
)

// TestProbeWithoutTimeLeft: a path that gets only the rest of the time for all paths says nothing about its mount.
func TestProbeWithoutTimeLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) error {
			<-ctx.Done()
			return safefile.ErrUnanswered
		}
		p := &mountProbe{perPath: 2 * time.Second, inAll: 5 * time.Second}
		for path, silent := range map[string]bool{"/no/a": true, "/no/b": true} {
			if err := p.probePath(path, hang); errors.Is(err, safefile.ErrUnanswered) != silent {
				t.Errorf("%s: %v", path, err)
			}
		}
		for range 2 {
			if err := p.probePath("/no/c", hang); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, safefile.ErrUnanswered) {
				t.Errorf("cut short: %v", err)
			}
		}
		if len(p.silent) != 2 || p.silent["/no/a"] == "" || p.silent["/no/b"] == "" {
			t.Errorf("silent: %v", p.silent)
		}
	})
}
