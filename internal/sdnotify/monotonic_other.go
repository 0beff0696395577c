//go:build !linux

package sdnotify

import "time"

// monotonicTime is needed only for systemd.
func monotonicTime() time.Duration { return 0 }
