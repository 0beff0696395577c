package main

import (
	"os"

	"github.com/cronclave/cronclave/internal/safefile"
)

// trustOfRoot returns the trust for files whose content this command executes. A command that runs as root refuses files that other users can change.
func trustOfRoot() safefile.Trust {
	if os.Geteuid() == 0 {
		return safefile.Administrators
	}
	return safefile.Everybody
}
