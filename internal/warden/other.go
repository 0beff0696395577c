//go:build !linux && !darwin

package warden

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// Main returns an error: no commands run on this platform.
func Main(_, _ *os.File) error { return errors.New("there is no warden on this platform") }

func ownSession() *syscall.SysProcAttr { return nil }

func bootTime() time.Duration { return 0 }

func processStart(int) uint64 { return 0 }
